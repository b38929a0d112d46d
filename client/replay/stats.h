/* What the workers tell the coordinator: one block of anonymous memory that all of them share, made
 * before they are forked. Every word in it is written by one process, or added to atomically; the
 * coordinator reads while the run goes on and never writes there, the start apart. */
#pragma once

#include <stdatomic.h>

#include "base/limits.h"
#include "base/macro.h"
#include "client/replay/phase.h"

#define STATS_TEXT_BYTES LIMIT_TEXT_BYTES
#define STATS_LIMIT_BYTES 24

enum worker_state {
    WORKER_STATE_STARTING,
    WORKER_STATE_READY,
    WORKER_STATE_FINISHED, /* every request of it is final and everything was given back */
    WORKER_STATE_STOPPED,  /* as it was told, and everything was given back */
    WORKER_STATE_FAILED,   /* `text` says why */
    WORKER_STATE_MAX
};

const char *worker_state_name(enum worker_state state);

/* Bytes held now, and the most that were. */
struct stats_level {
    _Atomic uint64_t now, peak;
};

/* One request's outcome; written by its worker alone. */
struct stats_request {
    _Atomic uint32_t phase; /* enum phase */
    _Atomic uint32_t preempted;
    _Atomic uint64_t waited_ns;    /* in the broker's queue, all its waits together */
    _Atomic bool waited;           /* it had to queue at least once */
    char limit[STATS_LIMIT_BYTES]; /* what refused; written before the phase is REFUSED */
    /* With an arena: each time it asked, its tenant stayed within MemoryMin with what it asked for.
     */
    _Atomic bool entitled;
};

/* What came of one step of the ladder. */
struct stats_step {
    _Atomic uint64_t asked, answered; /* times that an advice brought it in; acknowledged */
    _Atomic uint64_t affected; /* requests, sequences or tokens that it changed something for */
    _Atomic uint64_t bytes;    /* given back, or not taken */
};

#define STATS_STEPS 7 /* by enum gmb_degrade */

struct stats_worker {
    _Atomic uint32_t state; /* enum worker_state */
    _Atomic uint32_t in_flight, waiting, done, refused;
    _Atomic uint64_t corrupt_bytes; /* differed from what its owner had written */
    _Atomic uint64_t foreign_bytes; /* of those: another tenant's, in memory just received */
    _Atomic uint64_t checked_bytes;
    _Atomic uint64_t late_ns; /* the most that an arrival was dealt with behind its time */
    /* Of its arena, as libgmb counts them: pages. */
    _Atomic uint64_t evictions, restores;
    _Atomic uint64_t reread;     /* pages of finished requests that were read again … */
    _Atomic uint64_t dropped;    /* … or found dropped, as they could be computed again */
    _Atomic uint64_t restore_ns; /* waited for pages to come back */
    struct stats_step steps[STATS_STEPS];
    char text[STATS_TEXT_BYTES];
};

struct stats {
    size_t bytes; /* of the whole block */
    uint32_t worker_count, tenant_count;
    size_t request_count;
    _Atomic uint64_t start_ns; /* CLOCK_MONOTONIC at trace time 0; set once all are ready */
    struct stats_level all;
    struct stats_level *tenants;
    struct stats_level *own; /* of each worker */
    struct stats_worker *workers;
    struct stats_request *requests;
};

/* -ENOMEM. Unmapped with stats_free(), in each process for itself. */
int stats_new(uint32_t tenants, uint32_t workers, size_t requests, struct stats **ret) _must_check_;
struct stats *stats_free(struct stats *stats);

/* A request goes on to another phase: the worker's counts follow. A step that no request may take
 * is a fault of ours and aborts: going on would report nonsense. */
void stats_phase(struct stats_worker *worker, struct stats_request *request, enum phase phase);

/* Adds to a level of its own, its tenant's and the whole. */
void stats_take(struct stats *stats, uint32_t worker, uint64_t bytes);
void stats_give(struct stats *stats, uint32_t worker, uint64_t bytes);

/* The smallest value that at least `percent` % of the sorted values do not exceed (the nearest
 * rank); 0 when there are none. `percent` is 1 … 100. */
uint64_t stats_percentile(const uint64_t *sorted, size_t count, unsigned percent);

/* Sorts ascending, in place. */
void stats_sort(uint64_t *values, size_t count);
