/*
 * The seat looks after the arenas when something has come for one, and every few milliseconds while
 * there are any: page functions make no system call, so that they can't tell it what they need.
 *
 * Memory goes back in the order that keeps the ledger true: the chunk is closed and vacant, the
 * device has finished, it is unmapped, the broker hears of it. One wait for the device serves all
 * chunks that go at the same time.
 */
#include "client/arena_serve.h"

#include "base/clock.h"
#include "client/arena.h"
#include "client/arena_fill.h"
#include "client/arena_own.h"

#define SERVE_INTERVAL_NS (10 * NSEC_PER_MSEC)

struct supply {
    uint64_t free_pages, used_chunks;
};

/* What there is, by the counts; and since when each chunk has been vacant. */
static struct supply supply_count(struct gmb_arena *arena, uint64_t now_ns)
{
    const struct arena_table *table = &arena->pool.table;
    uint32_t per_chunk = table->layout.pages_per_chunk;
    struct supply supply = {0};

    for (uint32_t chunk = 0; chunk < arena_pool_top(&arena->pool); chunk++) {
        uint32_t count;

        if (arena->local[chunk] != ARENA_LOCAL_MAPPED ||
            arena_chunk_state(table, chunk) != ARENA_CHUNK_LIVE)
            continue;
        count = arena_chunk_free(table, chunk);
        supply.free_pages += count;
        if (count < per_chunk) {
            supply.used_chunks++;
            arena->vacant_since_ns[chunk] = 0;
        } else if (arena->vacant_since_ns[chunk] == 0) {
            arena->vacant_since_ns[chunk] = now_ns;
        }
    }
    return supply;
}

/* Closes what has been vacant for long, the highest first; memory that is kept ready stays, unless
 * the arena isn't used at all. */
static bool idle_close(struct gmb_arena *arena, struct supply *supply, uint64_t now_ns)
{
    uint32_t per_chunk = arena->pool.table.layout.pages_per_chunk;
    uint64_t keep = supply->used_chunks > 0 ? arena->prefetch_pages : 0;
    bool some = false;

    for (uint32_t chunk = arena_pool_top(&arena->pool); chunk-- > 0;) {
        uint64_t since_ns = arena->vacant_since_ns[chunk];

        if (supply->free_pages < keep + per_chunk)
            break;
        if (arena->local[chunk] != ARENA_LOCAL_MAPPED || since_ns == 0 ||
            now_ns - since_ns < arena->idle_ns)
            continue;
        if (!arena_chunk_close_vacant(&arena->pool, chunk))
            continue;
        supply->free_pages -= per_chunk;
        some = true;
    }
    return some;
}

static bool chunk_leaves(const struct gmb_arena *arena, uint32_t chunk)
{
    const struct arena_table *table = &arena->pool.table;

    if (arena->local[chunk] == ARENA_LOCAL_RECALLED)
        return arena_table_chunk_vacant(table, chunk) == ARENA_VACANT;
    return arena->local[chunk] == ARENA_LOCAL_MAPPED &&
           arena_chunk_state(table, chunk) == ARENA_CHUNK_VACANT;
}

/* Unmaps one run; with the lock, which it gives up. */
static void run_return(struct gmb_arena *arena, uint32_t first, uint32_t count)
{
    struct gmb_session *session = arena->lease.session;
    bool done;

    for (uint32_t i = first; i < first + count && arena->pool.table.own != NULL; i++)
        arena_own_set_mapped(&arena->pool.table, i, false);
    (void) pthread_mutex_unlock(&session->lock);
    done = arena_unmap(arena, first, count);
    (void) pthread_mutex_lock(&session->lock);
    for (uint32_t i = first; i < first + count; i++) {
        if (arena->local[i] == ARENA_LOCAL_RECALLED)
            arena->recalled--;
        arena->local[i] = (uint8_t) (done ? ARENA_LOCAL_EMPTY : ARENA_LOCAL_STUCK);
        arena->vacant_since_ns[i] = 0;
        if (done)
            arena_chunk_vacate(&arena->pool, i);
    }
    if (done)
        arena_tell(arena, REQUEST_RETURN, first, count);
}

/* Gives back every chunk that is closed and vacant. With the lock, which it gives up. */
static void vacant_return(struct gmb_arena *arena)
{
    struct gmb_session *session = arena->lease.session;
    uint32_t top = arena_pool_top(&arena->pool);
    struct outcome ignored = OUTCOME_OK;
    int r;

    (void) pthread_mutex_unlock(&session->lock);
    r = arena_synchronize(arena, &ignored);
    (void) pthread_mutex_lock(&session->lock);
    for (uint32_t first = 0, count; first < top; first += MAX(count, 1U)) {
        for (count = 0; first + count < top && chunk_leaves(arena, first + count); count++)
            /* Idle chunks stay mapped and usable when the device can't be waited for. */
            if (r < 0 && arena->local[first + count] == ARENA_LOCAL_MAPPED)
                arena_chunk_reopen(&arena->pool, first + count);
        if (count > 0 && r == 0)
            run_return(arena, first, count);
    }
}

/* Asks ahead of need, without waiting: others may need the memory now. */
static void prefetch(struct gmb_arena *arena, const struct supply *supply, uint64_t now_ns)
{
    struct outcome ignored = OUTCOME_OK;

    if (supply->used_chunks == 0 || supply->free_pages >= arena->prefetch_pages ||
        arena->lanes[ARENA_LANE_LARGE].request != NULL || now_ns < arena->prefetch_after_ns)
        return;
    (void) arena_fill_start(arena, ARENA_LANE_LARGE, arena->prefetch_pages - supply->free_pages,
        GMB_WAIT_NONE, &ignored);
}

static void arena_serve(struct gmb_arena *arena, uint64_t now_ns)
{
    struct supply supply;
    bool leaving = arena->recalled > 0;

    atomic_store(&arena->now, arena_clock());
    (void) arena_after_apply(arena);
    arena_fill_disputes_end(arena, now_ns);
    supply = supply_count(arena, now_ns);
    if (arena->idle_ns != CLOCK_NEVER)
        leaving = idle_close(arena, &supply, now_ns) || leaving;
    if (leaving)
        vacant_return(arena);
    prefetch(arena, &supply, now_ns);
}

void arenas_serve(struct gmb_session *session)
{
    uint64_t now_ns;

    if (list_empty(&session->arenas))
        return;
    now_ns = clock_now(&clock_monotonic);
    if (session->phase != SESSION_READY || now_ns < session->arenas_due_ns)
        return;
    session->arenas_due_ns = now_ns + SERVE_INTERVAL_NS;
    list_for_each(lease, &session->arenas, struct gmb_lease, link)
    {
        struct gmb_arena *arena = arena_from_lease(lease);

        if (arena->closing)
            continue;
        /* Keeps it in the list while the lock is given up. */
        arena->serving = true;
        arena_serve(arena, now_ns);
        arena->serving = false;
    }
}
