/*
 * A request waits here, not in the core, until it is known what it comes to: the memory of a new
 * segment, a part in one that is there, or a refusal. Then it is the core's like any other.
 */
#include "daemon/segment_request.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/broker.h"
#include "daemon/guest.h"
#include "daemon/message.h"
#include "daemon/segment_kept.h"
#include "daemon/segment_walk.h"
#include "proto/frame.h"

/* ------------------------------------------------------------------ who asks */

/* On whose behalf: the session's client, or its guest in the group. NULL after an answer. */
static struct client *asker(struct session *session, uint64_t id, bool group)
{
    return group ? guest_get(session, id) : session->client;
}

core_id segment_holder(const struct session *session, core_id lease)
{
    const struct client *guest = session->guest;

    return guest != NULL && core_holder_find(session->broker->core, lease, guest->id)
               ? guest->id
               : session->client->id;
}

struct segment *segment_held(const struct session *session, core_id lease)
{
    const struct client *client = client_find(session->broker, segment_holder(session, lease));

    return core_holder_find(session->broker->core, lease, client->id)
               ? segment_of_lease(session->broker, client->tenant_index, lease)
               : NULL;
}

/* False after an answer. */
static bool name_read(struct session *session, uint64_t id, const char *name)
{
    if (name[0] != '\0' && strlen(name) <= LIMIT_NAME_BYTES)
        return true;
    message_refuse_plainly(
        session, id, GMB_STATUS_INVALID, "the name of a segment has 1 to 64 bytes");
    return false;
}

static const char *tenant_name(const struct segment_space *space, struct core_tenant_view *view)
{
    *view = (struct core_tenant_view){.name = ""};
    (void) core_tenant_get(space->broker->core, space->tenant, view);
    return view->name;
}

/* ------------------------------------------------------------------ waiters */

/* Into this list, behind the others: of that segment, or of no segment. */
static void waiter_place(struct segment_waiter *waiter, struct segment *segment, struct list *list)
{
    list_remove(&waiter->link);
    if (waiter->segment != NULL)
        waiter->segment->waiter_count--;
    waiter->segment = segment;
    if (segment != NULL)
        segment->waiter_count++;
    if (list != NULL)
        list_append(list, &waiter->link);
}

void segment_waiters_wake(struct segment *segment)
{
    struct segment_waiter *waiter;

    if (!list_empty(&segment->waiters))
        segments_note(segment->space->broker, segment->space->tenant);
    while ((waiter = list_first(&segment->waiters, struct segment_waiter, link)) != NULL)
        waiter_place(waiter, NULL, &segment->space->unserved);
}

struct segment_waiter *segment_waiter_free(struct segment_waiter *waiter)
{
    if (waiter == NULL)
        return NULL;
    heap_remove(&waiter->space->broker->segments->deadlines, &waiter->deadline);
    waiter_place(waiter, NULL, NULL);
    waiter->space->waiter_count--;
    waiter->space->broker->segments->waiting[waiter->tenant]--;
    waiter->session->segment_waiters--;
    segments_note(waiter->space->broker, waiter->space->tenant);
    free(waiter);
    return NULL;
}

static struct segment_waiter *waiter_new(
    struct session *session, const struct client *client, const Gmb__ClientMessage *message)
{
    struct segments *segments = session->broker->segments;
    const Gmb__SegmentRequest *body = message->segment_request;
    struct segment_space *space = segment_space_get(session->broker, client->tenant_index);
    struct segment_waiter *waiter = space != NULL ? calloc(1, sizeof(*waiter)) : NULL;

    if (waiter == NULL || heap_reserve(&segments->deadlines, segments->deadlines.count + 1) < 0) {
        free(waiter);
        return NULL;
    }
    waiter->space = space;
    waiter->session = session;
    waiter->id = message->id;
    waiter->client = client->id;
    waiter->tenant = session->client->tenant_index;
    waiter->bytes = body->bytes;
    waiter->chunk_bytes = body->chunk_bytes;
    waiter->wait_ns = MIN(body->wait_ns, LIMIT_WAIT_NS);
    (void) snprintf(waiter->name, sizeof(waiter->name), "%s", body->name);
    list_init(&waiter->link);
    waiter_place(waiter, NULL, &space->unserved);
    space->waiter_count++;
    segments->waiting[waiter->tenant]++;
    session->segment_waiters++;
    heap_push(&segments->deadlines, &waiter->deadline,
        add_saturate(clock_now(session->broker->clock), waiter->wait_ns));
    return waiter;
}

/* Its request ends with an Error; the waiter is gone afterwards. */
static void waiter_refuse(struct segment_waiter *waiter, enum gmb_status status,
    enum gmb_limit limit, uint64_t available, const char *text)
{
    struct session *session = waiter->session;
    uint64_t id = waiter->id, bytes = waiter->bytes;

    request_remove(session, request_find(session, id));
    message_refuse(session, id, status, limit, bytes, available, text);
}

/* Why it waits: for the one who has it, or for its memory. */
static void waiter_time_over(struct segment_waiter *waiter, enum gmb_status status)
{
    const struct segment *segment = segment_named(waiter->space, waiter->device, waiter->name);
    const struct client *writer =
        segment != NULL ? client_find(waiter->space->broker, segment->writer) : NULL;
    const char *over = status == GMB_STATUS_TIMED_OUT ? "; its time to wait is over" : "";
    char text[LIMIT_TEXT_BYTES];

    if (writer != NULL)
        (void) snprintf(text, sizeof(text), "segment %s is being written by pid %d%s", waiter->name,
            (int) writer->identity.pid, over);
    else
        (void) snprintf(text, sizeof(text), "segment %s is on its way back to the device%s",
            waiter->name, over);
    waiter_refuse(waiter, status, writer != NULL ? GMB_LIMIT_UNSEALED : GMB_LIMIT_DEVICE, 0, text);
}

void segment_waiters_expire(struct segments *segments, uint64_t now_ns)
{
    struct heap_node *first;

    while ((first = heap_first(&segments->deadlines)) != NULL && first->key <= now_ns) {
        struct segment_waiter *waiter = container_of(first, struct segment_waiter, deadline);

        waiter_time_over(
            waiter, waiter->wait_ns == 0 ? GMB_STATUS_EXHAUSTED : GMB_STATUS_TIMED_OUT);
    }
}

void segment_waiters_refuse(struct segment *segment, const struct core_action *refusal)
{
    uint64_t now_ns = clock_now(segment->space->broker->clock);

    list_for_each_safe(waiter, &segment->waiters, struct segment_waiter, link)
    {
        if (refusal->refuse.status != GMB_STATUS_TIMED_OUT || waiter->deadline.key <= now_ns)
            waiter_refuse(waiter, refusal->refuse.status, refusal->refuse.limit,
                refusal->refuse.available_bytes, refusal->refuse.text);
    }
}

bool segment_awaited(const struct segment *segment)
{
    return !list_empty(&segment->waiters) || !list_empty(&segment->space->unserved);
}

/* ------------------------------------------------------------------ what becomes of one */

/* It becomes the writer of a new segment: the core's answer is its answer. */
static void waiter_write(struct segment_waiter *waiter)
{
    struct broker *broker = waiter->space->broker;
    struct session *session = waiter->session;
    struct request *request = request_find(session, waiter->id);
    struct core_event event = {
        .type = CORE_EVENT_SEGMENT_REQUEST,
        .lease_request.device = waiter->device,
        .lease_request.bytes = waiter->bytes,
        .lease_request.chunk_bytes = waiter->chunk_bytes,
        .lease_request.wait_ns =
            waiter->wait_ns == 0
                ? 0
                : MAX(sub_saturate(waiter->deadline.key, clock_now(broker->clock)), UINT64_C(1)),
        .client = waiter->client,
        .request = waiter->id,
    };
    struct segment *segment =
        segment_new(waiter->space, waiter->device, waiter->name, waiter->bytes);

    if (segment == NULL) {
        waiter_refuse(waiter, GMB_STATUS_EXHAUSTED, GMB_LIMIT_LEASES_MAX, 0,
            "the tenant or share group has as many segments as one may");
        return;
    }
    segment->writer = waiter->client;
    segment->request = waiter->id;
    request->waiter = segment_waiter_free(request->waiter);
    broker_step(broker, &event);
    /* Refused at once: the next one finds its name free. */
    if (segment->state == SEGMENT_ASKED && request_find(session, event.request) == NULL)
        segment_free(segment);
}

/* It becomes a reader; what refuses is the core's to say. */
static void waiter_read(struct segment_waiter *waiter, const struct segment *segment)
{
    struct broker *broker = waiter->space->broker;
    struct core_event attach = {
        .type = CORE_EVENT_LEASE_ATTACH,
        .lease_attach.lease = segment->lease,
        .client = waiter->client,
        .request = waiter->id,
    };
    struct core_event share = {
        .type = CORE_EVENT_ARENA_SHARE,
        .arena_share.lease = segment->lease,
        .arena_share.count = segment->chunks,
        .client = waiter->client,
        .request = waiter->id,
    };
    core_id client = waiter->client;

    if (core_holder_find(broker->core, segment->lease, client)) {
        waiter_refuse(
            waiter, GMB_STATUS_CONFLICT, GMB_LIMIT_NONE, 0, "this process has the segment already");
        return;
    }
    broker_step(broker, &attach);
    if (core_holder_find(broker->core, segment->lease, client))
        broker_step(broker, &share);
}

/* One that is there, and is not what was asked for. True after an answer. */
static bool waiter_mismatched(struct segment_waiter *waiter, const struct segment *segment)
{
    struct core_device_view device = {0};
    char text[LIMIT_TEXT_BYTES];

    (void) core_device_get(waiter->space->broker->core, segment->device, &device);
    if (waiter->bytes > 0 && waiter->bytes != segment->size_bytes) {
        (void) snprintf(text, sizeof(text), "segment %s is there with %llu bytes, not %llu",
            segment->name, (unsigned long long) segment->size_bytes,
            (unsigned long long) waiter->bytes);
        waiter_refuse(waiter, GMB_STATUS_CONFLICT, GMB_LIMIT_NONE, segment->size_bytes, text);
    } else if (segment->writer != 0 && segment->writer == waiter->client) {
        waiter_refuse(waiter, GMB_STATUS_CONFLICT, GMB_LIMIT_NONE, 0,
            "this process writes the segment, or asks for it already");
    } else if (device.failed) {
        waiter_refuse(waiter, GMB_STATUS_GPU, GMB_LIMIT_DEVICE, 0,
            "the segment's device is out of service since it failed");
    } else {
        return false;
    }
    return true;
}

static void waiter_not_found(struct segment_waiter *waiter)
{
    struct core_tenant_view view;
    char text[LIMIT_TEXT_BYTES];

    (void) snprintf(text, sizeof(text), "%s has no segment %s on this device",
        tenant_name(waiter->space, &view), waiter->name);
    waiter_refuse(waiter, GMB_STATUS_NOT_FOUND, GMB_LIMIT_NONE, 0, text);
}

/* The name of what is in quarantine is free for who makes it anew. */
static bool waiter_quarantined(struct segment_waiter *waiter, struct segment *segment)
{
    char text[LIMIT_TEXT_BYTES];

    if (waiter->bytes > 0) {
        segment_remove(segment);
        return false;
    }
    (void) snprintf(text, sizeof(text),
        "segment %s is in quarantine, and has to be made anew: %.110s", segment->name,
        segment->text);
    waiter_refuse(waiter, GMB_STATUS_CONFLICT, GMB_LIMIT_NONE, 0, text);
    return true;
}

/* Its tenant was taken out of the group while it waited. True after an answer. */
static bool waiter_expelled(struct segment_waiter *waiter)
{
    const struct session *session = waiter->session;

    if (waiter->client == session->client->id || guest_belongs(session))
        return false;
    waiter_refuse(waiter, GMB_STATUS_DENIED, GMB_LIMIT_PERMISSION, 0,
        "the tenant is in this share group no longer");
    return true;
}

/* What can be done for it now; it may be gone afterwards. */
static void waiter_serve(struct segment_waiter *waiter)
{
    uint64_t now_ns = clock_now(waiter->space->broker->clock);
    struct segment *segment = segment_named(waiter->space, waiter->device, waiter->name);

    if (waiter_expelled(waiter))
        return;
    if (segment != NULL && segment->state == SEGMENT_QUARANTINED) {
        if (waiter_quarantined(waiter, segment))
            return;
        segment = NULL;
    }
    if (segment == NULL && waiter->bytes == 0) {
        waiter_not_found(waiter);
        return;
    }
    if (segment == NULL) {
        waiter_write(waiter);
        return;
    }
    if (waiter_mismatched(waiter, segment))
        return;
    if (segment->state == SEGMENT_SEALED) {
        waiter_read(waiter, segment);
        return;
    }
    if (segment->state == SEGMENT_DEMOTING)
        segment_walk_stop(segment);
    waiter_place(waiter, segment, &segment->waiters);
    if (waiter->wait_ns == 0)
        waiter_time_over(waiter, GMB_STATUS_EXHAUSTED);
    else if (waiter->deadline.key <= now_ns)
        waiter_time_over(waiter, GMB_STATUS_TIMED_OUT);
    else if (segment->state == SEGMENT_DEMOTED)
        segment_fill(segment, waiter->deadline.key - now_ns);
}

static void waiters_serve(struct segment_space *space, bool create)
{
    list_for_each_safe(waiter, &space->unserved, struct segment_waiter, link)
    {
        if (waiter->session->state == SESSION_ACTIVE && (waiter->bytes > 0) == create)
            waiter_serve(waiter);
    }
}

/* Who only opens finds what somebody behind it in the list is about to make. */
void segment_waiters_serve(struct segment_space *space)
{
    waiters_serve(space, true);
    waiters_serve(space, false);
}

/* ------------------------------------------------------------------ messages */

/* Whether its last one is one too many. */
static bool waiters_full(const struct session *session)
{
    return session->segment_waiters > LIMIT_SEGMENT_WAITERS_PER_CLIENT ||
           session->broker->segments->waiting[session->client->tenant_index] >
               LIMIT_SEGMENT_WAITERS;
}

void on_segment_request(struct session *session, const Gmb__ClientMessage *message)
{
    const Gmb__SegmentRequest *body = message->segment_request;
    struct request request = {.id = message->id, .type = REQUEST_SEGMENT};
    const struct client *client;
    uint32_t device;

    if (!name_read(session, message->id, body->name))
        return;
    if (!broker_device_find(session->broker, body->device.data, body->device.len, &device)) {
        message_refuse_plainly(session, message->id, GMB_STATUS_NOT_FOUND, "no such device");
        return;
    }
    client = asker(session, message->id, body->group);
    if (client == NULL)
        return;
    request.waiter = waiter_new(session, client, message);
    if (request.waiter == NULL) {
        message_refuse_plainly(
            session, message->id, GMB_STATUS_INTERNAL, "the broker has no host memory");
        return;
    }
    request.client = client->id;
    request.waiter->device = device;
    if (waiters_full(session)) {
        (void) segment_waiter_free(request.waiter);
        message_refuse(session, message->id, GMB_STATUS_EXHAUSTED, GMB_LIMIT_REQUESTS, 0, 0,
            "too many requests of the client or its tenant wait for segments");
        return;
    }
    if (!request_register(session, &request, "")) {
        (void) segment_waiter_free(request.waiter);
        return;
    }
    segments_note(session->broker, client->tenant_index);
}

bool segment_granted(
    struct session *session, const struct core_action *action, struct request *request)
{
    const struct client *client = client_find(session->broker, action->client);
    struct segment_space *space = session->broker->segments->spaces[client->tenant_index];
    bool waits = false;

    if (action->grant.count == 0)
        return false; /* attached: what is there follows */
    request->waiter = segment_waiter_free(request->waiter);
    list_for_each(segment, &space->segments, struct segment, link)
    {
        if (segment->state != SEGMENT_ASKED || segment->writer != action->client ||
            segment->request != action->request)
            continue;
        segment_bind(segment, action->grant.lease);
        waits = segment_kept_begin(segment);
    }
    segments_note(session->broker, client->tenant_index);
    return !waits;
}

void segment_grant_send(const struct segment *segment)
{
    const struct client *client = client_find(segment->space->broker, segment->writer);
    struct session *session = client != NULL ? client->session : NULL;
    const struct request *request =
        session != NULL ? request_find(session, segment->request) : NULL;
    const struct core_action grant = {
        .type = CORE_ACTION_GRANT,
        .client = segment->writer,
        .request = segment->request,
        .grant = {.lease = segment->lease, .count = segment->chunks, .parts = 1},
    };

    /* Who went and came back meanwhile asks anew. */
    if (segment->state == SEGMENT_WRITING && request != NULL && request->type == REQUEST_SEGMENT &&
        request->waiter == NULL)
        session_grant_unasked(session, &grant);
}

bool segment_read_only(const struct session *session, core_id lease)
{
    const struct segment *segment = segment_held(session, lease);

    return segment != NULL && segment->state != SEGMENT_WRITING;
}

bool segment_cancel_take(struct session *session, const Gmb__ClientMessage *message)
{
    struct request *request = request_find(session, message->cancel->request);
    struct core_event event = {
        .type = CORE_EVENT_CANCEL,
        .cancel.request = message->cancel->request,
    };

    if (request == NULL || request->type != REQUEST_SEGMENT)
        return false;
    if (request->waiter == NULL) {
        event.client = request->client;
        request_submit(
            session, &event, &(struct request){.id = message->id, .type = REQUEST_CANCEL}, "");
        return true;
    }
    message_done(session, message->id);
    waiter_refuse(request->waiter, GMB_STATUS_CANCELLED, GMB_LIMIT_NONE, 0,
        "the request was cancelled by the client");
    return true;
}

/* ------------------------------------------------------------------ removing */

void on_segment_remove(struct session *session, const Gmb__ClientMessage *message)
{
    const Gmb__SegmentRemove *body = message->segment_remove;
    const struct segment_space *space;
    const struct client *client;
    struct segment *segment;
    uint32_t device;

    if (!name_read(session, message->id, body->name))
        return;
    if (!broker_device_find(session->broker, body->device.data, body->device.len, &device)) {
        message_refuse_plainly(session, message->id, GMB_STATUS_NOT_FOUND, "no such device");
        return;
    }
    client = asker(session, message->id, body->group);
    if (client == NULL)
        return;
    space = session->broker->segments->spaces[client->tenant_index];
    segment = space != NULL ? segment_named(space, device, body->name) : NULL;
    if (segment == NULL) {
        message_refuse_plainly(
            session, message->id, GMB_STATUS_NOT_FOUND, "no segment has this name on this device");
        return;
    }
    if (segment->state < SEGMENT_SEALED) {
        message_refuse(session, message->id, GMB_STATUS_CONFLICT, GMB_LIMIT_UNSEALED, 0, 0,
            "the segment is being written; it goes when its writer does");
        return;
    }
    segment_remove(segment);
    message_done(session, message->id);
}
