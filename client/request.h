/*
 * Requests: made, sent, answered. `lock` is held in every call but request_new and request_free.
 */
#pragma once

#include "client/session.h"

/* NULL without host memory. */
struct request *request_new(enum request_kind kind, enum request_owner owner);
/* With its parts. Accepts NULL; returns NULL. Doesn't touch the lease. */
struct request *request_free(struct request *request);

/*
 * Gives the request its id and sends it, or keeps it until the socket has room. It is the session's
 * from here on until it is answered; a note is gone once it is sent, perhaps before this returns.
 * Fails, and leaves the request to the caller, when the session is over or too many requests wait
 * for memory.
 */
int request_submit(struct gmb_session *session, struct request *request, struct outcome *outcome);

/* Sends what waits for room, in order. Broken sockets are left for the seat to find. */
void request_pump(struct gmb_session *session);

/* NULL when no such request waits for an answer. */
struct request *request_find(struct gmb_session *session, uint64_t id);

/* The answer is complete: hands the request to its owner. Its outcome is set before. */
void request_answer(struct gmb_session *session, struct request *request);

/*
 * Its waiter gives up: the request is withdrawn and the seat concludes it once the answer has come.
 * The lease of a grow is unsettled until then.
 */
void request_abandon(struct gmb_session *session, struct request *request);

/* Asks the broker to withdraw a request. INTERNAL without host memory; or the session is over. */
int request_cancel(struct gmb_session *session, uint64_t id, struct outcome *outcome);
