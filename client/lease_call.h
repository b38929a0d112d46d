/* A callback for a lease runs without the lock: whoever frees the lease meanwhile waits for it. */
#pragma once

#include "client/session.h"

/* Gives `lock` up, and takes it again. */
void lease_call_begin(
    struct gmb_session *session, struct lease_call *call, const struct gmb_lease *lease);
void lease_call_end(struct gmb_session *session, struct lease_call *call);
/* Waits until none runs in another thread for the lease (NULL: for any). `lock` is held, and given
 * up meanwhile. */
void lease_call_quiet(
    struct gmb_session *session, struct lease_call *call, const struct gmb_lease *lease);
