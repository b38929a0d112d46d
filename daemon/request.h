/* Requests of one session that the core has not answered, or whose grant is still being sent. */
#pragma once

#include "daemon/session.h"

enum request_type {
    REQUEST_LEASE,
    REQUEST_GROW,
    REQUEST_SHRINK,
    REQUEST_RELEASE,
    REQUEST_CANCEL,
    REQUEST_TYPE_MAX
};

struct request {
    uint64_t id; /* first: the key */
    enum request_type type;
    core_id lease; /* GROW, SHRINK, RELEASE */
    char label[];  /* LEASE */
};

/* -EEXIST when the id is in flight, -ENOMEM. `label` is copied; "" unless LEASE. */
int request_add(struct session *session, uint64_t id, enum request_type type, core_id lease,
    const char *label) _must_check_;
/* NULL when there is none. */
struct request *request_find(const struct session *session, uint64_t id);
void request_remove(struct session *session, struct request *request);
void request_remove_all(struct session *session);
