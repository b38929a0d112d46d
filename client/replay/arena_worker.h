/*
 * A worker whose requests keep their KV in the pages of one arena.
 *
 * Each request that runs has a thread, as the page functions are meant to be called: by many at
 * once and blocking. How many run at once is the worker's batch; the others wait, in a queue. What
 * a request's pages hold is checked before the request ends and once more when it is read again,
 * from wherever the broker had put it.
 */
#pragma once

#include "client/replay/worker.h"

/* A chunk is so many pages: with the chunk that is chosen by itself a page has 16 tokens. */
#define ARENA_PAGES_PER_CHUNK 8u

/* Requests that a worker runs at once, if nothing is said. Engines take 64 to 512; here each is a
 * thread, and two cores are to keep up with eight workers. */
#define ARENA_BATCH 64u
#define ARENA_BATCH_MAX 1024u

/* As worker_run(). */
int arena_worker_run(const struct worker_params *params);
