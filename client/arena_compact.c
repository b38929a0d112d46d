/*
 * A plan that empties chunks: pages of the emptiest ones into what is free in the fullest. A chunk
 * is planned as a whole or not at all, since half an emptied chunk is worth nothing; and only while
 * the pages that stay behind in fuller chunks leave room for all of it.
 */
#include "client/arena.h"
#include "client/fork.h"

#include <stdlib.h>

struct candidate {
    uint32_t chunk, used, free;
};

static int by_use(const void *a, const void *b)
{
    const struct candidate *left = a, *right = b;

    if (left->used != right->used)
        return left->used < right->used ? -1 : 1;
    /* Of equals the highest goes first, so that low indices stay filled. */
    return left->chunk > right->chunk ? -1 : left->chunk < right->chunk;
}

static bool page_free(const struct arena_table *table, uint32_t page)
{
    uint64_t word = __atomic_load_n(&table->pages[page].word, __ATOMIC_RELAXED);

    return arena_word_state(word) == ARENA_PAGE_FREE;
}

/* Live chunks in the order in which they would be emptied. */
static uint32_t candidates_list(const struct gmb_arena *arena, uint32_t top, struct candidate *ret)
{
    const struct arena_table *table = &arena->pool.table;
    uint32_t per_chunk = table->layout.pages_per_chunk, count = 0;

    for (uint32_t chunk = 0; chunk < top; chunk++) {
        uint32_t free;

        if (arena_chunk_state(table, chunk) != ARENA_CHUNK_LIVE)
            continue;
        free = arena_chunk_free(table, chunk);
        if (free < per_chunk)
            ret[count++] = (struct candidate){chunk, per_chunk - free, free};
    }
    qsort(ret, count, sizeof(*ret), by_use);
    return count;
}

/* The pages of a chunk, if all of them can move and there are at most `max`; else 0. */
static size_t chunk_pages(
    const struct arena_table *table, uint32_t chunk, size_t max, uint32_t *ret)
{
    uint32_t per_chunk = table->layout.pages_per_chunk, first = chunk * per_chunk;
    size_t count = 0;

    for (uint32_t page = first; page < first + per_chunk; page++) {
        if (page_free(table, page))
            continue;
        if (!arena_page_movable(table, page) || count == max)
            return 0;
        ret[count++] = page;
    }
    return count;
}

/* Allocates room for `n` pages in the fullest of `targets` (ordered by use); all or nothing. */
static bool room_take(
    struct gmb_arena *arena, struct candidate *targets, uint32_t count, size_t n, uint32_t *ret)
{
    uint32_t now = arena_clock();
    size_t taken = 0;

    for (uint32_t i = count; i-- > 0 && taken < n;) {
        size_t part = MIN((size_t) targets[i].free, n - taken);

        if (part == 0 || arena_chunk_alloc(
                             &arena->pool, targets[i].chunk, part, ret + taken, now) != ARENA_OP_OK)
            continue;
        targets[i].free -= (uint32_t) part;
        taken += part;
    }
    if (taken == n)
        return true;
    (void) arena_pages_unref(&arena->pool.table, taken, ret);
    return false;
}

static uint64_t room_count(const struct candidate *targets, uint32_t count)
{
    uint64_t room = 0;

    for (uint32_t i = 0; i < count; i++)
        room += targets[i].free;
    return room;
}

static size_t compact(struct gmb_arena *arena, struct candidate *candidates, uint32_t top,
    size_t max, uint32_t *ret_old, uint32_t *ret_new)
{
    const struct arena_table *table = &arena->pool.table;
    uint32_t count = candidates_list(arena, top, candidates);
    size_t moves = 0;

    for (uint32_t i = 0; i + 1 < count && moves < max; i++) {
        struct candidate *targets = candidates + i + 1;
        size_t pages;

        if (room_count(targets, count - i - 1) < candidates[i].used)
            break;
        pages = chunk_pages(table, candidates[i].chunk, max - moves, ret_old + moves);
        if (pages == 0 || !room_take(arena, targets, count - i - 1, pages, ret_new + moves))
            continue;
        for (size_t j = 0; j < pages; j++)
            arena_page_copy_hint(table, ret_old[moves + j], ret_new[moves + j]);
        moves += pages;
    }
    return moves;
}

/* What continued a page continues what that becomes, wherever it lies, and moved itself or not. */
static void links_move(const struct gmb_arena *arena, uint32_t *next, uint32_t top, size_t moves,
    const uint32_t *old, const uint32_t *new)
{
    const struct arena_table *table = &arena->pool.table;
    uint32_t pages = top * table->layout.pages_per_chunk;

    for (size_t i = 0; i < moves; i++)
        next[old[i]] = new[i] + 1;
    for (uint32_t page = 0; page < pages; page++) {
        uint32_t parent;

        if (arena_page_parent(table, page, &parent) && parent < pages && next[parent] > 0)
            arena_page_replace_parent(table, page, parent, next[parent] - 1);
    }
}

_public_ int gmb_arena_compact(gmb_arena *arena, size_t max, uint32_t *ret_old, uint32_t *ret_new)
{
    struct outcome outcome = OUTCOME_OK;
    uint32_t top = arena_pool_top(&arena->pool);
    struct candidate *candidates;
    uint32_t *next; /* what a page becomes + 1 */
    int r = fork_guard_check(arena->lease.session, &outcome);

    if (r < 0)
        return outcome_publish(&outcome);
    candidates = calloc(MAX(top, 1U), sizeof(*candidates));
    next = calloc(
        MAX((size_t) top * arena->pool.table.layout.pages_per_chunk, (size_t) 1), sizeof(*next));
    if (candidates != NULL && next != NULL) {
        r = (int) compact(arena, candidates, top, MIN(max, (size_t) INT32_MAX), ret_old, ret_new);
        links_move(arena, next, r > 0 ? top : 0, (size_t) r, ret_old, ret_new);
    } else {
        (void) outcome_set(&outcome, GMB_E_INTERNAL, "no host memory for a plan");
        r = outcome_publish(&outcome);
    }
    free(candidates);
    free(next);
    return r;
}
