/* Chunks as they arrive: checked, imported, mapped; not yet accessible. */
#pragma once

#include "client/session.h"

/*
 * Takes one part of a grant for `request`; answers the request with the last part. Takes of the fds
 * what it uses. Called by the seat with `lock` held, which it gives up around driver calls. A
 * failure of the driver is the request's outcome; what is returned is a breach of the protocol
 * (PROTOCOL).
 */
int grant_take(struct gmb_session *session, struct request *request, const Gmb__Grant *grant,
    struct fdset *fds, struct outcome *why);
