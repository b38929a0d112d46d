/* One question to the broker and its answer, for a thread that waits for it. */
#pragma once

#include "client/session.h"

/*
 * Sends the request, whose owner is the waiter, and waits for its answer, the session's timeout at
 * most. What came of it is in the request, which stays the caller's on success alone; after a
 * failure (the answer's, or TIMED_OUT, DISCONNECTED) it is gone. Without `lock`.
 */
int request_ask(struct gmb_session *session, struct request *request, struct outcome *outcome);
/* The same for what takes the broker up to `wait_ns`: that much longer. */
int request_ask_for(struct gmb_session *session, struct request *request, uint64_t wait_ns,
    struct outcome *outcome);
