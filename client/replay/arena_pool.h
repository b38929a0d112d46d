/*
 * The gate of an arena worker, where requests that have arrived wait for their place in the batch
 * or for the end of a pause, in the order of priority and then of arrival; and the threads behind
 * it, one for each place. A request that waits there has nothing and is no thread.
 */
#pragma once

#include "client/replay/arena_request.h"

/* So often the gate is looked at if nobody wakes the main thread; advice does. */
#define ARENA_POOL_LOOK_NS NSEC_PER_SEC

/* Starts the threads. -errno: those that were started wait for the end. */
int arena_pool_start(struct arena_worker *worker) _must_check_;
/* Waits for them: no request is left, or the worker is to stop. */
void arena_pool_end(struct arena_worker *worker);

/* The request has arrived. It ends by itself: see arena_request_end(). */
void arena_pool_enter(struct arena_request *request);
/* One that passed the gate doesn't run any more: another one may. */
void arena_pool_leave(struct arena_worker *worker);
/* Whether requests have arrived and not ended, or have ended and not been looked at. */
bool arena_pool_busy(struct arena_worker *worker);
/* Ends requests at the gate that are no longer served or whose time is over, and all of them when
 * the worker is to stop. The main thread's. */
void arena_pool_look(struct arena_worker *worker);
/* What the ladder asks for has changed. The worker's lock is held. */
void arena_pool_wake(struct arena_worker *worker);
