/* One request of an arena worker, and what it leaves behind. */
#pragma once

#include "client/replay/arena_pages.h"

struct arena_request {
    struct list link;    /* worker->live, then worker->cached */
    struct list waiting; /* worker->swapped or worker->waiting */
    struct arena_worker *worker;
    const struct trace_request *trace;
    struct stats_request *stats;
    pthread_t thread;
    bool ended; /* by the thread's last act, under the lock: it can be joined */
    struct pages pages;
    uint64_t generated; /* tokens whose KV exists */
    uint64_t reread_ns; /* when its pages are read again, once it is cached */
};

/* Starts its life, in a thread of its own. -errno: nothing was started. */
int arena_request_begin(struct arena_worker *worker, uint64_t index) _must_check_;
/* Accepts NULL; returns NULL. The thread has been joined, the pages are gone. */
struct arena_request *arena_request_free(struct arena_request *request);

/* The thread that reads finished requests' pages again when their time has come. Takes the worker;
 * returns NULL, once no request is cached and none comes any more. */
void *arena_cache_main(void *worker);
