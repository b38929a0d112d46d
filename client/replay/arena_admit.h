/* How an arena worker's request that may run gets its memory, and the order in which they do. */
#pragma once

#include "client/replay/arena_request.h"

/* Waits until the request has the pages of its prompt. OK; REFUSED, noted with the limit's name; or
 * FAILED. */
enum pages_outcome arena_admit(struct arena_request *request);

/* A request that was swapped out waits for its turn to ask for memory. False when the time is over
 * or the worker is to stop; leave in any case. */
bool arena_turn_enter(struct arena_request *request, uint64_t until_ns);
void arena_turn_leave(struct arena_request *request);

/* Behind those of its priority and above. The lock is held. */
void arena_queue_enter(struct list *queue, struct arena_request *request);
/* Something changed for whoever is the first of its queue; or for everybody that waits there, as an
 * advice or the end does. The worker's lock is held. */
void arena_turns_wake(struct arena_worker *worker);
void arena_turns_wake_all(struct arena_worker *worker);

/* The request ends refused, by what refused it last. Its pages are given back. */
enum pages_outcome arena_end_refused(struct arena_request *request, const char *limit);
/* Whether its tenant stays within its guarantee with so many pages more: else it isn't entitled. */
void arena_check_entitled(struct arena_request *request, size_t count);
void arena_wait_begin(struct arena_request *request, enum phase phase);
void arena_wait_end(struct arena_request *request, uint64_t since_ns);
