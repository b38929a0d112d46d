/*
 * A broker that goes away and comes back (docs/restart.md). Mappings never depended on it; this
 * finds it again and says what is mapped.
 *
 *     READY → AWAY → GREETING → RESUMING → READY
 *
 * from each of which the end of the connection leads back to AWAY, and a broker that can't be gone
 * on with to OVER. Everything here is the seat's, with `lock` held.
 *
 * While AWAY the messages that give something back are answered on the spot: what is not named when
 * the session is resumed is given back by that. Requests for memory are kept and sent again if the
 * session is patient, else answered DISCONNECTED.
 */
#pragma once

#include "client/session.h"

/* The connection has ended, for this reason: AWAY where it can be made again, else OVER. Gives up
 * the lock around driver calls. */
void session_break(struct gmb_session *session, const struct outcome *why);
/* The session is over, whatever it was: everything that waits is answered with `why`. */
void session_end(struct gmb_session *session, const struct outcome *why);

/* Notes what a Welcome says of resuming. */
void resume_token_take(struct gmb_session *session, const Gmb__Welcome *welcome);
/* Sets the timer to what is due next. */
void resume_arm(struct gmb_session *session);
/* What is due by the clock: a connection is tried or given up, requests have waited long enough. */
void resume_step(struct gmb_session *session);
/* One message while GREETING or RESUMING. Nonzero, as `why`, ends the connection. */
int resume_take(struct gmb_session *session, const Gmb__BrokerMessage *message, struct fdset *fds,
    struct outcome *why);

/* 0 while the broker can be asked or the session is patient; else why not. */
int session_usable(const struct gmb_session *session, struct outcome *outcome);
