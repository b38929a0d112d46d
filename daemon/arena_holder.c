/* See arena_holder.h. */
#include "daemon/arena_holder.h"

#include <errno.h>
#include <unistd.h>

#include "daemon/arena_forget.h"
#include "daemon/arena_kept.h"
#include "daemon/arena_message.h"
#include "daemon/bell.h"
#include "daemon/broker.h"
#include "daemon/evict.h"
#include "daemon/recall.h"
#include "daemon/restore.h"

static_assert(ARENA_HOLDERS_MAX == LIMIT_LEASE_HOLDERS, "the core admits whom a word has room for");

static struct hosting *hosting_of(const struct arena *arena)
{
    return arena->broker->hosting[arena->device];
}

/* ------------------------------------------------------------------ life */

static bool number_take(struct arena *arena, uint32_t *ret)
{
    uint32_t number = (uint32_t) __builtin_ctz(~arena->numbers);

    if (number >= ARENA_HOLDERS_MAX)
        return false;
    arena->numbers |= 1u << number;
    *ret = number;
    return true;
}

int arena_holder_new(struct arena *arena, core_id client, struct arena_holder **ret)
{
    struct arena_holder *holder = calloc(1, sizeof(*holder));
    int r;

    if (holder == NULL)
        return -ENOMEM;
    list_init(&holder->link);
    list_init(&holder->client_link);
    r = bell_new(&holder->event_fd);
    if (r < 0) {
        free(holder);
        return r;
    }
    if (!number_take(arena, &holder->number)) {
        close_fd(&holder->event_fd);
        free(holder);
        return -EUSERS;
    }
    holder->arena = arena;
    holder->client = client;
    arena_kept_number(arena, holder->number, client);
    list_append(&arena->holders, &holder->link);
    *ret = holder;
    return 0;
}

int arena_holder_restore_consume(struct arena *arena, core_id client, uint32_t number, int event_fd)
{
    struct arena_holder *holder = calloc(1, sizeof(*holder));

    if (holder == NULL) {
        (void) close(event_fd);
        return -ENOMEM;
    }
    list_init(&holder->client_link);
    list_init(&holder->link);
    holder->arena = arena;
    holder->client = client;
    holder->number = number;
    holder->event_fd = event_fd;
    /* Of a shared one nobody is sent anything before it has said what it has. */
    holder->ready = arena->name[0] == '\0';
    arena->numbers |= 1u << number;
    list_append(&arena->holders, &holder->link);
    return 0;
}

static void holder_destroy(struct arena_holder *holder)
{
    arena_kept_forget_holder(holder);
    list_remove(&holder->link);
    list_remove(&holder->client_link);
    close_fd(&holder->event_fd);
    free(holder);
}

struct arena_holder *arena_holder_free(struct arena_holder *holder)
{
    if (holder == NULL)
        return NULL;
    holder->arena->numbers &= ~(1u << holder->number);
    if (!holder->arena->broker->kept_closed)
        arena_kept_number(holder->arena, holder->number, 0);
    holder_destroy(holder);
    return NULL;
}

void arena_holder_enter(struct arena_holder *holder, struct client *client)
{
    list_append(&client->holdings, &holder->client_link);
    client->arena_count++;
    client->arena_chunks += holder->arena->table.layout.max_chunks;
}

/* What the one who left had alone, or was about to give back. */
static void chunks_look(struct arena *arena)
{
    uint32_t number, generation;

    for (uint32_t i = 0; i < arena->top; i++) {
        struct arena_chunk *chunk = arena->chunks[i];

        if (chunk == NULL)
            continue;
        if (!core_lease_chunk(arena->broker->core, arena->lease, i, &number, &generation)) {
            if (chunk->phase != ARENA_EMPTY && chunk->phase != ARENA_LOSING)
                arena_index_emptied(arena, i);
            continue;
        }
        /* It may have looked whether the chunk is vacant, or found that it is. */
        (void) arena_chunk_swap(chunk, ARENA_CHUNK_RETURNING, ARENA_CHUNK_LIVE);
        arena_index_returned(arena, i);
    }
}

void arena_leave(struct arena_holder *holder)
{
    struct arena *arena = holder->arena;
    struct client *client = client_find(arena->broker, holder->client);
    uint32_t bit = 1u << holder->number;

    if (client != NULL && list_linked(&holder->client_link)) {
        client->arena_count--;
        client->arena_chunks -= arena->table.layout.max_chunks;
    }
    restore_leave(arena, holder->client);
    arena_held_drop(arena, holder->client);
    holder_destroy(holder);
    if (list_empty(&arena->holders)) {
        arena_drop(arena);
        return;
    }
    arena->departed |= bit;
    if (!list_linked(&arena->departed_link))
        list_append(&hosting_of(arena)->departed, &arena->departed_link);
    chunks_look(arena);
    hosting_kick(hosting_of(arena));
}

/* ------------------------------------------------------------------ who */

struct arena_holder *arena_holder_find(const struct arena *arena, core_id client)
{
    list_for_each(holder, &arena->holders, struct arena_holder, link)
    {
        if (holder->client == client)
            return holder;
    }
    return NULL;
}

struct session *arena_holder_session(const struct arena_holder *holder)
{
    const struct client *client = client_find(holder->arena->broker, holder->client);

    return client != NULL ? client_session(client) : NULL;
}

struct arena_holder *arena_asker(const struct arena *arena)
{
    list_for_each(holder, &arena->holders, struct arena_holder, link)
    {
        if (holder->ready && arena_holder_session(holder) != NULL)
            return holder;
    }
    return NULL;
}

const struct client *arena_client(const struct arena *arena)
{
    const struct arena_holder *holder = list_first(&arena->holders, struct arena_holder, link);

    return holder != NULL ? client_find(arena->broker, holder->client) : NULL;
}

static bool holder_has(const struct arena_holder *holder, uint32_t index)
{
    const struct arena *arena = holder->arena;

    return core_holder_has(arena->broker->core, arena->lease, holder->client, index);
}

const struct client *arena_chunk_client(const struct arena_chunk *chunk)
{
    list_for_each(holder, &chunk->arena->holders, struct arena_holder, link)
    {
        if (holder_has(holder, chunk->index))
            return client_find(chunk->arena->broker, holder->client);
    }
    return arena_client(chunk->arena);
}

bool arena_chunk_reachable(const struct arena_chunk *chunk)
{
    list_for_each(holder, &chunk->arena->holders, struct arena_holder, link)
    {
        if (arena_holder_session(holder) == NULL && holder_has(holder, chunk->index))
            return false;
    }
    return true;
}

/* ------------------------------------------------------------------ chunks */

void arena_spread(struct arena *arena, core_id asker, const struct core_action *action)
{
    struct core_action copy = *action;

    copy.request = 0;
    list_for_each(holder, &arena->holders, struct arena_holder, link)
    {
        struct session *session = arena_holder_session(holder);

        if (holder->client != asker && session != NULL && action->grant.count > 0 &&
            holder_has(holder, action->grant.first))
            session_grant_unasked(session, &copy);
    }
}

void arena_index_returned(struct arena *arena, uint32_t index)
{
    struct arena_chunk *chunk = arena_chunk_find(arena, index);
    uint32_t number, generation;

    if (!core_lease_chunk(arena->broker->core, arena->lease, index, &number, &generation)) {
        arena_index_emptied(arena, index);
        return;
    }
    if (chunk == NULL || chunk->phase != ARENA_MAPPED || chunk->opening ||
        __atomic_load_n(&arena->table.chunks[index].state, __ATOMIC_SEQ_CST) != ARENA_CHUNK_VACANT)
        return; /* it was never mapped there, or is asked for already */
    chunk->beneficiary = arena->tenant;
    recall_add(chunk);
}
