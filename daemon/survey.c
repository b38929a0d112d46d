/*
 * Every word is copied once and counted by what it says. A chunk of which a word makes no sense
 * gets no row: nothing there can be moved, and the cost is its owner's.
 */
#include "daemon/survey.h"

#include <string.h>

#include "base/clock.h"
#include "daemon/arena_holder.h"
#include "daemon/broker.h"
#include "daemon/drop.h"
#include "daemon/segment_request.h"

/* In one turn: about a quarter of a millisecond. */
#define TURN_PAGES 65536
/* Indices without a chunk that are stepped over cost little, not nothing. */
#define INDEX_PAGES 4
#define ROWS_FIRST 256

void survey_begin(struct survey *survey)
{
    survey->count = 0;
    survey->index = 0;
    survey->at = NULL;
    survey->counted = false;
    survey->running = true;
    memset(survey->spare, 0, sizeof(survey->spare));
    memset(survey->carrying, 0, sizeof(survey->carrying));
}

void survey_done(struct survey *survey)
{
    free(survey->chunks);
    free(survey->rows);
    free(survey->order);
    *survey = (struct survey){0};
}

static bool row_room(struct survey *survey)
{
    size_t room = survey->room == 0 ? ROWS_FIRST : 2 * survey->room;
    struct reclaim_chunk *chunks;
    struct survey_row *rows;

    if (survey->count < survey->room)
        return true;
    if (room > SURVEY_ROWS)
        return false;
    chunks = reallocarray(survey->chunks, room, sizeof(*chunks));
    if (chunks != NULL)
        survey->chunks = chunks;
    rows = reallocarray(survey->rows, room, sizeof(*rows));
    if (rows != NULL)
        survey->rows = rows;
    if (chunks == NULL || rows == NULL)
        return false;
    survey->room = room;
    return true;
}

static void resident_count(
    const struct arena_chunk *chunk, uint32_t number, uint64_t word, struct reclaim_chunk *row)
{
    const struct arena_table *table = &chunk->arena->table;
    const struct arena_table_page *page =
        &table->pages[(size_t) chunk->index * table->layout.pages_per_chunk + number];
    uint32_t flags = __atomic_load_n(&page->flags, __ATOMIC_RELAXED);

    row->resident++;
    /* One without references is about to be freed: it is neither copied nor in the way for long. */
    if (arena_word_pins(word) > 0)
        row->pinned++;
    if (drop_allows(chunk, number, word)) {
        row->recomputable++;
        row->continued += drop_torn(chunk, number);
    }
    if ((flags & ARENA_PAGE_HINTED) != 0)
        row->recompute_cost += (double) __atomic_load_n(&page->tokens, __ATOMIC_RELAXED) *
                               (double) __atomic_load_n(&page->position, __ATOMIC_RELAXED);
}

/* False when the chunk's pages make no sense. */
static bool pages_count(struct arena_chunk *chunk, struct reclaim_chunk *row)
{
    const struct arena_table *table = &chunk->arena->table;
    uint32_t per_chunk = table->layout.pages_per_chunk;
    const struct arena_table_page *pages = &table->pages[(size_t) chunk->index * per_chunk];

    for (uint32_t i = 0; i < per_chunk; i++) {
        uint64_t word = __atomic_load_n(&pages[i].word, __ATOMIC_RELAXED);

        switch (arena_word_state(word)) {
        case ARENA_PAGE_FREE:
            row->free++;
            break;
        case ARENA_PAGE_RESIDENT:
            resident_count(chunk, i, word, row);
            break;
        case ARENA_PAGE_EVICTED:
            row->evicted++;
            break;
        case ARENA_PAGE_LOST:
            break;
        case ARENA_PAGE_EVICTING:
        case ARENA_PAGE_RESTORING:
            arena_blame(chunk->arena, chunk, "a page is being moved by nobody");
            return false;
        case ARENA_PAGE_STATE_MAX:
        default: /* four bits of shared memory hold more than the enum */
            arena_blame(chunk->arena, chunk, "a page has a state that doesn't exist");
            return false;
        }
    }
    return true;
}

static uint64_t idle_ns(const struct arena_chunk *chunk, uint64_t now)
{
    const struct arena_table_chunk *shared = &chunk->arena->table.chunks[chunk->index];
    uint32_t last = __atomic_load_n(&shared->last_use, __ATOMIC_RELAXED);
    int32_t ticks = (int32_t) ((uint32_t) (now / ARENA_TICK_NS) - last);

    return ticks > 0 ? (uint64_t) ticks * ARENA_TICK_NS : 0;
}

static bool chunk_eligible(const struct arena_chunk *chunk, uint64_t now)
{
    const struct arena_table_chunk *shared = &chunk->arena->table.chunks[chunk->index];

    return chunk->phase == ARENA_MAPPED && !chunk->opening && chunk->jobs == 0 &&
           chunk->wants == 0 && chunk->due_ns <= now &&
           __atomic_load_n(&shared->state, __ATOMIC_SEQ_CST) == ARENA_CHUNK_LIVE &&
           arena_chunk_reachable(chunk);
}

/* What nobody has, and nobody waits for, can be demoted whole. */
static bool segment_eligible(const struct segment *segment, const struct hosting *hosting)
{
    return segment->device == hosting->device && segment->state == SEGMENT_SEALED &&
           segment->readers == 0 && segment->summed && segment->walk.kind == SEGMENT_WALK_NONE &&
           !segment_awaited(segment);
}

static void segments_survey(struct survey *survey, const struct hosting *hosting, uint64_t now)
{
    list_for_each(segment, &hosting->broker->segments->all, struct segment, all_link)
    {
        if (!segment_eligible(segment, hosting))
            continue;
        if (!row_room(survey))
            return;
        survey->chunks[survey->count] = (struct reclaim_chunk){
            .tenant = segment->space->tenant,
            .bytes = segment->chunks * segment->chunk_bytes,
            .page_bytes = segment->piece_bytes,
            .resident = segment->pieces,
            .idle_ns = sub_saturate(now, segment->idle_ns),
            .here_ns = sub_saturate(now, segment->verified_ns),
            .token = survey->count,
            .segment = true,
        };
        survey->rows[survey->count++] = (struct survey_row){.lease = segment->lease};
    }
}

/* Adds a row for the chunk; false when there is no room for more. */
static bool chunk_survey(struct survey *survey, struct arena_chunk *chunk, uint64_t now)
{
    struct reclaim_chunk row = {
        .tenant = chunk->arena->tenant,
        .bytes = chunk->arena->table.layout.chunk_bytes,
        .page_bytes = chunk->arena->table.layout.page_bytes,
        .token = survey->count,
    };

    if (!chunk_eligible(chunk, now))
        return true;
    if (!row_room(survey))
        return false;
    if (!pages_count(chunk, &row))
        return true;
    row.idle_ns = idle_ns(chunk, now);
    row.here_ns = sub_saturate(now, chunk->came_ns);
    survey->chunks[survey->count] = row;
    survey->rows[survey->count++] =
        (struct survey_row){.lease = chunk->arena->lease, .index = chunk->index};
    return true;
}

static struct arena *arena_after(struct hosting *hosting, const struct arena *arena)
{
    struct list *next = arena != NULL ? arena->device_link.next : hosting->arenas.next;

    return next != &hosting->arenas ? container_of(next, struct arena, device_link) : NULL;
}

static bool arena_surveyed(const struct arena *arena)
{
    /* One that nobody can be asked about gives nothing. */
    return !arena->dropped && arena_asker(arena) != NULL;
}

static void arena_goto(struct survey *survey, struct arena *arena)
{
    survey->at = arena;
    survey->index = 0;
    survey->counted = false;
    free(TAKE_PTR(survey->order));
}

/* False when there is more to count in a later turn. */
static bool arena_count(struct survey *survey, uint32_t *seen)
{
    struct arena *arena = survey->at;

    for (; !survey->counted && survey->index < arena->top; survey->index++) {
        const struct arena_chunk *chunk = arena->chunks[survey->index];

        if (*seen >= TURN_PAGES)
            return false;
        *seen += chunk != NULL ? drop_count(chunk, &survey->order) : INDEX_PAGES;
    }
    if (survey->counted)
        return true;
    free(arena->order);
    arena->order = TAKE_PTR(survey->order);
    survey->counted = true;
    survey->index = 0;
    return true;
}

bool survey_turn(struct survey *survey, struct hosting *hosting)
{
    uint64_t now = clock_now(hosting->broker->clock);
    uint32_t seen = 0;

    if (survey->at == NULL)
        arena_goto(survey, arena_after(hosting, NULL));
    while (survey->at != NULL) {
        struct arena *arena = survey->at;

        if (arena_surveyed(arena) && !arena_count(survey, &seen))
            return false;
        while (arena_surveyed(arena) && survey->index < arena->top) {
            struct arena_chunk *chunk = arena->chunks[survey->index];

            if (seen >= TURN_PAGES)
                return false;
            /* What the worker freed since in the host tier has room for what a plan evicts. */
            if (chunk != NULL && chunk->slots > 0) {
                arena_slots_sweep(chunk);
                survey->spare[arena->tenant] += chunk->spare * arena->table.layout.page_bytes;
                survey->carrying[arena->tenant] += chunk->carrying * arena->table.layout.page_bytes;
            }
            if (chunk != NULL && !chunk_survey(survey, chunk, now)) {
                survey->running = false;
                return true;
            }
            seen += chunk != NULL ? arena->table.layout.pages_per_chunk : INDEX_PAGES;
            if (chunk != NULL)
                arena_chunk_settle(chunk);
            survey->index++;
        }
        arena_goto(survey, arena_after(hosting, arena));
    }
    segments_survey(survey, hosting, now);
    survey->running = false;
    return true;
}

void survey_forget(struct survey *survey, struct hosting *hosting, const struct arena *arena)
{
    if (survey->at != arena)
        return;
    arena_goto(survey, arena_after(hosting, arena));
    /* None behind it: what is left to see is nothing, not everything again. */
    survey->running = survey->running && survey->at != NULL;
}
