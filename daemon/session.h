/*
 * One connection on client.sock, from accept to its end.
 *
 *   GREETING  accepted, identity read; the one message allowed is Hello, within LIMIT_HELLO_NS
 *   RESUMING  greeted as a client that was known: `client` is set; it says what it has mapped
 *   ACTIVE    greeted: `client` is set, requests are taken
 *   DOOMED    to be ended when the running step is over; reads and sends nothing
 *
 * A peer that breaks the protocol, sends fds, or doesn't read what it asked for is dropped with a
 * reason in the log. No other peer notices.
 */
#pragma once

#include "base/list.h"
#include "daemon/core/core.h"
#include "daemon/identity.h"
#include "daemon/pressure.h"
#include "proto/conn.h"

struct broker;
struct client;
struct event;

enum session_state {
    SESSION_GREETING,
    SESSION_RESUMING,
    SESSION_ACTIVE,
    SESSION_DOOMED,
    SESSION_STATE_MAX
};

struct session {
    struct list link;          /* broker.sessions */
    struct list greeting_link; /* broker.greeting, while GREETING */
    struct list doomed_link;   /* broker.doomed */
    struct broker *broker;
    struct conn *conn;
    enum session_state state;
    struct identity identity; /* moves to the client when it is greeted */
    struct client *client;
    struct client *guest; /* of the same process, in its tenant's share group; NULL: none */
    struct event *readable, *writable;
    struct event
        *timer; /* GREETING, RESUMING: the deadline; ACTIVE: to try again what resources held up */
    void *requests; /* tsearch(3) tree of struct request, in flight, by id */
    uint32_t request_count;
    uint32_t segment_waiters; /* of these, that wait for a segment */
    struct list grants;       /* struct grant.link: being sent, in order */
    void *named;              /* RESUMING: tsearch(3) tree of struct named, leases that it has */
    bool resumed;             /* its requests may be ones that were carried out before */
    uint64_t failed;          /* devices that it knows to be out of service, a bit each */
    struct listener listener;
    bool reading, retry;
    bool retry_set; /* `timer` is, for that */
    bool blocked;   /* the next grant or event waits for the socket to be writable */
};

const char *session_state_name(enum session_state state);

/*
 * Starts to serve a connected socket; takes `fd` and `identity` over, on failure too. -errno.
 */
int session_new_consume(
    struct broker *broker, int fd, struct identity *identity, struct session **ret) _must_check_;
/* Closes the connection at once; tells the core nothing. Accepts NULL, returns NULL. */
struct session *session_free(struct session *session);

/* GREETING, RESUMING → ACTIVE: `client` is set. */
void session_activate(struct session *session);
/* GREETING → RESUMING: `client` is set. */
void session_resume(struct session *session);
/* Marks it to be ended by broker_settle(); `reason` is logged unless NULL. Idempotent. */
void session_doom(struct session *session, const char *reason);
/* Watches for what it waits for now. */
void session_watch(struct session *session);
/* One of its clients goes. */
void session_forget(struct session *session, const struct client *client);
/* Whether a line about what this peer did wrong may be written now. */
bool session_complaint_pass(struct session *session);

/* GRANT, DONE or REFUSE for one of its requests. */
void session_answer(struct session *session, const struct core_action *action);
/* Sends events that wait for it, as far as the socket takes them and at most `*left` frames, which
 * it counts down. */
void session_tell(struct session *session, unsigned *left);
/* Sends chunks that nobody asked for. */
void session_grant_unasked(struct session *session, const struct core_action *action);
