/*
 * The end of an arena, and the driver calls that its other files share. Nobody uses its pages any
 * more, so that everything goes at once, whatever the page table says.
 */
#include "base/clock.h"
#include "client/arena.h"
#include "client/fork.h"
#include "client/lease.h"
#include "client/request.h"
#include "client/wait.h"

int arena_synchronize(struct gmb_arena *arena, struct outcome *outcome)
{
    struct gpu *gpu = arena->lease.session->gpu;
    struct gpu_error error = {0};

    if (gpu->ops->context_synchronize(gpu, arena->lease.device->context, &error) != 0)
        return outcome_set(outcome, GMB_E_GPU, "%s", error.text);
    return 0;
}

bool arena_unmap(struct gmb_arena *arena, uint32_t first, uint32_t count)
{
    struct gmb_lease *lease = &arena->lease;
    struct gpu *gpu = lease->session->gpu;

    return gpu->ops->span_unmap(gpu, lease->address + first * lease->chunk_bytes,
               count * lease->chunk_bytes, NULL) == 0;
}

void arena_tell(struct gmb_arena *arena, enum request_kind kind, uint32_t first, uint32_t count)
{
    struct request *request = request_new(kind, REQUEST_OWNER_NOBODY);
    struct outcome ignored;

    /* Without host memory the broker counts the chunks as used until the arena ends. */
    if (request == NULL)
        return;
    request->target = arena->lease.id;
    request->run_first = first;
    request->run_count = count;
    if (request_submit(arena->lease.session, request, &ignored) < 0)
        request_free(request);
}

static bool local_mapped(const struct gmb_arena *arena, uint32_t chunk)
{
    return arena->local[chunk] == ARENA_LOCAL_MAPPED ||
           arena->local[chunk] == ARENA_LOCAL_RECALLED || arena->local[chunk] == ARENA_LOCAL_STUCK;
}

/* Unmaps everything and frees the addresses. On failure some is still mapped. Without the lock. */
static int arena_empty(struct gmb_arena *arena, struct outcome *outcome)
{
    uint32_t top = arena_pool_top(&arena->pool), count;
    int r = top > 0 ? arena_synchronize(arena, outcome) : 0;

    if (r < 0)
        return r;
    for (uint32_t first = 0; first < top; first += MAX(count, 1U)) {
        for (count = 0; first + count < top && local_mapped(arena, first + count); count++)
            ;
        if (count > 0 && !arena_unmap(arena, first, count))
            return outcome_set(outcome, GMB_E_GPU, "the driver doesn't unmap the arena");
        for (uint32_t i = first; i < first + count; i++)
            arena->local[i] = ARENA_LOCAL_EMPTY;
    }
    lease_range_free(&arena->lease);
    return 0;
}

void arena_drop_consume(struct gmb_arena *arena)
{
    struct gmb_session *session = arena->lease.session;
    struct outcome ignored = OUTCOME_OK;
    struct request *request;

    /* What the driver doesn't unmap stays charged until this process ends: it still has it. */
    if (arena_empty(arena, &ignored) == 0) {
        (void) pthread_mutex_lock(&session->lock);
        (void) lease_farewell(&arena->lease, REQUEST_OWNER_NOBODY, &request, &ignored);
        (void) pthread_mutex_unlock(&session->lock);
    }
    arena_destroy(arena);
}

static void arena_withdraw(struct gmb_arena *arena)
{
    struct outcome ignored;

    arena->closing = true;
    for (unsigned i = 0; i < ARENA_LANE_MAX; i++) {
        if (arena->lanes[i].request != NULL)
            (void) request_cancel(arena->lease.session, arena->lanes[i].request->id, &ignored);
    }
}

void arenas_withdraw(struct gmb_session *session)
{
    list_for_each(lease, &session->arenas, struct gmb_lease, link)
        arena_withdraw(arena_from_lease(lease));
}

/* Waits until neither the seat nor a fill is at work on it. False, with the arena left to the seat,
 * when the broker doesn't answer such a fill. */
static bool arena_settle(struct gmb_arena *arena)
{
    struct gmb_session *session = arena->lease.session;
    uint64_t deadline_ns = add_saturate(clock_now(&clock_monotonic), session->timeout_ns);
    bool settled;

    (void) pthread_mutex_lock(&session->lock);
    arena_withdraw(arena);
    while (arena->serving || (arena_filling(arena) && clock_now(&clock_monotonic) < deadline_ns))
        session_step(session, deadline_ns);
    settled = !arena_filling(arena);
    arena->dropped = !settled;
    (void) pthread_mutex_unlock(&session->lock);
    return settled;
}

static int arena_release(struct gmb_arena *arena, struct outcome *outcome)
{
    struct gmb_session *session = arena->lease.session;
    struct request *request = NULL;
    int r = arena_empty(arena, outcome);

    if (r == 0) {
        (void) pthread_mutex_lock(&session->lock);
        r = lease_farewell(&arena->lease, REQUEST_OWNER_WAITER, &request, outcome);
        (void) pthread_mutex_unlock(&session->lock);
    }
    arena_destroy(arena);
    return r == 0 ? lease_done_wait(session, request, outcome) : r;
}

_public_ int gmb_arena_free(gmb_arena *arena)
{
    struct outcome outcome = OUTCOME_OK;
    int r;

    if (arena == NULL)
        return 0;
    r = fork_guard_check(arena->lease.session, &outcome);
    if (r == 0 && arena_settle(arena))
        (void) arena_release(arena, &outcome);
    else if (r == 0)
        (void) outcome_set(
            &outcome, GMB_E_TIMED_OUT, "the broker doesn't answer: the arena goes once it does");
    return outcome_publish(&outcome);
}
