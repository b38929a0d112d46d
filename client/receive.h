/* What the broker sends, taken in by the seat. */
#pragma once

#include "client/session.h"

/*
 * Takes in what has come, a burst at most, and concludes what nobody waits for. Called with `lock`
 * held and the seat taken; gives up the lock around driver calls. Ends the session when the broker
 * has gone or broke the protocol; every request is answered then.
 */
void session_receive(struct gmb_session *session);
