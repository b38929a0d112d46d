/* The seat of the reader: waiting for whatever the session waits for. */
#pragma once

#include "client/session.h"

/*
 * Waits, until `deadline_ns` at the latest, for something to change: an answer to anybody, the end
 * of the session, a wake-up. Reads the socket if nobody does. To be called in a loop around the
 * caller's own condition, with `lock` held, which it gives up meanwhile. Returns at once when the
 * session is over and nothing is left to read.
 */
void session_step(struct gmb_session *session, uint64_t deadline_ns);

/*
 * Blocks until the request, which is the calling thread's, is answered. When its deadline passes
 * before it is abandoned, and no longer the caller's: TIMED_OUT. Without `lock`.
 */
int request_await(struct gmb_session *session, struct request *request, struct outcome *outcome);

/* Makes whoever is in session_step() return. Any thread; `lock` needn't be held. */
void session_wake(struct gmb_session *session);

/* Makes gmb_fd() readable, for callbacks that wait or a session that is over. Any thread. */
void session_notify(struct gmb_session *session);
