/* Segments that are in quarantine: noted until whoever dispatches calls for them. */
#pragma once

#include "client/session.h"

/* An event has come. One for a lease that isn't there has crossed its release. By the seat, with
 * `lock` held. */
int quarantine_take(
    struct gmb_session *session, const Gmb__SegmentQuarantined *message, struct outcome *why);

/* Whether quarantine_run() has something to do. `lock` is held. */
bool quarantine_wait(const struct gmb_session *session);
/* Calls for each segment once, and tells how often. With `lock` held, which it gives up around each
 * call. */
int quarantine_run(struct gmb_session *session);

/* A lease is free of calls again, or there is something new: whoever dispatches hears of it. `lock`
 * is held. */
void quarantine_look(struct gmb_session *session);

/* Nobody is called for the lease. `lock` is held. */
void quarantine_forget(struct gmb_lease *lease);
