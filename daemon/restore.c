/*
 * While pages are being restored their chunk is closed in the table. A worker may free a page that
 * is on its way back; were the chunk open, it could be allocated again and the mover would write
 * old bytes over new ones.
 */
#include "daemon/restore.h"

#include <errno.h>

#include "base/log.h"
#include "daemon/arena_holder.h"
#include "daemon/broker.h"
#include "daemon/evict.h"
#include "daemon/grant.h"
#include "proto/frame.h"

/* Requests of the broker's own for one arena at a time, each for a run of at most one frame's
 * chunks. So many that what a worker waits for at once stands together in its tenant's queue: mixed
 * with that of others, each gets a part, pins it, and waits for the rest. */
#define FILLS_MAX 64
#define FILL_CHUNKS LIMIT_FRAME_FDS
/* A refused one is tried again after this: the pins still wait. */
#define FILL_PAUSE_NS (50 * NSEC_PER_MSEC)
/* Jobs that a page may be in before it is given up, each of which outlives several movers; or, of
 * one that can be computed again, tries of a disk that fails. */
#define TRIES 4
/* A chunk that the library is about to give back is looked at again after this. */
#define RETURNING_PAUSE_NS (2 * NSEC_PER_MSEC)
/* Chunks whose pages are started in one turn. */
#define TURN_CHUNKS 64

struct fill {
    struct list link; /* arena.fills */
    uint64_t id;
    core_id client; /* the holder that asks */
    uint32_t first, count;
};

static struct hosting *hosting_of(const struct arena *arena)
{
    return arena->broker->hosting[arena->device];
}

/* ------------------------------------------------------------------ who waits */

/* The core is told when the step that runs is over. Nobody notes which holder
 * wants a page: all of a shared arena wait. */
static void waits_note(struct arena *arena)
{
    bool waits = !list_empty(&arena->wanted) || arena->restores > 0;

    if (waits == arena->waits)
        return;
    arena->waits = waits;
    list_for_each(holder, &arena->holders, struct arena_holder, link)
    {
        struct client *client = client_find(arena->broker, holder->client);

        if (client != NULL && !list_linked(&client->noted_link))
            list_append(&arena->broker->noted, &client->noted_link);
    }
}

static void client_waits_tell(struct broker *broker, struct client *client)
{
    uint64_t waiting = 0, changed;

    list_for_each(holder, &client->holdings, struct arena_holder, client_link) waiting |=
        (uint64_t) holder->arena->waits << holder->arena->device;
    for (changed = waiting ^ client->restoring; changed != 0; changed &= changed - 1) {
        uint32_t device = (uint32_t) __builtin_ctzll(changed);
        struct core_event event = {
            .type = CORE_EVENT_RESTORE_WAIT,
            .restore_wait.device = device,
            .restore_wait.waits = (waiting >> device & 1) != 0,
            .client = client->id,
        };

        broker_step(broker, &event);
    }
    client->restoring = waiting;
}

void restore_waits_tell(struct broker *broker)
{
    struct client *client;

    while ((client = list_first(&broker->noted, struct client, noted_link)) != NULL) {
        list_remove(&client->noted_link);
        client_waits_tell(broker, client);
    }
}

/* ------------------------------------------------------------------ wishes */

static void page_want(struct arena *arena, struct arena_chunk *chunk, uint32_t page)
{
    struct arena_page *record = chunk != NULL && chunk->pages != NULL ? &chunk->pages[page] : NULL;
    uint64_t word;

    if (record == NULL || record->wanted || record->job != ARENA_PAGE_IDLE)
        return;
    word = __atomic_load_n(arena_page_word(chunk, page), __ATOMIC_SEQ_CST);
    if (arena_word_state(word) != ARENA_PAGE_EVICTED)
        return;
    /* Dropped, or nothing that the broker knows of. */
    if (record->slot == ARENA_NO_SLOT || record->generation != arena_word_generation(word)) {
        (void) arena_page_swap(chunk, page, word, ARENA_PAGE_LOST);
        return;
    }
    record->wanted = true;
    chunk->wants++;
    if (!list_linked(&chunk->wanted))
        list_append(&arena->wanted, &chunk->wanted);
}

void restore_want(struct arena *arena, const uint32_t *pages, size_t count)
{
    uint32_t per_chunk = arena->table.layout.pages_per_chunk;
    struct hosting *hosting = hosting_of(arena);

    for (size_t i = 0; i < count; i++) {
        if (pages[i] < arena->table.page_count)
            page_want(arena, arena->chunks[pages[i] / per_chunk], pages[i] % per_chunk);
    }
    /* Some may be there by now, or lost: it is to look. */
    arena_notify(arena);
    waits_note(arena);
    if (list_empty(&arena->wanted))
        return;
    if (!list_linked(&arena->wanted_link))
        list_append(&hosting->wanting, &arena->wanted_link);
    hosting_kick(hosting);
}

static void chunk_unwant(struct arena_chunk *chunk)
{
    uint32_t count = chunk->arena->table.layout.pages_per_chunk;

    for (uint32_t i = 0; chunk->pages != NULL && i < count; i++)
        chunk->pages[i].wanted = false;
    chunk->wants = 0;
    list_remove(&chunk->wanted);
}

/* ------------------------------------------------------------------ chunks to restore into */

static bool chunk_filled(const struct arena_chunk *chunk)
{
    uint32_t number, generation;

    return core_lease_chunk(
        chunk->arena->broker->core, chunk->arena->lease, chunk->index, &number, &generation);
}

static bool chunk_needs_fill(const struct arena_chunk *chunk)
{
    return chunk->phase == ARENA_EMPTY && !chunk->filling && chunk->wants > 0 &&
           !chunk_filled(chunk);
}

static void fill_submit(struct arena *arena, uint32_t first, uint32_t count)
{
    const struct arena_holder *asker = arena_asker(arena);
    struct fill *fill = asker != NULL ? malloc(sizeof(*fill)) : NULL;
    struct core_event event = {
        .type = CORE_EVENT_ARENA_FILL,
        .arena_fill.lease = arena->lease,
        .arena_fill.first = first,
        .arena_fill.count = count,
        .arena_fill.wait_ns = UINT64_MAX,
        .arena_fill.urgent = true,
        .client = asker != NULL ? asker->client : 0,
    };

    if (fill == NULL)
        return; /* the turn after the pause tries again */
    *fill = (struct fill){.client = asker->client, .first = first, .count = count};
    fill->id = FRAME_BROKER_ID | ++arena->broker->fills;
    list_init(&fill->link);
    list_append(&arena->fills, &fill->link);
    arena->fill_count++;
    for (uint32_t i = first; i < first + count; i++)
        arena->chunks[i]->filling = true;
    event.request = fill->id;
    broker_step(arena->broker, &event);
}

/* Asks for the run of wanted indices around the chunk. */
static void run_fill(struct arena *arena, const struct arena_chunk *chunk)
{
    uint32_t first = chunk->index, end = first + 1;

    while (first > 0 && end - first < FILL_CHUNKS && arena->chunks[first - 1] != NULL &&
           chunk_needs_fill(arena->chunks[first - 1]))
        first--;
    while (end < arena->top && end - first < FILL_CHUNKS && arena->chunks[end] != NULL &&
           chunk_needs_fill(arena->chunks[end]))
        end++;
    fill_submit(arena, first, end - first);
}

static struct fill *fill_find(
    const struct broker *broker, core_id client_id, uint64_t id, struct arena **ret_arena)
{
    const struct client *client = client_find(broker, client_id);

    if (client == NULL)
        return NULL;
    list_for_each(holder, &client->holdings, struct arena_holder, client_link)
    {
        list_for_each(fill, &holder->arena->fills, struct fill, link)
        {
            if (fill->id != id)
                continue;
            *ret_arena = holder->arena;
            return fill;
        }
    }
    return NULL;
}

static void fill_remove(struct arena *arena, struct fill *fill)
{
    list_remove(&fill->link);
    free(fill);
    arena->fill_count--;
}

void restore_answer(struct broker *broker, const struct core_action *action)
{
    struct arena *arena;
    struct fill *fill = fill_find(broker, action->client, action->request, &arena);
    struct session *session;

    if (fill == NULL)
        return; /* the answer to a withdrawal */
    if (action->type == CORE_ACTION_GRANT) {
        session = client_find(broker, action->client)->session;
        if (session != NULL)
            session_grant_unasked(session, action);
        arena_spread(arena, action->client, action);
    } else {
        for (uint32_t i = fill->first; i < fill->first + fill->count; i++) {
            if (arena->chunks[i] != NULL)
                arena->chunks[i]->filling = false;
        }
        arena->fill_after_ns = clock_now(broker->clock) + FILL_PAUSE_NS;
        log_debug("arena %llu gets no chunks to restore into: %s",
            (unsigned long long) arena->lease, action->refuse.text);
        hosting_kick(hosting_of(arena));
    }
    fill_remove(arena, fill);
}

static struct fill *fill_of(const struct arena *arena, core_id client)
{
    list_for_each(fill, &arena->fills, struct fill, link)
    {
        if (fill->client == client)
            return fill;
    }
    return NULL;
}

/* It is as if it had never been asked for. */
static void fill_forget(struct arena *arena, struct fill *fill)
{
    for (uint32_t i = fill->first; i < fill->first + fill->count; i++) {
        if (arena->chunks[i] != NULL)
            arena->chunks[i]->filling = false;
    }
    fill_remove(arena, fill);
}

void restore_withdraw(struct arena *arena, core_id client)
{
    struct fill *fill;

    while ((fill = fill_of(arena, client)) != NULL) {
        struct core_event event = {
            .type = CORE_EVENT_CANCEL,
            .client = client,
            .request = FRAME_BROKER_ID | ++arena->broker->fills,
            .cancel.request = fill->id,
        };

        fill_forget(arena, fill);
        broker_step(arena->broker, &event);
    }
}

void restore_leave(struct arena *arena, core_id client)
{
    struct fill *fill;
    bool others = false;

    while ((fill = fill_of(arena, client)) != NULL)
        fill_forget(arena, fill);
    list_for_each(holder, &arena->holders, struct arena_holder, link) others =
        others || (holder->client != client && arena_holder_session(holder) != NULL);
    if (others)
        hosting_kick(hosting_of(arena));
    else
        restore_cancel(arena);
}

void restore_cancel(struct arena *arena)
{
    list_for_each_safe(fill, &arena->fills, struct fill, link) fill_remove(arena, fill);
    list_for_each_safe(chunk, &arena->wanted, struct arena_chunk, wanted) chunk_unwant(chunk);
    list_remove(&arena->wanted_link);
    waits_note(arena);
}

/* ------------------------------------------------------------------ bytes */

static void page_restore(struct hosting *hosting, struct arena_chunk *chunk, uint32_t page)
{
    struct arena_page *record = &chunk->pages[page];
    uint64_t word = __atomic_load_n(arena_page_word(chunk, page), __ATOMIC_SEQ_CST);

    record->wanted = false;
    chunk->wants--;
    while (arena_word_state(word) == ARENA_PAGE_EVICTED &&
           arena_word_generation(word) == record->generation) {
        if (arena_page_swap(chunk, page, word, ARENA_PAGE_RESTORING)) {
            if (!move_add(hosting, MOVER_RESTORE, chunk, page))
                restore_page_done(chunk, page, -EAGAIN, false);
            return;
        }
        word = __atomic_load_n(arena_page_word(chunk, page), __ATOMIC_SEQ_CST);
    }
    arena_slot_give(chunk, page); /* freed meanwhile */
}

/* Wanted, and not on a disk that isn't to be asked now. */
static bool page_ready(const struct hosting *hosting, const struct arena_page *record)
{
    return record->wanted &&
           (!disk_failing(hosting) || tier_backing(hosting->tier, record->slot) == TIER_MEMORY);
}

static bool chunk_ready(const struct hosting *hosting, const struct arena_chunk *chunk)
{
    uint32_t count = chunk->arena->table.layout.pages_per_chunk;

    for (uint32_t page = 0; disk_failing(hosting) && page < count; page++) {
        if (page_ready(hosting, &chunk->pages[page]))
            return true;
    }
    return !disk_failing(hosting);
}

/* Closed as long as anything is written there; an attempt to empty it is given up. */
static bool chunk_close(struct arena_chunk *chunk)
{
    if (chunk->phase == ARENA_CLOSING) {
        evict_leave(chunk);
        chunk->phase = ARENA_MAPPED;
        return true;
    }
    return chunk->restores > 0 || arena_chunk_swap(chunk, ARENA_CHUNK_LIVE, ARENA_CHUNK_CLOSED);
}

/* The chunk can't be closed. The library sets it RETURNING for a moment, to look whether it may go:
 * what is wanted there waits until it is LIVE again or given back. */
static void chunk_put_off(struct hosting *hosting, struct arena_chunk *chunk)
{
    const struct arena_table_chunk *shared = &chunk->arena->table.chunks[chunk->index];

    uint32_t state = __atomic_load_n(&shared->state, __ATOMIC_SEQ_CST);

    if (state == ARENA_CHUNK_RETURNING || state == ARENA_CHUNK_VACANT) {
        hosting_at(hosting, clock_now(hosting->broker->clock) + RETURNING_PAUSE_NS);
        return;
    }
    arena_blame(chunk->arena, chunk, "pages are wanted there, and it isn't live");
    chunk_unwant(chunk);
}

static bool chunk_restore(struct hosting *hosting, struct arena_chunk *chunk)
{
    uint32_t count = chunk->arena->table.layout.pages_per_chunk;

    if (!chunk_close(chunk)) {
        chunk_put_off(hosting, chunk);
        return false;
    }
    for (uint32_t page = 0; chunk->wants > 0 && page < count; page++) {
        if (page_ready(hosting, &chunk->pages[page]))
            page_restore(hosting, chunk, page);
    }
    if (chunk->wants == 0)
        list_remove(&chunk->wanted);
    chunk->opening = true;
    return true;
}

static void arena_turn(struct hosting *hosting, struct arena *arena, uint64_t now)
{
    struct arena_chunk *chunks[TURN_CHUNKS];
    unsigned done = 0;

    list_for_each_safe(chunk, &arena->wanted, struct arena_chunk, wanted)
    {
        if (done >= TURN_CHUNKS || !move_room(hosting))
            break;
        if ((chunk->phase != ARENA_MAPPED && chunk->phase != ARENA_CLOSING) ||
            !chunk_ready(hosting, chunk))
            continue;
        if (chunk_restore(hosting, chunk))
            chunks[done++] = chunk;
    }
    move_flush(hosting);
    /* Where no page needed a job after all. */
    for (unsigned i = 0; i < done; i++)
        restore_chunk_done(chunks[i]);
    if (done == TURN_CHUNKS)
        hosting_kick(hosting);
    list_for_each_safe(chunk, &arena->wanted, struct arena_chunk, wanted)
    {
        if (arena->fill_count >= FILLS_MAX || now < arena->fill_after_ns)
            break;
        if (chunk_needs_fill(chunk) && chunk_ready(hosting, chunk))
            run_fill(arena, chunk);
    }
    if (now < arena->fill_after_ns)
        hosting_at(hosting, arena->fill_after_ns);
    if (list_empty(&arena->wanted))
        list_remove(&arena->wanted_link);
    waits_note(arena);
}

void restore_turn(struct hosting *hosting)
{
    uint64_t now = clock_now(hosting->broker->clock);

    list_for_each_safe(arena, &hosting->wanting, struct arena, wanted_link)
        arena_turn(hosting, arena, now);
}

/* What becomes of a page whose job failed. Never started, its movers died, or the disk failed: the
 * bytes are where they were, to be wanted again. */
static enum arena_page_state state_failed(struct arena_chunk *chunk, uint32_t page, int error)
{
    const struct arena_table *table = &chunk->arena->table;
    size_t number = (size_t) chunk->index * table->layout.pages_per_chunk + page;
    struct arena_page *record = &chunk->pages[page];
    uint32_t flags;

    if (error == -EAGAIN || error == -ENOMEM)
        return ARENA_PAGE_EVICTED;
    if (record->failures < TRIES)
        record->failures++;
    flags = __atomic_load_n(&table->pages[number].flags, __ATOMIC_RELAXED);
    if (error == -EREMOTEIO && (flags & ARENA_PAGE_RECOMPUTABLE) == 0)
        return ARENA_PAGE_EVICTED;
    return record->failures < TRIES ? ARENA_PAGE_EVICTED : ARENA_PAGE_LOST;
}

void restore_page_done(struct arena_chunk *chunk, uint32_t page, int error, bool damaged)
{
    struct arena_page *record = &chunk->pages[page];
    enum arena_page_state state = ARENA_PAGE_RESIDENT;
    uint64_t word;

    record->job = ARENA_PAGE_IDLE;
    if (error < 0)
        state = state_failed(chunk, page, error);
    else if (damaged)
        state = ARENA_PAGE_LOST;
    do {
        word = __atomic_load_n(arena_page_word(chunk, page), __ATOMIC_SEQ_CST);
        if (arena_word_state(word) != ARENA_PAGE_RESTORING ||
            arena_word_generation(word) != record->generation) {
            state = ARENA_PAGE_FREE;
            break;
        }
    } while (!arena_page_swap(chunk, page, word, state));
    if (state == ARENA_PAGE_RESIDENT)
        (void) __atomic_add_fetch(&chunk->arena->table.shared->restores, 1, __ATOMIC_RELAXED);
    if (state == ARENA_PAGE_LOST)
        log_warning("page %u of arena %llu is lost: %s",
            chunk->index * chunk->arena->table.layout.pages_per_chunk + page,
            (unsigned long long) chunk->arena->lease,
            damaged ? "its bytes in the host tier are damaged" : "it could not be copied back");
    if (state != ARENA_PAGE_EVICTED) {
        arena_slot_give(chunk, page);
        return;
    }
    record->wanted = true;
    chunk->wants++;
    if (!list_linked(&chunk->wanted))
        list_append(&chunk->arena->wanted, &chunk->wanted);
    if (!list_linked(&chunk->arena->wanted_link) && !chunk->arena->dropped)
        list_append(&hosting_of(chunk->arena)->wanting, &chunk->arena->wanted_link);
}

void restore_chunk_done(struct arena_chunk *chunk)
{
    struct arena *arena = chunk->arena;

    waits_note(arena);
    if (chunk->restores > 0 || !chunk->opening)
        return;
    chunk->opening = false;
    if (chunk->phase == ARENA_MAPPED &&
        !arena_chunk_swap(chunk, ARENA_CHUNK_CLOSED, ARENA_CHUNK_LIVE))
        arena_blame(arena, chunk, "somebody else opened it while pages were restored");
    arena_notify(arena);
    arena_chunk_settle(chunk);
}
