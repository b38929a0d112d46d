/* Requests of one session that the core has not answered, or whose grant is still being sent. */
#pragma once

#include "daemon/session.h"

enum request_type {
    REQUEST_LEASE,
    REQUEST_GROW,
    REQUEST_SHRINK,
    REQUEST_RELEASE,
    REQUEST_CANCEL,
    REQUEST_ARENA,
    REQUEST_FILL,
    REQUEST_RETURN,
    REQUEST_GANG,
    REQUEST_ATTACH,
    REQUEST_SEGMENT,
    REQUEST_SEAL,
    REQUEST_TYPE_MAX
};

struct request {
    uint64_t id; /* first: the key */
    enum request_type type;
    core_id lease;                 /* GROW, SHRINK, RELEASE, FILL, RETURN, SEAL */
    struct arena *arena;           /* ARENA: owned until it is granted */
    struct arena_holder *holder;   /* ATTACH: owned until it is granted */
    struct segment_waiter *waiter; /* SEGMENT: owned until the core has it */
    core_id client;                /* SEGMENT: on whose behalf */
    uint32_t first, count;         /* RETURN */
    char label[];                  /* LEASE, GANG, ARENA */
};

/*
 * Adds a copy of `like` with this label ("" where it has none). On success it owns the arena or
 * holder. -EEXIST when the id is in flight, -ENOMEM.
 */
int request_add(
    struct session *session, const struct request *like, const char *label) _must_check_;
/* NULL when there is none. */
struct request *request_find(const struct session *session, uint64_t id);
void request_remove(struct session *session, struct request *request);
void request_remove_all(struct session *session);

/* Registers the request, which no core answers. False after an answer; the caller has what the
 * request would own. */
bool request_register(struct session *session, const struct request *like, const char *label);
/* Registers the request and lets the core take the event on its behalf, as the session's client
 * unless the event names one; else answers why not. The arena or holder in it, if there is one, is
 * consumed. */
void request_submit(struct session *session, struct core_event *event, const struct request *like,
    const char *label);
