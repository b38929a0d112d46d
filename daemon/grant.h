/*
 * Sending of grants: chunks are exported as the peer reads, so that a lease of 65,536 chunks has no
 * more fds on the way than one of 128.
 */
#pragma once

#include "daemon/session.h"

struct grant {
    struct list link; /* session.grants */
    uint64_t request;
    core_id lease;
    uint32_t next, end, total; /* chunks still to be sent are [next, end) */
    bool read_only;            /* chunks of a segment, for a reader of it */
    bool last; /* its request is over with it; not so with the first parts of a gang */
};

/* Queues it behind the others of the session; a request of the broker's own is sent as an event.
 * -ENOMEM. */
int grant_add(struct session *session, const struct core_action *action) _must_check_;
/* Whether chunks of the lease are still to be sent. */
bool grant_pending(const struct session *session, core_id lease);
/* Forgets what is still to be sent of the lease. */
void grant_remove_lease(struct session *session, core_id lease);
void grant_remove_all(struct session *session);

/*
 * Sends one frame of the first grant if nothing waits before it. 0 when there is nothing to do or
 * something went out; -EAGAIN when fds are short and it is to be tried again a little later; other
 * -errno when the session can't go on, with a sentence in `reason`.
 */
int grant_pump(struct session *session, char reason[LIMIT_TEXT_BYTES]) _must_check_;
