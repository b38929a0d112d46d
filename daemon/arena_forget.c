/*
 * Tables are sparse files: a read of a mapped page that nobody ever wrote would make it one of the
 * broker's memory, 640 MiB for the largest table, and nothing on the device is needed for that. So
 * words are first read by pread(2), which makes none. It takes neither the lock of the file's
 * position nor that of the inode, which a holder of the same file could keep.
 */
#include "daemon/arena_forget.h"

#include <unistd.h>

#include "daemon/arena_kept.h"
#include "daemon/broker.h"
#include "daemon/evict.h"

/* In one turn: about a quarter of a millisecond. */
#define TURN_PAGES 65536
/* Read at once: 5 KiB. */
#define BLOCK_PAGES 128

/* Pages [first, first + count) of the table, at most BLOCK_PAGES, as they were just now. */
static void block_read(
    const struct arena *arena, uint32_t first, uint32_t count, struct arena_table_page *ret)
{
    const struct arena_table *table = &arena->table;
    uint64_t offset = table->layout.page_offset + (uint64_t) first * sizeof(*ret);

    if (pread(arena->table_fd, ret, count * sizeof(*ret), (off_t) offset) ==
        (ssize_t) (count * sizeof(*ret)))
        return;
    for (uint32_t i = 0; i < count; i++)
        ret[i].word = __atomic_load_n(&table->pages[first + i].word, __ATOMIC_SEQ_CST);
}

/* The page was seen not to be FREE. */
static void page_lose(const struct arena_table *table, uint32_t page)
{
    uint64_t *at = &table->pages[page].word, word = __atomic_load_n(at, __ATOMIC_SEQ_CST);

    while (arena_word_state(word) == ARENA_PAGE_RESIDENT ||
           arena_word_state(word) == ARENA_PAGE_EVICTING ||
           arena_word_state(word) == ARENA_PAGE_RESTORING) {
        if (__atomic_compare_exchange_n(at, &word, arena_word_with_state(word, ARENA_PAGE_LOST),
                false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
            break;
    }
}

/* The gone are forgotten in these pages, which also lose their bytes if `lose`. */
static void pages_sweep(
    const struct arena *arena, uint32_t first, uint32_t count, uint32_t gone, bool lose)
{
    struct arena_table_page seen[BLOCK_PAGES];

    for (uint32_t done = 0, n; done < count; done += n) {
        n = MIN(count - done, (uint32_t) BLOCK_PAGES);
        block_read(arena, first + done, n, seen);
        for (uint32_t i = 0; i < n; i++) {
            uint32_t page = first + done + i;

            if (arena_word_state(seen[i].word) == ARENA_PAGE_FREE) {
                arena_table_token_put(&arena->table, page);
                continue;
            }
            arena_table_page_forget(&arena->table, page, gone);
            if (lose)
                page_lose(&arena->table, page);
        }
    }
}

/* ------------------------------------------------------------------ chunks that nobody has */

static void state_set(const struct arena *arena, uint32_t index, enum arena_chunk_state state)
{
    __atomic_store_n(&arena->table.chunks[index].state, (uint32_t) state, __ATOMIC_SEQ_CST);
}

static void chunk_pages_lose(const struct arena *arena, uint32_t index, uint32_t at, uint32_t count)
{
    uint32_t first = index * arena->table.layout.pages_per_chunk;

    pages_sweep(arena, first + at, count, arena->departed | arena->forgetting, true);
}

/* Every page of the chunk has been told. */
static void chunk_lost(struct arena_chunk *chunk)
{
    struct arena *arena = chunk->arena;
    bool mapped = chunk->mapped_early;
    uint32_t number, generation;

    evict_leave(chunk);
    chunk->mapped_early = false;
    mapped = mapped && core_lease_chunk(
                           arena->broker->core, arena->lease, chunk->index, &number, &generation);
    chunk->phase = mapped ? ARENA_MAPPED : ARENA_EMPTY;
    chunk->came_ns = clock_now(arena->broker->clock);
    chunk->due_ns = 0;
    state_set(arena, chunk->index, mapped ? ARENA_CHUNK_LIVE : ARENA_CHUNK_EMPTY);
    arena_chunk_settle(chunk);
}

/* Uses up to `budget` pages; how many it did. */
static uint32_t losing_turn(struct hosting *hosting, uint32_t budget)
{
    uint32_t done = 0;
    struct arena_chunk *chunk;

    while (
        done < budget && (chunk = list_first(&hosting->losing, struct arena_chunk, link)) != NULL) {
        uint32_t pages = chunk->arena->table.layout.pages_per_chunk;
        uint32_t count = MIN(pages - chunk->lose_at, budget - done);

        chunk_pages_lose(chunk->arena, chunk->index, chunk->lose_at, count);
        chunk->lose_at += count;
        done += count;
        if (chunk->lose_at == pages)
            chunk_lost(chunk);
    }
    return done;
}

/* Nobody can allocate there from now on; true if it is to be done in a later turn. */
static bool index_lose(struct arena *arena, uint32_t index)
{
    struct hosting *hosting = arena->broker->hosting[arena->device];
    uint32_t pages = arena->table.layout.pages_per_chunk;
    struct arena_chunk *chunk;

    state_set(arena, index, ARENA_CHUNK_CLOSED);
    hosting_kick(hosting);
    if (hosting->lost_pages + pages > TURN_PAGES && (chunk = arena_chunk_get(arena, index))) {
        evict_leave(chunk);
        chunk->phase = ARENA_LOSING;
        chunk->lose_at = 0;
        list_append(&hosting->losing, &chunk->link);
        return true;
    }
    hosting->lost_pages += pages;
    chunk_pages_lose(arena, index, 0, pages);
    state_set(arena, index, ARENA_CHUNK_EMPTY);
    return false;
}

void arena_index_emptied(struct arena *arena, uint32_t index)
{
    struct arena_chunk *chunk = arena_chunk_find(arena, index);
    bool later = false;

    if (chunk != NULL && chunk->phase == ARENA_LOSING) {
        chunk->mapped_early = false;
        return;
    }
    if (arena_table_shared(&arena->table) && index < arena->table.layout.max_chunks)
        later = index_lose(arena, index);
    chunk = arena_chunk_find(arena, index);
    if (chunk == NULL)
        return;
    chunk->overdue = chunk->filling = chunk->opening = false;
    if (later)
        return;
    evict_leave(chunk);
    chunk->phase = ARENA_EMPTY;
    arena_chunk_settle(chunk);
}

/* ------------------------------------------------------------------ holders that are gone */

static uint32_t arena_forget(struct arena *arena, uint32_t budget)
{
    uint32_t count;

    if (arena->forgetting == 0) {
        arena->forgetting = arena->departed;
        arena->departed = 0;
        arena->forget_at = 0;
    }
    count = MIN(budget, arena->table.page_count - arena->forget_at);
    pages_sweep(arena, arena->forget_at, count, arena->forgetting, false);
    arena->forget_at += count;
    if (arena->forget_at < arena->table.page_count)
        return count;
    for (uint32_t i = 0; i < ARENA_HOLDERS_MAX; i++) {
        if ((arena->forgetting >> i & 1) != 0)
            arena_kept_number(arena, i, 0);
    }
    arena->numbers &= ~arena->forgetting;
    arena->forgetting = 0;
    if (arena->departed == 0)
        list_remove(&arena->departed_link);
    return count + 1;
}

void arena_forget_turn(struct hosting *hosting)
{
    uint32_t left = TURN_PAGES;
    struct arena *arena;

    hosting->lost_pages = 0;
    left -= losing_turn(hosting, left);
    while (
        left > 0 && (arena = list_first(&hosting->departed, struct arena, departed_link)) != NULL)
        left -= MIN(arena_forget(arena, left), left);
    if (left == 0)
        hosting_kick(hosting);
}
