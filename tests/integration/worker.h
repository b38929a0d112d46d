/* A worker of its own process with pages in an arena (pages.h), told what to do over a pipe. */
#pragma once

#include "tests/integration/pages.h"

struct worker {
    pid_t pid;
    int to, from;
};

/* Starts it; it has `count` pages of `page_bytes` when this returns. */
void worker_start(struct worker *worker, const struct harness *harness, uint64_t page_bytes,
    uint64_t chunk_bytes, uint32_t count);
/* Pins, waits for and compares every page; false when it died or found other bytes. */
bool worker_check(struct worker *worker);
/* Pages that lie in the host tier now. */
uint64_t worker_evicted(struct worker *worker);
/* Ends it by a signal, or, with 0, lets it end by itself, which must succeed. */
void worker_end(struct worker *worker, int signal);
