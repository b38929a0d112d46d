/* Requests for memory on their way from the caller's parameters to the broker. */
#pragma once

#include "client/session.h"

/*
 * A request for a new lease, with its empty lease, not sent yet. INVALID, NOT_FOUND (device), GPU,
 * INTERNAL; nothing is held then. Without `lock`.
 */
int take_prepare(struct gmb_session *session, const struct gmb_lease_params *params,
    struct request **ret, struct outcome *outcome);
/* What the broker may take to create the request's chunks. */
uint64_t take_creation_ns(const struct request *request);
