/*
 * What was on its way when the connection broke is lost: a grant, a recall, the word that a chunk
 * was mapped. So each chunk is brought to where it would be had nothing been lost. What the broker
 * itself does with a chunk, emptying it or restoring pages there, needs no worker and goes on.
 */
#include "daemon/arena_resume.h"

#include "daemon/arena_attach.h"
#include "daemon/broker.h"
#include "daemon/recall.h"
#include "proto/frame.h"

static bool holder_has(const struct arena_holder *holder, uint32_t index)
{
    const struct arena *arena = holder->arena;

    return core_holder_has(arena->broker->core, arena->lease, holder->client, index);
}

/* Takes back the run that begins at `first` and that the core has as the holder's; the index behind
 * it. */
static uint32_t run_take(struct arena_holder *holder, uint32_t first, uint32_t end)
{
    struct arena *arena = holder->arena;
    struct core_event event = {
        .type = CORE_EVENT_ARENA_RETURN,
        .client = holder->client,
        .arena_return = {.lease = arena->lease, .first = first},
    };
    uint32_t at = first;

    while (at < end && holder_has(holder, at))
        at++;
    if (at == first)
        return first + 1;
    event.arena_return.count = at - first;
    event.request = FRAME_BROKER_ID | ++arena->broker->fills;
    broker_step(arena->broker, &event);
    for (uint32_t i = first; i < at; i++)
        arena_index_returned(arena, i);
    return at;
}

static bool chunk_mapped(struct arena_holder *holder, uint32_t index)
{
    struct arena *arena = holder->arena;
    struct arena_chunk *chunk;

    if (!holder_has(holder, index))
        return false;
    chunk = arena_chunk_get(arena, index);
    if (chunk == NULL)
        return false;
    if (chunk->phase == ARENA_LOSING)
        chunk->mapped_early = true;
    if (chunk->phase != ARENA_EMPTY)
        return true;
    chunk->phase = ARENA_MAPPED;
    chunk->came_ns = clock_now(arena->broker->clock);
    chunk->due_ns = 0;
    chunk->overdue = chunk->filling = false;
    if (arena_table_shared(&arena->table))
        (void) arena_chunk_swap(chunk, ARENA_CHUNK_EMPTY, ARENA_CHUNK_LIVE);
    /* A broker before was emptying it, or restoring pages there. */
    (void) arena_chunk_swap(chunk, ARENA_CHUNK_CLOSED, ARENA_CHUNK_LIVE);
    return true;
}

bool arena_resume(struct arena_holder *holder, uint32_t from, uint32_t first, uint32_t end)
{
    for (uint32_t i = from; i < first;)
        i = run_take(holder, i, first);
    for (uint32_t i = first; i < end; i++) {
        if (!chunk_mapped(holder, i))
            return false;
    }
    return true;
}

void arena_resume_end(struct arena_holder *holder)
{
    struct arena *arena = holder->arena;

    for (uint32_t i = 0; i < arena->top; i++) {
        struct arena_chunk *chunk = arena->chunks[i];

        if (chunk == NULL || chunk->phase != ARENA_RECALLED || !holder_has(holder, i))
            continue;
        list_remove(&chunk->link);
        recall_add(chunk);
    }
    if (arena_table_shared(&arena->table))
        arena_holder_open(holder);
    hosting_kick(arena->broker->hosting[arena->device]);
}
