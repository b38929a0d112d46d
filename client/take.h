/* Requests for memory on their way from the caller's parameters to the broker. */
#pragma once

#include "client/session.h"

/*
 * A request for a new lease, with its empty lease, not sent yet. INVALID, NOT_FOUND (device), GPU,
 * INTERNAL; nothing is held then. Without `lock`.
 */
int take_prepare(struct gmb_session *session, const struct gmb_lease_params *params,
    struct request **ret, struct outcome *outcome);
/* Who hears of the end of a request. */
struct audience {
    enum request_owner owner;
    gmb_lease_fn done;
    void *user;
};

/* The thread that asks. */
extern const struct audience take_waiter;

struct conclusion;

/* A request of that kind for a lease, not sent yet. INTERNAL. */
int take_request(enum request_kind kind, const struct audience *audience, struct gmb_lease *lease,
    uint64_t bytes, uint64_t wait_ns, struct request **ret, struct outcome *outcome);
/* Sends a request for a new lease. On failure both are gone. Without `lock`. */
int take_submit_consume(struct gmb_session *session, struct request *request, uint64_t *ret_id,
    struct outcome *outcome);
/* Blocks until the request is answered, and concludes it. */
int take_finish_consume(
    struct gmb_session *session, struct request *request, struct conclusion *ret);
/* What the broker may take to create the request's chunks. */
uint64_t take_creation_ns(const struct request *request);
