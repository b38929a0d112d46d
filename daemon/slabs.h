/*
 * The broker's end of one device's gmbd-slab, which has the memory that can't be shared as fds.
 *
 * The process is started at once and again whenever it ends; what it had is lost with it: the
 * broker's slabs of then are dead names. Starts in a row that fail wait longer and longer; after
 * SLABS_ATTEMPTS of them creating fails instead of being put off; those for which the broker itself
 * has no fds or no memory are not counted. It is never killed for being slow or stopped, since that
 * would end everybody's leases: requests wait meanwhile, and the log says so.
 *
 * Loop's thread: slabs_new(), slabs_stop(), slabs_free(), slabs_stats_get(). Any other thread, one
 * at a time: slabs_create() and slabs_release(), which block until the process has answered,
 * ended or was stopped. The rest: any thread.
 */
#pragma once

#include "gpu/gpu.h"

struct event_base;
struct slabs;

/* As many failed starts are no bad luck any more. */
#define SLABS_ATTEMPTS 4

struct slabs_options {
    const char *program; /* NULL: $GMB_SLAB, else `gmbd-slab` beside this program */
    const char *driver;  /* `cuda` or `sim` */
    const char *user;    /* whom one started by root becomes */
    uint64_t hello_ns;   /* it must be ready within: drivers take seconds to initialise */
    uint64_t backoff_ns; /* before the second start in a row; doubles */
    uint64_t backoff_max_ns;
};

extern const struct slabs_options slabs_options_default;

struct slabs_handler {
    void *data;
    /* The process has ended and every slab with it; `why` is a sentence. From the loop, never from
     * within a call made here. */
    void (*lost)(void *data, const char *why);
};

struct slabs_stats {
    int pid; /* 0: none */
    bool ready;
    uint64_t starts, losses;
    uint64_t context_bytes; /* of device memory, as the last one said */
};

/*
 * Starts the process. `base`, `device` and the options' strings are borrowed; `uuid` is
 * the device's. That it can't be started is no failure here, but slabs_create()'s. -ENOMEM.
 */
int slabs_new(struct event_base *base, const struct gpu_device *device, const uint8_t uuid[16],
    const struct slabs_options *options, const struct slabs_handler *handler,
    struct slabs **ret) _must_check_;
/* Ends the process, at most a second later by force, and what waits for it. NULL is allowed. */
void slabs_stop(struct slabs *slabs);
/* Stops it; every slab must have been released. Accepts NULL, returns NULL. */
struct slabs *slabs_free(struct slabs *slabs);

/* A slab of zeros. GPU_NO_MEMORY when the device is full, and when the process isn't there, which
 * passes; -EIO and the driver's -errno. */
int slabs_create(struct slabs *slabs, uint64_t bytes, struct gpu_chunk *ret,
    struct gpu_error *error) _must_check_;
/* As gpu_ops.chunk_release. One that is lost is only forgotten; one that the driver fails to free
 * is forgotten, too, and the process tries it again with each later request. */
int slabs_release(struct slabs *slabs, struct gpu_chunk *chunk, struct gpu_error *error);

/* Whether the process that had the slab is known to be gone. */
bool slabs_lost(struct slabs *slabs, const struct gpu_chunk *chunk);
/* The slab's token. */
struct gpu_shareable slabs_shareable(const struct gpu_chunk *chunk);
void slabs_stats_get(struct slabs *slabs, struct slabs_stats *ret);
