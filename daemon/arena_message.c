/*
 * What touches chunks (a return, a release) waits until no job of the mover names them: the core
 * would give a returned chunk to another worker of the tenant, and the mover would write into that
 * one's memory. What waits is bounded, and is gone with its session.
 */
#include "daemon/arena_message.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "daemon/arena_attach.h"
#include "daemon/arena_holder.h"
#include "daemon/arena_kept.h"
#include "daemon/broker.h"
#include "daemon/evict.h"
#include "daemon/grant.h"
#include "daemon/message.h"
#include "daemon/persist.h"
#include "daemon/restore.h"
#include "daemon/resume.h"

#define UNMAPPABLE_PAUSE_NS (50 * NSEC_PER_MSEC)

/* A return or a release that waits for jobs to end. */
struct held {
    struct list link; /* arena.held */
    core_id client;   /* who asked */
    uint64_t request;
    bool release;
    uint32_t first, count;
};

/* ------------------------------------------------------------------ creation */

/* chunk_bytes = 0: the smallest multiple of page and granularity that is worth a call of the
 * driver. */
#define CHUNK_WORTH (UINT64_C(2) << 20)

static bool chunk_choose(uint64_t page_bytes, uint64_t granularity, uint64_t *ret)
{
    uint64_t a = page_bytes, b = granularity, step;

    while (b != 0) {
        uint64_t rest = a % b;

        a = b;
        b = rest;
    }
    if (a == 0 || __builtin_mul_overflow(page_bytes / a, granularity, &step) || step == 0)
        return false;
    return round_up(MAX(CHUNK_WORTH, step), step, ret) && *ret <= LIMIT_CHUNK_BYTES;
}

static bool layout_read(const Gmb__ArenaRequest *body, uint64_t granularity,
    struct arena_table_header *ret, char reason[LIMIT_TEXT_BYTES])
{
    uint64_t chunk_bytes = body->chunk_bytes, bytes = 0;

    if (body->page_bytes == 0 || body->page_bytes % 16 != 0 || body->max_bytes == 0 ||
        (chunk_bytes == 0 && !chunk_choose(body->page_bytes, granularity, &chunk_bytes)) ||
        chunk_bytes % granularity != 0 || chunk_bytes > LIMIT_CHUNK_BYTES ||
        !round_up(body->max_bytes, chunk_bytes, &bytes) ||
        bytes / chunk_bytes > LIMIT_LEASE_CHUNKS ||
        arena_table_layout(body->page_bytes, chunk_bytes, (uint32_t) (bytes / chunk_bytes),
            body->shared ? ARENA_TABLE_SHARED : 0, ret) < 0) {
        (void) snprintf(reason, LIMIT_TEXT_BYTES,
            "no arena has pages of %llu in chunks of %llu up to %llu bytes",
            (unsigned long long) body->page_bytes, (unsigned long long) body->chunk_bytes,
            (unsigned long long) body->max_bytes);
        return false;
    }
    return true;
}

bool arena_affordable(const struct client *client, const struct arena_table_header *layout)
{
    return client->arena_count < LIMIT_ARENAS_PER_CLIENT &&
           layout->max_chunks <= LIMIT_ARENA_CHUNKS_PER_CLIENT - client->arena_chunks;
}

/* Sharing needs a name that the tenant's arenas don't use yet. False after an answer. */
static bool name_usable(struct session *session, uint64_t id, const Gmb__ArenaRequest *body)
{
    uint32_t tenant;

    if (!body->shared)
        return true;
    if (body->label[0] == '\0')
        message_refuse_plainly(
            session, id, GMB_STATUS_INVALID, "an arena is shared by its label, and has none");
    else if (core_tenant_find(session->broker->core, session->client->tenant, &tenant) &&
             arena_named(session->broker, tenant, body->label) != NULL)
        message_refuse_plainly(
            session, id, GMB_STATUS_CONFLICT, "the tenant shares an arena of that name already");
    else
        return true;
    return false;
}

void on_arena_request(struct session *session, const Gmb__ClientMessage *message)
{
    const Gmb__ArenaRequest *body = message->arena_request;
    struct broker *broker = session->broker;
    struct core_event event = {.type = CORE_EVENT_ARENA_REQUEST};
    struct arena_table_header layout;
    char reason[LIMIT_TEXT_BYTES];
    struct arena *arena;
    int r;

    if (!broker_device_find(
            broker, body->device.data, body->device.len, &event.arena_request.device)) {
        message_refuse_plainly(session, message->id, GMB_STATUS_NOT_FOUND, "no such device");
        return;
    }
    if (!layout_read(
            body, broker->devices[event.arena_request.device].granularity_bytes, &layout, reason)) {
        message_refuse_plainly(session, message->id, GMB_STATUS_INVALID, reason);
        return;
    }
    if (body->element >= MOVER_ELEMENT_MAX) {
        message_refuse_plainly(session, message->id, GMB_STATUS_INVALID, "no such kind of element");
        return;
    }
    if (!hosting_page_fits(broker->hosting[event.arena_request.device], session->client->tenant,
            body->element, layout.page_bytes)) {
        message_refuse_plainly(session, message->id, GMB_STATUS_INVALID,
            "pages this large don't fit a slab of the host tier (32M), and could never be evicted");
        return;
    }
    if (!name_usable(session, message->id, body))
        return;
    if (!arena_affordable(session->client, &layout)) {
        message_refuse(session, message->id, GMB_STATUS_EXHAUSTED, GMB_LIMIT_CHUNKS,
            body->max_bytes, 0, "this process has as many arenas, or chunks in them, as one may");
        return;
    }
    r = arena_new(session->client, event.arena_request.device, &layout, body->element,
        body->shared ? body->label : "", &arena);
    if (r < 0) {
        message_refuse_plainly(session, message->id, GMB_STATUS_INTERNAL, strerror(-r));
        return;
    }
    event.arena_request.chunk_bytes = layout.chunk_bytes;
    event.arena_request.max_chunks = layout.max_chunks;
    request_submit(session, &event,
        &(struct request){.id = message->id, .type = REQUEST_ARENA, .arena = arena}, body->label);
}

int arena_created_send(struct session *session, uint64_t request, const struct arena_holder *holder)
{
    struct arena *arena = holder->arena;
    Gmb__BrokerMessage message = GMB__BROKER_MESSAGE__INIT;
    Gmb__ArenaCreated body = GMB__ARENA_CREATED__INIT;
    _cleanup_close_ int event_fd = fcntl(holder->event_fd, F_DUPFD_CLOEXEC, 3);
    _cleanup_close_ int table_fd = arena->name[0] != '\0'
                                       ? fcntl(arena->table_fd, F_DUPFD_CLOEXEC, 3)
                                       : TAKE_FD(arena->table_fd);
    struct fdset fds = FDSET_EMPTY;

    if (event_fd < 0 || table_fd < 0)
        return -errno;
    if (fdset_consume(&fds, TAKE_FD(table_fd)) < 0 || fdset_consume(&fds, TAKE_FD(event_fd)) < 0) {
        fdset_close(&fds);
        return -ENFILE;
    }
    body.lease = arena->lease;
    body.chunk_bytes = arena->table.layout.chunk_bytes;
    body.max_chunks = arena->table.layout.max_chunks;
    body.device.data = session->broker->devices[arena->device].uuid.bytes;
    body.device.len = UUID_BYTES;
    body.page_bytes = arena->table.layout.page_bytes;
    body.shared = arena_table_shared(&arena->table);
    body.holder = holder->number;
    message.id = request;
    message.body_case = GMB__BROKER_MESSAGE__BODY_ARENA_CREATED;
    message.arena_created = &body;
    return conn_send_consume(session->conn, &message.base, &fds);
}

void arena_granted(
    struct session *session, const struct core_action *action, struct request *request)
{
    struct arena *arena = TAKE_PTR(request->arena);
    int r;

    if (request->label[0] != '\0') {
        client_label_set(session->client, action->grant.lease, request->label);
        persist_lease(session->broker, action->grant.lease);
    }
    request_remove(session, request);
    r = arena_bind(arena, action->grant.lease);
    if (r < 0)
        (void) arena_free(arena);
    else
        r = arena_kept_answer(
            session, action->request, list_first(&arena->holders, struct arena_holder, link), true);
    if (r < 0)
        session_doom(session,
            r == -EPIPE || r == -ECONNRESET ? NULL : "the broker has no room for its arena");
}

/* ------------------------------------------------------------------ fill and return */

void on_arena_fill(struct session *session, const Gmb__ClientMessage *message)
{
    const Gmb__ArenaFill *body = message->arena_fill;
    struct core_event event = {
        .type = CORE_EVENT_ARENA_FILL,
        .arena_fill.lease = body->lease,
        .arena_fill.first = body->first,
        .arena_fill.count = body->count,
        .arena_fill.wait_ns = body->wait_ns,
        .arena_fill.urgent = body->urgent,
    };

    request_submit(session, &event,
        &(struct request){.id = message->id, .type = REQUEST_FILL, .lease = body->lease}, "");
}

static bool run_busy(const struct arena *arena, uint32_t first, uint32_t count)
{
    uint32_t end = MIN(add_saturate(first, count), arena->top);

    for (uint32_t i = first; arena->jobs > 0 && i < end; i++) {
        if (arena->chunks[i] != NULL && arena->chunks[i]->jobs > 0)
            return true;
    }
    return false;
}

bool arena_leaving_busy(const struct arena *arena, core_id client)
{
    const struct core *core = arena->broker->core;
    const struct list *holders = &arena->holders;

    if (holders->next == holders->prev)
        return arena->jobs > 0;
    for (uint32_t i = 0; arena->jobs > 0 && i < arena->top; i++) {
        bool others = false;

        if (arena->chunks[i] == NULL || arena->chunks[i]->jobs == 0)
            continue;
        list_for_each(holder, holders, struct arena_holder, link) others =
            others ||
            (holder->client != client && core_holder_has(core, arena->lease, holder->client, i));
        if (!others)
            return true;
    }
    return false;
}

static bool held_busy(const struct arena *arena, const struct held *held)
{
    return held->release ? arena_leaving_busy(arena, held->client)
                         : run_busy(arena, held->first, held->count);
}

/* True: it waits now, or was refused because too many do. */
static bool hold(struct session *session, struct arena *arena, const struct held *like)
{
    struct held *held;

    if (!held_busy(arena, like))
        return false;
    held = arena->held_count < LIMIT_RETURNS_HELD ? malloc(sizeof(*held)) : NULL;
    if (held == NULL) {
        message_refuse_plainly(
            session, like->request, GMB_STATUS_EXHAUSTED, "pages are still being moved there");
        return true;
    }
    *held = *like;
    list_init(&held->link);
    list_append(&arena->held, &held->link);
    arena->held_count++;
    return true;
}

static void return_submit(
    struct session *session, core_id lease, uint64_t id, uint32_t first, uint32_t count)
{
    struct core_event event = {
        .type = CORE_EVENT_ARENA_RETURN,
        .arena_return.lease = lease,
        .arena_return.first = first,
        .arena_return.count = count,
    };

    request_submit(session, &event,
        &(struct request){
            .id = id, .type = REQUEST_RETURN, .lease = lease, .first = first, .count = count},
        "");
}

void on_arena_return(struct session *session, const Gmb__ClientMessage *message)
{
    const Gmb__ArenaReturn *body = message->arena_return;
    struct arena *arena = arena_find(session->broker, body->lease);
    struct held held = {
        .client = session->client->id,
        .request = message->id,
        .first = body->first,
        .count = body->count,
    };

    if (resume_returned(session, message->id, body->lease, body->first, body->count))
        return;
    if (arena != NULL && arena_holder_find(arena, session->client->id) != NULL &&
        hold(session, arena, &held))
        return;
    return_submit(session, body->lease, message->id, body->first, body->count);
}

static void release_submit(struct session *session, struct arena *arena, uint64_t id)
{
    struct core_event event = {
        .type = CORE_EVENT_LEASE_RELEASE,
        .lease_release.lease = arena->lease,
    };

    restore_withdraw(arena, session->client->id);
    grant_remove_lease(session, arena->lease);
    request_submit(session, &event,
        &(struct request){.id = id, .type = REQUEST_RELEASE, .lease = arena->lease}, "");
}

bool arena_release_take(struct session *session, uint64_t id, core_id lease)
{
    struct arena *arena = arena_find(session->broker, lease);
    struct held held = {.client = session->client->id, .request = id, .release = true};

    if (arena == NULL || arena_holder_find(arena, session->client->id) == NULL)
        return false;
    if (!hold(session, arena, &held))
        release_submit(session, arena, id);
    return true;
}

void arena_held_resume(struct arena *arena)
{
    struct broker *broker = arena->broker;
    core_id lease = arena->lease;

    list_for_each_safe(held, &arena->held, struct held, link)
    {
        struct held copy = *held;
        const struct client *client = client_find(broker, copy.client);
        struct session *session = client != NULL ? client->session : NULL;

        if (session != NULL && session->state == SESSION_ACTIVE && held_busy(arena, &copy))
            continue;
        list_remove(&held->link);
        arena->held_count--;
        free(held);
        if (session == NULL || session->state != SESSION_ACTIVE)
            continue;
        if (!copy.release) {
            return_submit(session, lease, copy.request, copy.first, copy.count);
            continue;
        }
        release_submit(session, arena, copy.request);
        if (arena_find(broker, lease) == NULL)
            return;
    }
}

static void held_drop(struct arena *arena, struct held *held)
{
    list_remove(&held->link);
    free(held);
    arena->held_count--;
}

void arena_held_drop(struct arena *arena, core_id client)
{
    list_for_each_safe(held, &arena->held, struct held, link)
    {
        if (held->client == client)
            held_drop(arena, held);
    }
}

void arena_held_drop_all(struct arena *arena)
{
    list_for_each_safe(held, &arena->held, struct held, link) held_drop(arena, held);
}

void arena_done(struct session *session, const struct request *request)
{
    struct arena *arena = arena_find(session->broker, request->lease);
    struct arena_holder *holder;

    if (arena == NULL)
        return;
    if (request->type == REQUEST_RELEASE) {
        holder = arena_holder_find(arena, session->client->id);
        if (holder != NULL)
            arena_leave(holder);
        return;
    }
    for (uint32_t i = 0; i < request->count; i++) {
        const struct arena_chunk *chunk = arena_chunk_find(arena, request->first + i);

        /* Sent unasked, it could not be mapped: the next one isn't sent at once. */
        if (chunk != NULL && chunk->filling)
            arena->fill_after_ns = clock_now(session->broker->clock) + UNMAPPABLE_PAUSE_NS;
        arena_index_returned(arena, request->first + i);
    }
    hosting_kick(session->broker->hosting[arena->device]);
}

/* ------------------------------------------------------------------ events */

static struct arena *arena_of(struct session *session, core_id lease)
{
    struct arena *arena = arena_find(session->broker, lease);

    return arena != NULL && arena_holder_find(arena, session->client->id) != NULL ? arena : NULL;
}

void on_arena_mapped(struct session *session, const Gmb__ClientMessage *message)
{
    const Gmb__ArenaMapped *body = message->arena_mapped;
    struct arena *arena = arena_of(session, body->lease);
    uint64_t now = clock_now(session->broker->clock);
    struct hosting *hosting;

    if (arena == NULL || body->first >= arena->table.layout.max_chunks ||
        body->count > arena->table.layout.max_chunks - body->first)
        return;
    for (uint32_t i = body->first; i < body->first + body->count; i++) {
        struct arena_chunk *chunk = arena->chunks[i];

        if (chunk != NULL && chunk->phase != ARENA_EMPTY && chunk->phase != ARENA_LOSING)
            continue;
        /* What it wasn't granted, it can't have mapped; and an event is a few bytes, whose nonsense
         * must not cost a look at every index. */
        if (!core_holder_has(session->broker->core, arena->lease, session->client->id, i))
            break;
        chunk = arena_chunk_get(arena, i);
        if (chunk == NULL)
            break;
        if (chunk->phase == ARENA_LOSING) {
            chunk->mapped_early = true;
            continue;
        }
        chunk->phase = ARENA_MAPPED;
        /* Who mapped it found it closed, if it was filled while its old pages were being lost. */
        if (arena_table_shared(&arena->table))
            (void) arena_chunk_swap(chunk, ARENA_CHUNK_EMPTY, ARENA_CHUNK_LIVE);
        /* A broker before was emptying it. */
        (void) arena_chunk_swap(chunk, ARENA_CHUNK_CLOSED, ARENA_CHUNK_LIVE);
        chunk->filling = false;
        chunk->due_ns = 0;
        chunk->came_ns = now;
    }
    hosting = session->broker->hosting[arena->device];
    if (hosting->mover != NULL)
        mover_keep(hosting->mover, true);
    if (list_linked(&arena->wanted_link))
        hosting_kick(hosting);
}

void on_page_want(struct session *session, const Gmb__ClientMessage *message)
{
    const Gmb__PageWant *body = message->page_want;
    struct arena *arena = arena_of(session, body->lease);

    if (arena == NULL)
        return;
    if (arena_table_shared(&arena->table))
        arena_share_pages(
            arena_holder_find(arena, session->client->id), body->pages, body->n_pages);
    restore_want(arena, body->pages, body->n_pages);
}
