/*
 * What clients say about segments, and who of them waits: until another process has written one, or
 * until it is back from the host tier.
 */
#pragma once

#include "daemon/request.h"
#include "daemon/segment.h"
#include "proto/gmb.pb-c.h"

/* A SegmentRequest that the core hasn't got yet. It belongs to its session's request. */
struct segment_waiter {
    struct list link; /* space.unserved, or segment.waiters */
    struct heap_node deadline;
    struct segment_space *space;
    struct segment *segment; /* that it waits for; NULL: it is to be looked at */
    struct session *session;
    uint64_t id;     /* of the request */
    core_id client;  /* for whom: the session's client, or its guest in the group */
    uint32_t tenant; /* that it counts for: the session's */
    uint32_t device;
    uint64_t bytes, chunk_bytes; /* bytes 0: it only opens */
    uint64_t wait_ns;
    char name[LIMIT_NAME_BYTES + 1];
};

void on_segment_request(struct session *session, const Gmb__ClientMessage *message);
void on_segment_seal(struct session *session, const Gmb__ClientMessage *message);
void on_segment_remove(struct session *session, const Gmb__ClientMessage *message);
/* A Cancel of a SegmentRequest; false when it is for something else. */
bool segment_cancel_take(struct session *session, const Gmb__ClientMessage *message);

/* The core has granted a SegmentRequest, or a part of what it takes. True when the chunks are to be
 * sent now; those of a new one are when it is written down. */
bool segment_granted(
    struct session *session, const struct core_action *action, struct request *request);
/* … which it is, or can't be. */
void segment_grant_send(const struct segment *segment);
/* Whether chunks of the lease that are sent now are to be read alone. */
bool segment_read_only(const struct session *session, core_id lease);
/* The client of the session's that holds the lease: its own, or its guest in a group. */
core_id segment_holder(const struct session *session, core_id lease);
/* A segment that the session's client or guest holds; NULL when the lease is none. */
struct segment *segment_held(const struct session *session, core_id lease);
/* The sealing has ended: for -errno `text` says why. */
void segment_seal_answer(struct segment *segment, int error, const char *text);
/* … as its writer has let go of it. */
void segment_seal_abandon(struct segment *segment);

/* Accepts NULL, returns NULL. */
struct segment_waiter *segment_waiter_free(struct segment_waiter *waiter);
/* Looks what can be done for those who wait. Steps the core. */
void segment_waiters_serve(struct segment_space *space);
/* Those who wait for that one are to be looked at: something has become of it, or it goes. */
void segment_waiters_wake(struct segment *segment);
/* Ends the wait of those who wait for that one, as the core refused its memory; for lack of time,
 * of those whose time is over. */
void segment_waiters_refuse(struct segment *segment, const struct core_action *refusal);
/* Ends the wait of those whose time is over. */
void segment_waiters_expire(struct segments *segments, uint64_t now_ns);
/* Whether anybody waits for the segment, or may, as who waits hasn't been looked at yet. */
bool segment_awaited(const struct segment *segment);
