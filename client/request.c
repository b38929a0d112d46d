/*
 * The table of requests is a list in the order of sending. The broker answers most of them in that
 * order, so a search looks at the first few.
 *
 * Frames that the socket has no room for stay here, unsent, not in the connection's queue alone:
 * what gives memory back must not be lost to a full queue. So the table is the one bound.
 */
#include "client/request.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "client/gang.h"
#include "client/pressure.h"
#include "client/resume.h"
#include "client/segment.h"
#include "client/wait.h"

struct request *request_new(enum request_kind kind, enum request_owner owner)
{
    struct request *request = calloc(1, sizeof(*request));

    if (request == NULL)
        return NULL;
    list_init(&request->link);
    request->kind = kind;
    request->owner = owner;
    request->table_fd = request->event_fd = -1;
    return request;
}

struct request *request_free(struct request *request)
{
    if (request != NULL) {
        list_remove(&request->link);
        close_fd(&request->table_fd);
        close_fd(&request->event_fd);
        free(request->pages);
        for (size_t i = 0; i < request->part_count; i++)
            (void) request_free(request->parts[i]);
        free(request->parts);
        free(request);
    }
    return NULL;
}

static int lease_request_send(struct conn *conn, struct request *request)
{
    Gmb__ClientMessage message = GMB__CLIENT_MESSAGE__INIT;
    Gmb__LeaseRequest body;

    gmb__lease_request__init(&body);
    message.id = request->id;
    message.body_case = GMB__CLIENT_MESSAGE__BODY_LEASE_REQUEST;
    message.lease_request = &body;
    body.device.data = request->lease->device->uuid.bytes;
    body.device.len = UUID_BYTES;
    body.bytes = request->bytes;
    body.chunk_bytes = request->chunk_bytes;
    body.wait_ns = request->wait_ns;
    body.label = request->label;
    body.purpose = GMB__PURPOSE__PURPOSE_WORKSPACE;
    return conn_send_consume(conn, &message.base, NULL);
}

static int arena_request_send(struct conn *conn, struct request *request)
{
    Gmb__ClientMessage message = GMB__CLIENT_MESSAGE__INIT;
    Gmb__ArenaRequest body;

    gmb__arena_request__init(&body);
    message.id = request->id;
    message.body_case = GMB__CLIENT_MESSAGE__BODY_ARENA_REQUEST;
    message.arena_request = &body;
    body.device.data = (uint8_t *) (uintptr_t) request->device->uuid.bytes;
    body.device.len = UUID_BYTES;
    body.page_bytes = request->page_bytes;
    body.chunk_bytes = request->chunk_bytes;
    body.max_bytes = request->max_bytes;
    body.element = request->element;
    body.shared = request->shared;
    body.label = request->label;
    return conn_send_consume(conn, &message.base, NULL);
}

static int arena_attach_send(struct conn *conn, struct request *request)
{
    Gmb__ClientMessage message = GMB__CLIENT_MESSAGE__INIT;
    Gmb__ArenaAttach body;

    message.id = request->id;
    message.body_case = GMB__CLIENT_MESSAGE__BODY_ARENA_ATTACH;
    gmb__arena_attach__init(&body);
    message.arena_attach = &body;
    body.name = request->label;
    return conn_send_consume(conn, &message.base, NULL);
}

static int arena_ready_send(struct conn *conn, struct request *request)
{
    Gmb__ClientMessage message = GMB__CLIENT_MESSAGE__INIT;
    Gmb__ArenaReady body = GMB__ARENA_READY__INIT;

    message.body_case = GMB__CLIENT_MESSAGE__BODY_ARENA_READY;
    message.arena_ready = &body;
    body.lease = request->target;
    return conn_send_consume(conn, &message.base, NULL);
}

/* What is said of a run of chunks or of pages of an arena. */
static int arena_transmit(struct conn *conn, struct request *request)
{
    Gmb__ClientMessage message = GMB__CLIENT_MESSAGE__INIT;
    Gmb__ArenaFill fill = GMB__ARENA_FILL__INIT;
    Gmb__ArenaReturn giving = GMB__ARENA_RETURN__INIT;
    Gmb__ArenaMapped mapped = GMB__ARENA_MAPPED__INIT;
    Gmb__PageWant want = GMB__PAGE_WANT__INIT;

    message.id = request->id;
    if (request->kind == REQUEST_FILL) {
        fill.lease = request->lease->id;
        fill.first = request->first_chunk;
        fill.count = (uint32_t) (request->bytes / request->lease->chunk_bytes);
        fill.wait_ns = request->wait_ns;
        fill.urgent = request->urgent;
        message.body_case = GMB__CLIENT_MESSAGE__BODY_ARENA_FILL;
        message.arena_fill = &fill;
    } else if (request->kind == REQUEST_RETURN) {
        giving.lease = request->target;
        giving.first = request->run_first;
        giving.count = request->run_count;
        message.body_case = GMB__CLIENT_MESSAGE__BODY_ARENA_RETURN;
        message.arena_return = &giving;
    } else if (request->kind == REQUEST_MAPPED) {
        mapped.lease = request->target;
        mapped.first = request->run_first;
        mapped.count = request->run_count;
        message.body_case = GMB__CLIENT_MESSAGE__BODY_ARENA_MAPPED;
        message.arena_mapped = &mapped;
    } else {
        want.lease = request->target;
        want.n_pages = request->page_count;
        want.pages = request->pages;
        message.body_case = GMB__CLIENT_MESSAGE__BODY_PAGE_WANT;
        message.page_want = &want;
    }
    return conn_send_consume(conn, &message.base, NULL);
}

static int request_transmit(struct conn *conn, struct request *request)
{
    Gmb__ClientMessage message = GMB__CLIENT_MESSAGE__INIT;
    Gmb__LeaseGrow grow = GMB__LEASE_GROW__INIT;
    Gmb__LeaseShrink shrink = GMB__LEASE_SHRINK__INIT;
    Gmb__LeaseRelease release = GMB__LEASE_RELEASE__INIT;
    Gmb__Cancel cancel = GMB__CANCEL__INIT;

    message.id = request->id;
    switch (request->kind) {
    case REQUEST_LEASE:
        return lease_request_send(conn, request);
    case REQUEST_GROW:
        grow.lease = request->lease->id;
        grow.bytes = request->bytes;
        grow.wait_ns = request->wait_ns;
        message.body_case = GMB__CLIENT_MESSAGE__BODY_LEASE_GROW;
        message.lease_grow = &grow;
        break;
    case REQUEST_SHRINK:
        shrink.lease = request->target;
        shrink.keep_chunks = request->keep_chunks;
        message.body_case = GMB__CLIENT_MESSAGE__BODY_LEASE_SHRINK;
        message.lease_shrink = &shrink;
        break;
    case REQUEST_RELEASE:
        release.lease = request->target;
        message.body_case = GMB__CLIENT_MESSAGE__BODY_LEASE_RELEASE;
        message.lease_release = &release;
        break;
    case REQUEST_CANCEL:
        cancel.request = request->target;
        message.body_case = GMB__CLIENT_MESSAGE__BODY_CANCEL;
        message.cancel = &cancel;
        break;
    case REQUEST_ARENA:
        return arena_request_send(conn, request);
    case REQUEST_GANG:
        return gang_transmit(conn, request);
    case REQUEST_ATTACH:
        return arena_attach_send(conn, request);
    case REQUEST_READY:
        return arena_ready_send(conn, request);
    case REQUEST_FILL:
    case REQUEST_RETURN:
    case REQUEST_MAPPED:
    case REQUEST_WANT:
        return arena_transmit(conn, request);
    case REQUEST_SEGMENT:
    case REQUEST_SEAL:
    case REQUEST_REMOVE:
        return segment_transmit(conn, request);
    case REQUEST_SUBSCRIBE:
    case REQUEST_WATCH:
    case REQUEST_UNWATCH:
    case REQUEST_ACK:
        return pressure_transmit(conn, request);
    case REQUEST_MAX:
        break;
    }
    return conn_send_consume(conn, &message.base, NULL);
}

/* Lets whoever polls the socket know whether to wait for room. */
static void watch_write(struct gmb_session *session)
{
    bool wanted =
        session->conn != NULL && ((session->phase == SESSION_READY && session->unsent > 0) ||
                                     conn_wants_write(session->conn));
    struct epoll_event event = {
        .events = (uint32_t) EPOLLIN | (wanted ? (uint32_t) EPOLLOUT : 0),
    };

    if (wanted == session->watching_write || session->conn == NULL)
        return;
    session->watching_write = wanted;
    (void) epoll_ctl(session->epoll_fd, EPOLL_CTL_MOD, conn_fd(session->conn), &event);
    if (wanted)
        session_wake(session);
}

void request_pump(struct gmb_session *session)
{
    int r = 0;

    if (session->conn == NULL)
        return;
    if (conn_wants_write(session->conn))
        r = conn_flush(session->conn);
    if (r == 0 && session->phase == SESSION_READY && session->unsent > 0) {
        list_for_each_safe(request, &session->pending, struct request, link)
        {
            if (request->sent)
                continue;
            /* The broker's deadline is the one that began with the first sending. */
            if (request->again && request->expires_ns != CLOCK_NEVER)
                request->wait_ns = sub_saturate(request->expires_ns, clock_now(&clock_monotonic));
            r = request_transmit(session->conn, request);
            if (r < 0)
                break;
            request->sent = true;
            session->unsent--;
            if (request_is_note(request))
                request_free(request);
        }
    }
    /* The seat finds the end of the connection behind whatever the broker still sent. */
    if (r < 0 && r != -EXFULL)
        (void) shutdown(conn_fd(session->conn), SHUT_WR);
    watch_write(session);
}

/*
 * While there is no connection: what gives something back, or withdraws, is settled by what the
 * broker will be told is held.
 */
static void submit_away(struct gmb_session *session, struct request *request)
{
    struct request *target =
        request->kind == REQUEST_CANCEL ? request_find(session, request->target) : NULL;

    if (target != NULL) {
        (void) outcome_set(&target->outcome, GMB_E_CANCELLED,
            "the request was withdrawn while the broker is away");
        request_answer(session, target);
        session_wake(session); /* whoever waits for the broker is to call back */
    }
    request->sent = true;
    request_answer(session, request);
}

static int session_broken(const struct gmb_session *session, struct outcome *outcome)
{
    *outcome = session->broken;
    return outcome->code;
}

static int submit_check(
    struct gmb_session *session, struct request *request, struct outcome *outcome)
{
    int r = 0;

    if (session->phase == SESSION_OVER)
        return session_broken(session, outcome);
    if (request_resumes(request) || request_is_note(request))
        r = session_usable(session, outcome);
    else if (!request_settles(request) && session->phase != SESSION_READY)
        r = session_broken(session, outcome);
    if (r < 0 || !request_takes_memory(request))
        return r;
    if (session->leaving)
        return outcome_set(outcome, GMB_E_CANCELLED, "the session is being disconnected");
    if (session->phase != SESSION_READY && request->wait_ns == GMB_WAIT_NONE)
        return session_broken(session, outcome);
    if (session->waiting >= LIMIT_REQUESTS_PER_CLIENT) {
        outcome_set(
            outcome, GMB_E_EXHAUSTED, "%u requests of this session wait already", session->waiting);
        outcome->limit = GMB_LIMIT_REQUESTS;
        return outcome->code;
    }
    session->waiting++;
    request->expires_ns = add_saturate(clock_now(&clock_monotonic), request->wait_ns);
    return 0;
}

int request_submit(struct gmb_session *session, struct request *request, struct outcome *outcome)
{
    int r = submit_check(session, request, outcome);

    if (r < 0)
        return r;
    if (request_is_note(request)) {
        /* A broker that comes back is told what is mapped, and of every page that still waits. */
        if (session->phase != SESSION_READY) {
            (void) request_free(request);
            return 0;
        }
    } else {
        request->id = ++session->last_id;
    }
    /* What waits is sent behind Resumed: until then it is withdrawn without a word. */
    if ((session->phase == SESSION_AWAY && !request_resumes(request)) ||
        (session->phase == SESSION_GREETING && request->kind == REQUEST_CANCEL)) {
        submit_away(session, request);
        return 0;
    }
    list_append(&session->pending, &request->link);
    session->unsent++;
    if (session->phase == SESSION_READY)
        request_pump(session);
    else
        resume_arm(session);
    return 0;
}

struct request *request_find(struct gmb_session *session, uint64_t id)
{
    list_for_each(request, &session->pending, struct request, link)
    {
        if (request->id == id && !request_is_note(request))
            return request;
    }
    return NULL;
}

void request_answer(struct gmb_session *session, struct request *request)
{
    list_remove(&request->link);
    if (!request->sent)
        session->unsent--;
    if (request_takes_memory(request))
        session->waiting--;
    request->answered = true;
    switch (request->owner) {
    case REQUEST_OWNER_WAITER:
        break;
    case REQUEST_OWNER_CALLBACK:
        list_append(&session->answered, &request->link);
        session_notify(session);
        break;
    case REQUEST_OWNER_NOBODY:
    case REQUEST_OWNER_ARENA:
        list_append(&session->settling, &request->link);
        break;
    case REQUEST_OWNER_MAX:
        break;
    }
}

int request_cancel(struct gmb_session *session, uint64_t id, struct outcome *outcome)
{
    struct request *cancel = request_new(REQUEST_CANCEL, REQUEST_OWNER_NOBODY);
    struct request *target = request_find(session, id);
    int r;

    if (cancel == NULL)
        return outcome_set(outcome, GMB_E_INTERNAL, "no host memory to cancel a request");
    cancel->target = id;
    if (target != NULL)
        target->withdrawn = true;
    r = request_submit(session, cancel, outcome);
    if (r < 0)
        request_free(cancel);
    return r;
}

void request_abandon(struct gmb_session *session, struct request *request)
{
    struct outcome ignored;

    request->owner = REQUEST_OWNER_NOBODY;
    if (request->kind == REQUEST_GROW)
        request->lease->unsettled = true;
    /* Where this can't be sent, the broker's own deadline ends the request. */
    if (request_takes_memory(request))
        (void) request_cancel(session, request->id, &ignored);
}
