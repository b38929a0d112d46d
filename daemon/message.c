/*
 * A table says for each state which messages are allowed and who handles them. What is not allowed
 * ends the connection: a peer that is out of step can't be brought back into it.
 */
#include "daemon/message.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/size.h"
#include "daemon/arena_attach.h"
#include "daemon/arena_holder.h"
#include "daemon/arena_message.h"
#include "daemon/broker.h"
#include "daemon/grant.h"
#include "daemon/persist.h"
#include "daemon/pressure_message.h"
#include "daemon/request.h"
#include "daemon/resume.h"
#include "daemon/segment_request.h"
#include "daemon/text.h"

#define PROTOCOL_VERSION 1

/* ------------------------------------------------------------------ out */

void message_send(struct session *session, Gmb__BrokerMessage *message)
{
    _cleanup_fdset_ struct fdset none = FDSET_EMPTY;

    message_send_fds(session, message, &none);
}

void message_send_fds(struct session *session, Gmb__BrokerMessage *message, struct fdset *fds)
{
    int r;

    if (session->state == SESSION_DOOMED)
        return;
    r = conn_send_consume(session->conn, &message->base, fds);
    if (r == -EXFULL)
        session_doom(session, "it doesn't read its answers");
    else if (r == -EPIPE || r == -ECONNRESET)
        session_doom(session, NULL);
    else if (r < 0)
        session_doom(session, strerror(-r));
    /* What was read is followed by a look at what to wait for; an event comes by itself. */
    else if (conn_queued(session->conn) > 0)
        session_watch(session);
}

void message_done(struct session *session, uint64_t id)
{
    Gmb__BrokerMessage message = GMB__BROKER_MESSAGE__INIT;
    Gmb__Done done = GMB__DONE__INIT;

    message.id = id;
    message.body_case = GMB__BROKER_MESSAGE__BODY_DONE;
    message.done = &done;
    message_send(session, &message);
}

static void refusal_log(
    struct session *session, enum gmb_status status, enum gmb_limit limit, const char *text)
{
    const struct client *client = session->client;

    if (!session_complaint_pass(session))
        return;
    if (client != NULL)
        log_info("refused client %llu (tenant %s, pid %d): %s, limit %s: %s",
            (unsigned long long) client->id, client->tenant, (int) client->identity.pid,
            status_name(status), limit_name(limit), text);
    else
        log_info("refused pid %d (uid %u): %s, limit %s: %s", (int) session->identity.pid,
            (unsigned) session->identity.uid, status_name(status), limit_name(limit), text);
}

void message_refuse(struct session *session, uint64_t id, enum gmb_status status,
    enum gmb_limit limit, uint64_t requested, uint64_t available, const char *text)
{
    Gmb__BrokerMessage message = GMB__BROKER_MESSAGE__INIT;
    Gmb__Error error;
    char cut[LIMIT_TEXT_BYTES];

    text_copy(cut, sizeof(cut), text);
    refusal_log(session, status, limit, cut);
    observers_refused(&session->broker->observers,
        &(struct broker_refusal){
            .tenant = session->client != NULL ? session->client->tenant : "",
            .pid = session->client != NULL ? session->client->identity.pid : session->identity.pid,
            .status = status,
            .limit = limit,
            .requested_bytes = requested,
            .available_bytes = available,
            .text = cut,
        });
    gmb__error__init(&error);
    error.status = status;
    error.limit = limit;
    error.requested_bytes = requested;
    error.available_bytes = available;
    error.text = cut;
    message.id = id;
    message.body_case = GMB__BROKER_MESSAGE__BODY_ERROR;
    message.error = &error;
    message_send(session, &message);
}

void message_refuse_plainly(
    struct session *session, uint64_t id, enum gmb_status status, const char *text)
{
    message_refuse(session, id, status, GMB_LIMIT_NONE, 0, 0, text);
}

/* ------------------------------------------------------------------ greeting */

static_assert(LIMIT_DEVICES <= 64, "session.failed has a bit for each");

void message_welcome(struct session *session, uint64_t id, bool resumed, struct fdset *page)
{
    const struct broker *broker = session->broker;
    Gmb__BrokerMessage message = GMB__BROKER_MESSAGE__INIT;
    Gmb__Welcome welcome;
    Gmb__Device devices[LIMIT_DEVICES], *pointers[LIMIT_DEVICES];
    uint32_t tenant = session->client->tenant_index;

    for (uint32_t i = 0; i < broker->device_count; i++) {
        struct core_device_view view = {0};
        struct core_tenant_device_view quota = {.limits.max = SIZE_INFINITY};

        (void) core_device_get(broker->core, i, &view);
        (void) core_tenant_device_get(broker->core, tenant, i, &quota);
        gmb__device__init(&devices[i]);
        devices[i].uuid.data = (uint8_t *) (uintptr_t) broker->devices[i].uuid.bytes;
        devices[i].uuid.len = UUID_BYTES;
        devices[i].name = (char *) (uintptr_t) broker->gpu->devices[i]->name;
        devices[i].capacity_bytes = sub_saturate(view.total, view.reserve);
        devices[i].granularity_bytes = broker->devices[i].granularity_bytes;
        devices[i].memory_max_bytes = quota.limits.max;
        devices[i].failed = view.failed;
        session->failed |= (uint64_t) view.failed << i;
        devices[i].mig = broker->devices[i].mig;
        devices[i].sharing = (Gmb__HandleType) broker->devices[i].sharing;
        pointers[i] = &devices[i];
    }
    gmb__welcome__init(&welcome);
    welcome.version = PROTOCOL_VERSION;
    welcome.tenant = session->client->tenant;
    welcome.driver = (char *) (uintptr_t) gpu_driver_name(broker->gpu->driver);
    welcome.n_devices = broker->device_count;
    welcome.devices = pointers;
    welcome.client = session->client->id;
    welcome.token.data = session->client->token;
    welcome.token.len = CLIENT_TOKEN_BYTES;
    welcome.resumed = resumed;
    message.id = id;
    message.body_case = GMB__BROKER_MESSAGE__BODY_WELCOME;
    message.welcome = &welcome;
    message_send_fds(session, &message, page);
}

int message_page_open(
    struct broker *broker, uint32_t tenant, struct pressure_tenant **ret, struct fdset *ret_page)
{
    int fd = -1, r = pressure_tenant_get(broker->pressure, tenant, ret);

    if (r == 0)
        r = status_fd_dup((*ret)->status, &fd);
    return r < 0 ? r : fdset_consume(ret_page, fd);
}

static void unmatched_refuse(struct session *session, uint64_t id)
{
    const struct identity *identity = &session->identity;
    char text[LIMIT_TEXT_BYTES];

    (void) snprintf(text, sizeof(text),
        "no tenant is configured for uid %u, gid %u, unit '%.60s', cgroup '%.80s'",
        (unsigned) identity->uid, (unsigned) identity->gid, identity->unit, identity->cgroup);
    message_refuse_plainly(session, id, GMB_STATUS_DENIED, text);
    session_doom(session, NULL);
}

/* Undoes CLIENT_ADD when there isn't what the shell needs for its side of it. */
static void client_abandon(
    struct session *session, uint64_t id, core_id client, uint32_t tenant, int error)
{
    struct core_event event = {.type = CORE_EVENT_CLIENT_DEAD, .client = client};

    broker_step(session->broker, &event);
    pressure_tenant_settle(session->broker->pressure, tenant);
    if (error == -EMFILE || error == -ENFILE)
        message_refuse_plainly(session, id, GMB_STATUS_EXHAUSTED,
            "the broker has no file descriptor left for the status page");
    else
        message_refuse_plainly(session, id, GMB_STATUS_INTERNAL, "the broker has no host memory");
    session_doom(session, NULL);
}

static void on_hello(struct session *session, const Gmb__ClientMessage *message)
{
    struct broker *broker = session->broker;
    _cleanup_fdset_ struct fdset page = FDSET_EMPTY;
    struct core_event event = {.type = CORE_EVENT_CLIENT_ADD};
    const struct core_action *answer;
    struct pressure_tenant *record;
    uint32_t rule, tenant;
    int r;

    if (message->hello->version < PROTOCOL_VERSION) {
        message_refuse_plainly(
            session, message->id, GMB_STATUS_UNSUPPORTED, "this broker speaks version 1");
        session_doom(session, NULL);
        return;
    }
    if (resume_hello(session, message))
        return;
    if (!config_match(broker->config, &session->identity, &rule)) {
        unmatched_refuse(session, message->id);
        return;
    }
    event.client_add.tenant = broker->config->tenants[rule].name;
    answer = broker_ask(broker, &event);
    if (answer == NULL || answer->type != CORE_ACTION_CLIENT_ADDED ||
        !core_tenant_find(broker->core, event.client_add.tenant, &tenant)) {
        if (answer != NULL && answer->type == CORE_ACTION_REFUSE)
            message_refuse(session, message->id, answer->refuse.status, answer->refuse.limit,
                answer->refuse.requested_bytes, answer->refuse.available_bytes,
                answer->refuse.text);
        session_doom(session, NULL);
        return;
    }
    r = message_page_open(broker, tenant, &record, &page);
    if (r == 0)
        r = client_new_take(broker, answer->client, event.client_add.tenant,
            message->hello->program, &session->identity, &session->client);
    if (r < 0) {
        client_abandon(session, message->id, answer->client, tenant, r);
        return;
    }
    session->client->tenant_index = tenant;
    pressure_join(session, record);
    persist_client(broker, session->client);
    session_activate(session);
    message_welcome(session, message->id, false, &page);
}

/* ------------------------------------------------------------------ requests */

bool request_register(struct session *session, const struct request *like, const char *label)
{
    uint64_t id = like->id;
    int r;

    if (session->request_count >= LIMIT_REQUESTS_PER_CLIENT) {
        message_refuse(session, id, GMB_STATUS_EXHAUSTED, GMB_LIMIT_REQUESTS,
            session->request_count + 1, 0, "this connection has too many requests in flight");
        return false;
    }
    /* The core holds the lease complete; its chunks' order is the peer's until all were sent. What
     * an arena's client says may cross chunks that come unasked. */
    if (like->lease != 0 && arena_find(session->broker, like->lease) == NULL &&
        grant_pending(session, like->lease)) {
        message_refuse_plainly(session, id, GMB_STATUS_INVALID, "the lease is still being granted");
        return false;
    }
    r = request_add(session, like, label);
    if (r == -EEXIST) {
        message_refuse_plainly(
            session, id, GMB_STATUS_PROTOCOL, "a request with this id is in flight");
        session_doom(session, "it uses a request id twice");
    } else if (r < 0) {
        message_refuse_plainly(session, id, GMB_STATUS_INTERNAL, "the broker has no host memory");
    }
    return r == 0;
}

void request_submit(struct session *session, struct core_event *event, const struct request *like,
    const char *label)
{
    if (!request_register(session, like, label)) {
        (void) arena_free(like->arena);
        (void) arena_holder_free(like->holder);
        return;
    }
    if (event->client == 0)
        event->client = session->client->id;
    event->request = like->id;
    broker_step(session->broker, event);
}

static void on_lease_request(struct session *session, const Gmb__ClientMessage *message)
{
    const Gmb__LeaseRequest *body = message->lease_request;
    struct core_event event = {
        .type = CORE_EVENT_LEASE_REQUEST,
        .lease_request.bytes = body->bytes,
        .lease_request.chunk_bytes = body->chunk_bytes,
        .lease_request.wait_ns = body->wait_ns,
    };

    if (body->purpose != GMB__PURPOSE__PURPOSE_WORKSPACE)
        message_refuse_plainly(
            session, message->id, GMB_STATUS_UNSUPPORTED, "no such kind of lease");
    else if (!broker_device_find(
                 session->broker, body->device.data, body->device.len, &event.lease_request.device))
        message_refuse_plainly(session, message->id, GMB_STATUS_NOT_FOUND, "no such device");
    else
        request_submit(session, &event, &(struct request){.id = message->id, .type = REQUEST_LEASE},
            body->label);
}

static void on_gang_request(struct session *session, const Gmb__ClientMessage *message)
{
    const Gmb__GangRequest *body = message->gang_request;
    struct core_gang_part parts[LIMIT_DEVICES];
    struct core_event event = {
        .type = CORE_EVENT_GANG_REQUEST,
        .gang_request.parts = parts,
        .gang_request.count = (uint32_t) body->n_parts,
        .gang_request.wait_ns = body->wait_ns,
    };

    for (size_t i = 0; i < body->n_parts; i++) {
        const Gmb__GangPart *part = body->parts[i];

        if (!broker_device_find(
                session->broker, part->device.data, part->device.len, &parts[i].device)) {
            message_refuse_plainly(session, message->id, GMB_STATUS_NOT_FOUND, "no such device");
            return;
        }
        parts[i].bytes = part->bytes;
        parts[i].chunk_bytes = part->chunk_bytes;
    }
    request_submit(
        session, &event, &(struct request){.id = message->id, .type = REQUEST_GANG}, body->label);
}

static void on_lease_grow(struct session *session, const Gmb__ClientMessage *message)
{
    const Gmb__LeaseGrow *body = message->lease_grow;
    struct core_event event = {
        .type = CORE_EVENT_LEASE_GROW,
        .lease_grow.lease = body->lease,
        .lease_grow.bytes = body->bytes,
        .lease_grow.wait_ns = body->wait_ns,
    };

    request_submit(session, &event,
        &(struct request){.id = message->id, .type = REQUEST_GROW, .lease = body->lease}, "");
}

static void on_lease_shrink(struct session *session, const Gmb__ClientMessage *message)
{
    const Gmb__LeaseShrink *body = message->lease_shrink;
    struct core_event event = {
        .type = CORE_EVENT_LEASE_SHRINK,
        .lease_shrink.lease = body->lease,
        .lease_shrink.keep_chunks = body->keep_chunks,
    };

    request_submit(session, &event,
        &(struct request){.id = message->id, .type = REQUEST_SHRINK, .lease = body->lease}, "");
}

static void on_lease_release(struct session *session, const Gmb__ClientMessage *message)
{
    const Gmb__LeaseRelease *body = message->lease_release;
    struct core_event event = {
        .type = CORE_EVENT_LEASE_RELEASE,
        .lease_release.lease = body->lease,
        .client = segment_holder(session, body->lease),
    };

    if (arena_release_take(session, message->id, body->lease) ||
        resume_done(session, message->id, body->lease))
        return;
    request_submit(session, &event,
        &(struct request){.id = message->id, .type = REQUEST_RELEASE, .lease = body->lease}, "");
}

static void on_cancel(struct session *session, const Gmb__ClientMessage *message)
{
    struct core_event event = {
        .type = CORE_EVENT_CANCEL,
        .cancel.request = message->cancel->request,
    };

    if (segment_cancel_take(session, message))
        return;
    request_submit(
        session, &event, &(struct request){.id = message->id, .type = REQUEST_CANCEL}, "");
}

/* ------------------------------------------------------------------ the table */

typedef void (*handler)(struct session *session, const Gmb__ClientMessage *message);

#define BODY_MAX (GMB__CLIENT_MESSAGE__BODY_SEGMENT_REMOVE + 1)
static_assert(GMB__CLIENT_MESSAGE__BODY_HELLO == 2 && BODY_MAX == 43, "every body has a column");

static const handler handlers[SESSION_STATE_MAX][BODY_MAX] = {
    [SESSION_GREETING] =
        {
            [GMB__CLIENT_MESSAGE__BODY_HELLO] = on_hello,
        },
    [SESSION_RESUMING] =
        {
            [GMB__CLIENT_MESSAGE__BODY_RESUME] = on_resume,
        },
    [SESSION_ACTIVE] =
        {
            [GMB__CLIENT_MESSAGE__BODY_LEASE_REQUEST] = on_lease_request,
            [GMB__CLIENT_MESSAGE__BODY_LEASE_GROW] = on_lease_grow,
            [GMB__CLIENT_MESSAGE__BODY_GANG_REQUEST] = on_gang_request,
            [GMB__CLIENT_MESSAGE__BODY_LEASE_SHRINK] = on_lease_shrink,
            [GMB__CLIENT_MESSAGE__BODY_LEASE_RELEASE] = on_lease_release,
            [GMB__CLIENT_MESSAGE__BODY_CANCEL] = on_cancel,
            [GMB__CLIENT_MESSAGE__BODY_ARENA_REQUEST] = on_arena_request,
            [GMB__CLIENT_MESSAGE__BODY_ARENA_FILL] = on_arena_fill,
            [GMB__CLIENT_MESSAGE__BODY_ARENA_RETURN] = on_arena_return,
            [GMB__CLIENT_MESSAGE__BODY_ARENA_MAPPED] = on_arena_mapped,
            [GMB__CLIENT_MESSAGE__BODY_PAGE_WANT] = on_page_want,
            [GMB__CLIENT_MESSAGE__BODY_ARENA_ATTACH] = on_arena_attach,
            [GMB__CLIENT_MESSAGE__BODY_ARENA_READY] = on_arena_ready,
            [GMB__CLIENT_MESSAGE__BODY_PRESSURE_SUBSCRIBE] = on_pressure_subscribe,
            [GMB__CLIENT_MESSAGE__BODY_PRESSURE_WATCH] = on_pressure_watch,
            [GMB__CLIENT_MESSAGE__BODY_PRESSURE_UNWATCH] = on_pressure_unwatch,
            [GMB__CLIENT_MESSAGE__BODY_ADVICE_ACK] = on_advice_ack,
            [GMB__CLIENT_MESSAGE__BODY_SEGMENT_REQUEST] = on_segment_request,
            [GMB__CLIENT_MESSAGE__BODY_SEGMENT_SEAL] = on_segment_seal,
            [GMB__CLIENT_MESSAGE__BODY_SEGMENT_REMOVE] = on_segment_remove,
        },
    [SESSION_DOOMED] = {NULL},
};

void message_handle(struct session *session, const uint8_t *bytes, size_t size)
{
    Gmb__ClientMessage *message;
    handler handle;
    int r;

    r = frame_decode_client(bytes, size, &message);
    if (r < 0) {
        message_refuse_plainly(session, 0, GMB_STATUS_PROTOCOL, "the frame is no valid message");
        session_doom(session, "it sent a frame that is no valid message");
        return;
    }
    handle = handlers[session->state][message->body_case];
    if (handle != NULL) {
        handle(session, message);
    } else if (session->state != SESSION_DOOMED) {
        message_refuse_plainly(session, message->id, GMB_STATUS_PROTOCOL,
            session->state == SESSION_GREETING   ? "the first message is Hello"
            : session->state == SESSION_RESUMING ? "a resumed client first says what it has mapped"
                                                 : "Hello was said already, or all was resumed");
        session_doom(session, "it sent a message out of turn");
    }
    frame_message_free(&message->base);
}
