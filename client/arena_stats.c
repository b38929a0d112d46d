/* Counting what the page table says now: a walk over all of it, for people. */
#include "client/arena.h"
#include "client/fork.h"

static void pages_count(const struct arena_table *table, struct gmb_arena_stats *stats)
{
    for (uint32_t page = 0; page < table->page_count; page++) {
        uint64_t word = __atomic_load_n(&table->pages[page].word, __ATOMIC_RELAXED);

        switch (arena_word_state(word)) {
        case ARENA_PAGE_EVICTED:
        case ARENA_PAGE_RESTORING:
            stats->evicted_pages++;
            stats->used_pages++;
            break;
        case ARENA_PAGE_RESIDENT:
        case ARENA_PAGE_EVICTING:
        case ARENA_PAGE_LOST:
            stats->used_pages++;
            break;
        case ARENA_PAGE_FREE:
        case ARENA_PAGE_STATE_MAX:
            break;
        }
    }
}

static void chunks_count(const struct gmb_arena *arena, struct gmb_arena_stats *stats)
{
    const struct arena_table *table = &arena->pool.table;

    (void) pthread_mutex_lock(&arena->lease.session->lock);
    for (uint32_t chunk = 0; chunk < table->layout.max_chunks; chunk++) {
        if (arena->local[chunk] < ARENA_LOCAL_MAPPED)
            continue;
        stats->mapped_bytes += table->layout.chunk_bytes;
        if (arena_chunk_state(table, chunk) == ARENA_CHUNK_LIVE)
            stats->free_pages += arena_chunk_free(table, chunk);
    }
    (void) pthread_mutex_unlock(&arena->lease.session->lock);
}

_public_ int gmb_arena_get_stats(const gmb_arena *arena, struct gmb_arena_stats *stats)
{
    struct outcome outcome = OUTCOME_OK;
    struct gmb_arena_stats now = {.size = sizeof(now)};

    if (fork_guard_check(arena->lease.session, &outcome) < 0)
        return outcome_publish(&outcome);
    if (stats == NULL || stats->size < sizeof(*stats)) {
        (void) outcome_set(&outcome, GMB_E_INVALID, "stats.size must be sizeof the structure");
        return outcome_publish(&outcome);
    }
    pages_count(&arena->pool.table, &now);
    chunks_count(arena, &now);
    now.evictions = __atomic_load_n(&arena->pool.table.shared->evictions, __ATOMIC_RELAXED);
    now.restores = __atomic_load_n(&arena->pool.table.shared->restores, __ATOMIC_RELAXED);
    now.waits = atomic_load(&arena->waits);
    *stats = now;
    return 0;
}
