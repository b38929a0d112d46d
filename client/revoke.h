/* Leases that the broker asks back: noted until whoever dispatches calls for them. */
#pragma once

#include "client/session.h"

/* An event has come. One for a lease that isn't there has crossed its release. By the seat, with
 * `lock` held. */
int revoke_take(struct gmb_session *session, const Gmb__LeaseRevoke *message, struct outcome *why);

/* Whether revoke_run() has something to do. `lock` is held. */
bool revoke_wait(const struct gmb_session *session);
/* Calls for each lease that is asked back, and tells how often. With `lock` held, which it gives up
 * around each call. */
int revoke_run(struct gmb_session *session);

/* A lease is free of calls again, or there is something new: whoever dispatches hears of it. `lock`
 * is held. */
void revoke_look(struct gmb_session *session);

/* Nobody is called for what was asked of the lease. `lock` is held. */
void revoke_forget(struct gmb_lease *lease);
