/*
 * A newcomer is sent nothing before it has set the arena up and says so: a Grant that came earlier
 * would find nobody. From then on it gets what is there, and what is filled later. What is about to
 * be given back it doesn't get, since it would have to give it back at once.
 */
#include "daemon/arena_attach.h"

#include <errno.h>
#include <search.h>
#include <stdio.h>
#include <string.h>

#include "daemon/arena_holder.h"
#include "daemon/arena_kept.h"
#include "daemon/arena_message.h"
#include "daemon/broker.h"
#include "daemon/message.h"
#include "proto/frame.h"

/* ------------------------------------------------------------------ names */

static int name_compare(const void *a, const void *b)
{
    const struct arena *x = a, *y = b;

    if (x->tenant != y->tenant)
        return x->tenant < y->tenant ? -1 : 1;
    return strcmp(x->name, y->name);
}

int arena_name_publish(struct arena *arena)
{
    return tsearch(arena, &arena->broker->shared, name_compare) != NULL ? 0 : -ENOMEM;
}

void arena_name_withdraw(struct arena *arena)
{
    if (arena->name[0] != '\0' && arena_named(arena->broker, arena->tenant, arena->name) == arena)
        (void) tdelete(arena, &arena->broker->shared, name_compare);
}

struct arena *arena_named(const struct broker *broker, uint32_t tenant, const char *name)
{
    struct arena like = {.tenant = tenant};
    void *node;

    (void) snprintf(like.name, sizeof(like.name), "%s", name);
    node = tfind(&like, &broker->shared, name_compare);
    return node != NULL ? *(struct arena **) node : NULL;
}

/* ------------------------------------------------------------------ attach */

void on_arena_attach(struct session *session, const Gmb__ClientMessage *message)
{
    struct core_event event = {.type = CORE_EVENT_LEASE_ATTACH};
    struct request request = {.id = message->id, .type = REQUEST_ATTACH};
    struct client *client = session->client;
    struct arena *arena = NULL;
    uint32_t tenant;
    int r;

    if (core_tenant_find(session->broker->core, client->tenant, &tenant))
        arena = arena_named(session->broker, tenant, message->arena_attach->name);
    if (arena != NULL) {
        if (!arena_affordable(client, &arena->table.layout)) {
            message_refuse(session, message->id, GMB_STATUS_EXHAUSTED, GMB_LIMIT_CHUNKS,
                arena->table.layout.max_chunks * arena->table.layout.chunk_bytes, 0,
                "this process has as many arenas, or chunks in them, as one may");
            return;
        }
        r = arena_holder_new(arena, client->id, &request.holder);
        if (r < 0) {
            message_refuse(session, message->id,
                r == -EUSERS ? GMB_STATUS_EXHAUSTED : GMB_STATUS_INTERNAL,
                r == -EUSERS ? GMB_LIMIT_HOLDERS : GMB_LIMIT_NONE, 0, 0,
                r == -EUSERS ? "the arena has as many holders as one may have" : strerror(-r));
            return;
        }
        event.lease_attach.lease = arena->lease;
    }
    /* One that isn't there is the core's to refuse, in the words for one of another tenant. */
    request_submit(session, &event, &request, "");
}

void arena_attached(
    struct session *session, const struct core_action *action, struct request *request)
{
    struct arena_holder *holder = TAKE_PTR(request->holder);
    int r;

    request_remove(session, request);
    arena_holder_enter(holder, session->client);
    r = arena_kept_answer(session, action->request, holder, false);
    if (r < 0)
        session_doom(session,
            r == -EPIPE || r == -ECONNRESET ? NULL : "the broker has no room for its arena");
}

/* ------------------------------------------------------------------ what is there */

static bool index_shareable(const struct arena_holder *holder, uint32_t index)
{
    const struct arena *arena = holder->arena;
    const struct arena_chunk *chunk = arena_chunk_find(arena, index);
    uint32_t number, generation, state;

    if (!core_lease_chunk(arena->broker->core, arena->lease, index, &number, &generation) ||
        core_holder_has(arena->broker->core, arena->lease, holder->client, index))
        return false;
    state = __atomic_load_n(&arena->table.chunks[index].state, __ATOMIC_SEQ_CST);
    return state != ARENA_CHUNK_VACANT && (chunk == NULL || chunk->phase != ARENA_RECALLED);
}

static void run_share(struct arena_holder *holder, uint32_t first, uint32_t count)
{
    struct arena *arena = holder->arena;
    struct broker *broker = arena->broker;
    struct session *session = arena_holder_session(holder);
    struct core_event event = {
        .type = CORE_EVENT_ARENA_SHARE,
        .arena_share.lease = arena->lease,
        .arena_share.first = first,
        .arena_share.count = count,
        .client = holder->client,
        .request = FRAME_BROKER_ID | ++broker->fills,
    };
    const struct core_action grant = {
        .type = CORE_ACTION_GRANT,
        .client = holder->client,
        .grant = {.lease = arena->lease, .first = first, .count = count},
    };

    broker_step(broker, &event);
    if (count > 0 && session != NULL &&
        core_holder_has(broker->core, arena->lease, holder->client, first))
        session_grant_unasked(session, &grant);
}

void arena_share(struct arena_holder *holder, uint32_t first, uint32_t end)
{
    uint32_t count;

    for (; first < end; first += MAX(count, 1U)) {
        for (count = 0; first + count < end && index_shareable(holder, first + count); count++)
            ;
        if (count > 0)
            run_share(holder, first, count);
    }
}

void arena_share_pages(struct arena_holder *holder, const uint32_t *pages, size_t count)
{
    const struct arena_table *table = &holder->arena->table;

    for (size_t i = 0; holder->ready && i < count; i++) {
        uint32_t index = pages[i] / table->layout.pages_per_chunk;

        if (pages[i] < table->page_count)
            arena_share(holder, index, index + 1);
    }
}

void arena_holder_open(struct arena_holder *holder)
{
    holder->ready = true;
    run_share(holder, 0, 0);
    arena_share(holder, 0, holder->arena->table.layout.max_chunks);
}

void on_arena_ready(struct session *session, const Gmb__ClientMessage *message)
{
    struct arena *arena = arena_find(session->broker, message->arena_ready->lease);
    struct arena_holder *holder =
        arena != NULL ? arena_holder_find(arena, session->client->id) : NULL;

    if (holder == NULL || holder->ready)
        return;
    arena_holder_open(holder);
}
