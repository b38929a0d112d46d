/* What the threads of an arena worker share. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "base/list.h"
#include "client/gmb.h"
#include "client/replay/arena_worker.h"
#include "client/replay/device.h"
#include "client/replay/ladder.h"
#include "client/replay/weights.h"

struct arena_worker {
    const struct worker_params *params;
    struct model pages; /* the model, with pages for chunks */
    struct stats_worker *stats;
    const char *tenant;
    gmb_session *session;
    gmb_arena *arena;
    struct weights weights;

    pthread_mutex_t device_lock; /* of `device`, whose stream all threads use */
    struct device *device;

    pthread_mutex_t lock; /* of what follows */
    /* Thousands of requests may wait at once: each wakes up for what concerns it alone. */
    pthread_cond_t ending;        /* for naps: the worker is to stop */
    pthread_cond_t gate_open;     /* for threads without work: somebody may pass the gate */
    pthread_cond_t cache_changed; /* for the thread that reads pages again */
    struct list ended;            /* requests that the main thread hasn't looked at since */
    struct list gate;             /* requests that wait for their place in the batch */
    size_t gate_count;            /* of them */
    struct list swapped, waiting; /* requests that wait for memory, the first first */
    uint32_t running;             /* requests that have passed the gate and not ended */
    struct ladder ladder;         /* what the tenant's advice asks for */
    struct list cached; /* finished requests' pages, those that are read again first in front */
    size_t unfinished;  /* requests that have arrived and not ended */
    bool last_arrived;  /* no request comes any more: what is cached is due at once */
    bool failed;
    bool obeys;            /* it subscribed to advice; set before the first request */
    _Atomic bool stopping; /* by SIGTERM or after a failure */
    int wake_fd;    /* eventfd: a request has ended, the gate is to be looked at, or the end */
    bool pool_ends; /* nobody comes through the gate any more */
    size_t thread_count;
    pthread_t *threads; /* owned: arena_pool.h */
};

/* Notes the worker's failure, of which the first counts, and begins to stop. Any thread. */
void arena_fail(struct arena_worker *worker, const char *format, ...) _printf_(2, 3);
/* Threads that nap and the main one look up. Any thread. */
void arena_stop(struct arena_worker *worker);
/* A condition whose deadlines are CLOCK_MONOTONIC's. -errno. */
int arena_condition_init(pthread_cond_t *condition);
/* Sleeps until then; false when the worker is to stop. */
bool arena_nap(struct arena_worker *worker, uint64_t until_ns);
/* Real time of a duration of the trace. */
uint64_t arena_compress(const struct arena_worker *worker, uint64_t trace_ns);
