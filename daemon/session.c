/*
 * Input is read in bursts, so that nobody holds the loop, and not at all while many answers wait: a
 * peer that doesn't read its answers isn't listened to. Output is frames at once or in the bounded
 * queue; grants are produced one frame at a time, when it is empty and the socket takes them.
 */
#include "daemon/session.h"

#include <assert.h>
#include <errno.h>
#include <event2/event.h>
#include <string.h>
#include <sys/socket.h>

#include "base/log.h"
#include "daemon/arena_attach.h"
#include "daemon/arena_holder.h"
#include "daemon/arena_message.h"
#include "daemon/broker.h"
#include "daemon/grant.h"
#include "daemon/message.h"
#include "daemon/persist.h"
#include "daemon/pressure_message.h"
#include "daemon/request.h"
#include "daemon/resume.h"
#include "daemon/segment_request.h"

/* No more requests are read from a peer that has so many answers to read. */
#define QUEUE_FULL (LIMIT_SEND_QUEUE_FRAMES / 4)
/* When fds or their way to peers are short. */
#define RETRY_USEC 10000
/*
 * What the kernel may hold for one peer (it doubles the number). A socket counts as writable below
 * a quarter of it: that paces grants to a few frames, so that a peer that stops reading has a few
 * hundred fds on the way to it and not thousands. Welcome with 64 devices fits.
 */
#define SEND_BUFFER_BYTES (48 * 1024)

static const char *const states[] = {
    [SESSION_GREETING] = "greeting",
    [SESSION_RESUMING] = "resuming",
    [SESSION_ACTIVE] = "active",
    [SESSION_DOOMED] = "doomed",
};
static_assert(ARRAY_SIZE(states) == SESSION_STATE_MAX, "every state has a name");

const char *session_state_name(enum session_state state)
{
    return (unsigned) state < SESSION_STATE_MAX ? states[state] : "unknown";
}

static const bool transitions[SESSION_STATE_MAX][SESSION_STATE_MAX] = {
    [SESSION_GREETING] =
        {[SESSION_RESUMING] = true, [SESSION_ACTIVE] = true, [SESSION_DOOMED] = true},
    [SESSION_RESUMING] = {[SESSION_ACTIVE] = true, [SESSION_DOOMED] = true},
    [SESSION_ACTIVE] = {[SESSION_DOOMED] = true},
};

/* Takes it out of those that have said nothing yet. */
static void greeting_end(struct session *session)
{
    if (list_empty(&session->greeting_link))
        return;
    list_remove(&session->greeting_link);
    session->broker->ungreeted_count--;
}

static void session_set_state(struct session *session, enum session_state state)
{
    bool legal = transitions[session->state][state];

    assert(legal);
    (void) legal; /* without assertions */
    greeting_end(session);
    session->state = state;
}

static void retry_set(struct session *session)
{
    struct timeval delay = {.tv_usec = RETRY_USEC};

    /* A peer that keeps talking must not put it off. */
    if (!session->retry_set)
        session->retry_set = event_add(session->timer, &delay) == 0;
}

/* Input unless answers pile up, room when something waits. */
void session_watch(struct session *session)
{
    bool read = conn_queued(session->conn) < QUEUE_FULL;
    bool sends =
        !list_empty(&session->grants) || session->listener.devices != 0 || session->listener.advice;
    bool write = conn_wants_write(session->conn) ||
                 (sends && !session->retry && !conn_starved(session->conn));

    if (session->state == SESSION_DOOMED)
        return;
    if (read != session->reading) {
        (void) (read ? event_add(session->readable, NULL) : event_del(session->readable));
        session->reading = read;
    }
    if (write)
        (void) event_add(session->writable, NULL);
    if (session->state == SESSION_ACTIVE && (session->retry || conn_starved(session->conn)))
        retry_set(session);
}

static void session_pump(struct session *session)
{
    char reason[LIMIT_TEXT_BYTES] = "";
    int r;

    if (session->state == SESSION_DOOMED)
        return;
    r = grant_pump(session, reason);
    session->retry = r == -EAGAIN;
    if (r == -EPIPE || r == -ECONNRESET)
        session_doom(session, NULL);
    else if (r < 0 && r != -EAGAIN)
        session_doom(session, reason);
    pressure_resume(session);
}

void session_tell(struct session *session, unsigned *left)
{
    int r = 0;

    while (r == 0 && session->state == SESSION_ACTIVE && !session->blocked && !session->retry &&
           conn_queued(session->conn) == 0) {
        if (*left == 0) {
            pressure_resume(session);
            break;
        }
        r = pressure_event_send(session);
        *left -= r == 0;
    }
    if (r == -ENODATA)
        return;
    if (r == -EAGAIN)
        session->blocked = true;
    else if (r == -ENOBUFS || r == -ETOOMANYREFS)
        session->retry = true;
    else if (r < 0)
        session_doom(session, r == -EPIPE || r == -ECONNRESET ? NULL : strerror(-r));
    session_watch(session);
}

/* ------------------------------------------------------------------ events */

static void session_read(struct session *session)
{
    const uint8_t *bytes;
    size_t size, total = 0;
    int r;

    for (unsigned i = 0;
         i < LIMIT_READ_BURST && total < LIMIT_READ_BURST_BYTES &&
         session->state != SESSION_DOOMED && conn_queued(session->conn) < QUEUE_FULL;
         i++) {
        r = conn_receive_plain(session->conn, &bytes, &size);
        if (r == -EAGAIN)
            return;
        if (r == -EBADMSG) {
            session_doom(session, "it sent an oversized frame, or one with file descriptors");
        } else if (r < 0) {
            session_doom(session, r == -ECONNRESET ? NULL : strerror(-r));
        } else {
            message_handle(session, bytes, size);
            total += size;
        }
    }
}

static void on_readable(evutil_socket_t fd, short what, void *data)
{
    struct session *session = data;
    struct broker *broker = session->broker;

    (void) fd;
    (void) what;
    session_read(session);
    session_watch(session);
    broker_settle(broker);
}

static void on_writable(evutil_socket_t fd, short what, void *data)
{
    struct session *session = data;
    struct broker *broker = session->broker;
    int r = conn_flush(session->conn);

    (void) fd;
    session->blocked = session->blocked && (what & EV_WRITE) == 0;
    if (r < 0)
        session_doom(session, r == -EPIPE || r == -ECONNRESET ? NULL : strerror(-r));
    else
        session_pump(session);
    session_watch(session);
    broker_settle(broker);
}

static void on_timer(evutil_socket_t fd, short what, void *data)
{
    struct session *session = data;

    if (session->state == SESSION_GREETING || session->state == SESSION_RESUMING) {
        session_doom(session, session->state == SESSION_GREETING
                                  ? "it said no Hello in time"
                                  : "it didn't say in time what it has mapped");
        broker_settle(session->broker);
        return;
    }
    session->retry = session->retry_set = false;
    on_writable(fd, what, data);
}

/* ------------------------------------------------------------------ life */

static int session_start(struct session *session)
{
    struct event_base *base = session->broker->base;
    struct timeval deadline = {.tv_sec = LIMIT_HELLO_NS / NSEC_PER_SEC};
    int fd = conn_fd(session->conn), bytes = SEND_BUFFER_BYTES;

    (void) setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
    session->readable = event_new(base, fd, EV_READ | EV_PERSIST, on_readable, session);
    session->writable = event_new(base, fd, EV_WRITE, on_writable, session);
    session->timer = event_new(base, -1, 0, on_timer, session);
    if (session->readable == NULL || session->writable == NULL || session->timer == NULL ||
        event_add(session->readable, NULL) < 0 || event_add(session->timer, &deadline) < 0)
        return -ENOMEM;
    session->reading = true;
    return 0;
}

int session_new_consume(
    struct broker *broker, int fd, struct identity *identity, struct session **ret)
{
    _cleanup_identity_ struct identity owned_identity = *identity;
    struct session *session = calloc(1, sizeof(*session));
    int r;

    *identity = IDENTITY_NONE;
    if (session == NULL) {
        closer_give(broker->closer, fd);
        return -ENOMEM;
    }
    session->broker = broker;
    session->identity = owned_identity;
    owned_identity = IDENTITY_NONE;
    list_init(&session->doomed_link);
    list_init(&session->grants);
    list_init(&session->listener.link);
    list_init(&session->listener.pending_link);
    list_init(&session->link);
    list_append(&broker->sessions, &session->link);
    broker->session_count++;
    list_init(&session->greeting_link);
    list_append(&broker->greeting, &session->greeting_link);
    broker->ungreeted_count++;
    r = conn_new_consume(fd, &session->conn);
    if (r == 0)
        r = session_start(session);
    if (r < 0) {
        (void) session_free(session);
        return r;
    }
    *ret = session;
    return 0;
}

struct session *session_free(struct session *session)
{
    if (session == NULL)
        return NULL;
    greeting_end(session);
    pressure_leave(session);
    session->broker->session_count--;
    list_remove(&session->link);
    list_remove(&session->doomed_link);
    if (session->readable != NULL)
        event_free(session->readable);
    if (session->writable != NULL)
        event_free(session->writable);
    if (session->timer != NULL)
        event_free(session->timer);
    grant_remove_all(session);
    request_remove_all(session);
    resume_forget(session);
    closer_give(session->broker->closer, conn_free_take_fd(session->conn));
    identity_clear(&session->identity);
    free(session);
    return NULL;
}

void session_resume(struct session *session)
{
    struct timeval deadline = {.tv_sec = LIMIT_HELLO_NS / NSEC_PER_SEC};

    (void) event_add(session->timer, &deadline);
    session->client->session = session;
    session->resumed = true;
    session_set_state(session, SESSION_RESUMING);
}

void session_activate(struct session *session)
{
    (void) event_del(session->timer);
    session->client->session = session;
    session_set_state(session, SESSION_ACTIVE);
}

void session_forget(struct session *session, const struct client *client)
{
    if (session->client == client)
        session->client = NULL;
    if (session->guest == client)
        session->guest = NULL;
}

bool session_complaint_pass(struct session *session)
{
    struct broker *broker = session->broker;
    const struct client *client = session->client;
    const struct identity *identity = client != NULL ? &client->identity : &session->identity;
    const char *tenant = client != NULL ? client->tenant : "";
    uint32_t held;

    if (!complaint_pass(
            &broker->complaints, tenant, (uint32_t) identity->uid, clock_now(broker->clock), &held))
        return false;
    if (held > 0)
        log_info("%u more lines about peers of tenant %s (uid %u)", held,
            client != NULL ? tenant : "none yet", (unsigned) identity->uid);
    return true;
}

void session_doom(struct session *session, const char *reason)
{
    const struct identity *identity =
        session->client != NULL ? &session->client->identity : &session->identity;

    if (session->state == SESSION_DOOMED)
        return;
    if (reason != NULL && session_complaint_pass(session))
        log_info("dropped pid %d (uid %u, tenant %s, %s): %s", (int) identity->pid,
            (unsigned) identity->uid,
            session->client != NULL ? session->client->tenant : "none yet",
            session_state_name(session->state), reason);
    session_set_state(session, SESSION_DOOMED);
    (void) event_del(session->readable);
    (void) event_del(session->writable);
    (void) event_del(session->timer);
    list_append(&session->broker->doomed, &session->doomed_link);
}

/* ------------------------------------------------------------------ answers */

void session_grant_unasked(struct session *session, const struct core_action *action)
{
    if (session->state == SESSION_DOOMED)
        return;
    if (grant_add(session, action) < 0) {
        session_doom(session, "the broker has no host memory for its grant");
        return;
    }
    session_pump(session);
    session_watch(session);
}

static void granted(
    struct session *session, const struct core_action *action, struct request *request)
{
    bool fill = request->type == REQUEST_FILL; /* it is gone once all is sent */
    struct arena *arena;

    if (request->type == REQUEST_SEGMENT && !segment_granted(session, action, request))
        return;
    if ((request->type == REQUEST_LEASE || request->type == REQUEST_GANG) &&
        request->label[0] != '\0') {
        client_label_set(session->client, action->grant.lease, request->label);
        persist_lease(session->broker, action->grant.lease);
    }
    session_grant_unasked(session, action);
    arena = fill ? arena_find(session->broker, action->grant.lease) : NULL;
    if (arena != NULL)
        arena_spread(arena, action->client, action);
}

void session_answer(struct session *session, const struct core_action *action)
{
    struct request *request = request_find(session, action->request);

    if (session->state == SESSION_DOOMED || request == NULL)
        return;
    if (action->type == CORE_ACTION_GRANT && request->type == REQUEST_ARENA) {
        arena_granted(session, action, request);
    } else if (action->type == CORE_ACTION_GRANT && request->type == REQUEST_ATTACH) {
        arena_attached(session, action, request);
    } else if (action->type == CORE_ACTION_GRANT) {
        granted(session, action, request);
    } else if (action->type == CORE_ACTION_DONE) {
        if (request->type == REQUEST_RELEASE)
            client_label_set(session->client, request->lease, "");
        if (request->type == REQUEST_RELEASE || request->type == REQUEST_RETURN)
            arena_done(session, request);
        if (request->type == REQUEST_RELEASE)
            segments_note(
                session->broker, client_find(session->broker, action->client)->tenant_index);
        request_remove(session, request);
        message_done(session, action->request);
    } else {
        if (request->type == REQUEST_SEGMENT)
            segments_note(
                session->broker, client_find(session->broker, action->client)->tenant_index);
        request_remove(session, request);
        message_refuse(session, action->request, action->refuse.status, action->refuse.limit,
            action->refuse.requested_bytes, action->refuse.available_bytes, action->refuse.text);
    }
    session_watch(session);
}
