/*
 * What was left open on the command line, chosen so that a run is worth looking at and ends within
 * about a minute on a small machine. Pure, and said out loud by the report.
 *
 *   chunk     KV of 128 tokens, doubled while the mean request has more than 32 chunks: costs go
 *             by the chunk, and engines do alike
 *   scale     the smallest power of two with which the memory that the trace needs at its peak is
 *             at most 512 MiB, and what is written while it runs at most 300 MiB/s
 *   speed     what makes the trace last 55 s
 *   device    95 % of the peak, so that some requests do wait, but never less than the largest
 *             request and what others are guaranteed
 *   HostTier  with arenas, four times the peak, and room for a slab begun by each worker
 *   weights   go on top: the device, MemoryMin and MemoryMax have room for them besides
 *   MemoryMin a quarter of the device in all, half of it with arenas; MemoryMax three quarters of
 * it for each tenant
 */
#pragma once

#include "client/replay/plan.h"

struct sizing_wish {
    uint64_t kv_bytes_per_token;
    double prefill_rate, decode_rate;
    struct plan_shape shape;
    uint64_t scale;          /* 0: choose */
    uint64_t weights_bytes;  /* of each tenant's model, before scaling */
    double speed;            /* 0: choose */
    uint64_t device_bytes;   /* of our own device; 0: choose. Ignored with a broker's device */
    uint32_t device_percent; /* of what the trace needs, where `device_bytes` is 0; 0: choose */
    uint32_t load_percent;   /* the other way round: its need, of the device; 0: choose */
    /* Of a device that is there already; 0: our own simulated one, whose granularity is scaled. */
    uint64_t granularity_bytes;
    uint64_t capacity_bytes;
    bool arenas; /* what is cold goes to the host: our broker gets a tier for it, and a mover */
    bool bytes_are_cheap; /* a real GPU: no need to write little */
};

struct sizing {
    struct model model;
    double speed;
    uint64_t granularity_bytes;
    uint64_t device_bytes;     /* weights included */
    uint64_t weights_bytes;    /* of each tenant, scaled; 0: none */
    uint64_t memory_min_bytes; /* of each tenant */
    uint64_t memory_max_bytes;
    uint64_t host_tier_bytes; /* 0: what the broker chooses by itself */
    uint64_t reserve_bytes;   /* of our device, beside `device_bytes`: for the mover's own use */
    struct plan_peaks peaks;  /* owned */
};

/* -ENOMEM, -EOVERFLOW (the trace's bytes don't fit in 64 bits). */
int sizing_choose(
    const struct trace *trace, const struct sizing_wish *wish, struct sizing *ret) _must_check_;
void sizing_free(struct sizing *sizing);
