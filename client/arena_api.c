/*
 * The page functions: the operations of arena_ops.h, with codes and texts of the public interface.
 * The way through here must cost nothing, so that what is rare stands in functions of its own.
 */
#include "base/clock.h"
#include "client/arena.h"
#include "client/arena_fill.h"
#include "client/arena_want.h"
#include "client/fork.h"
#include "client/resume.h"
#include "client/wait.h"

#define _rare_ __attribute__((noinline, cold))
#define UNLIKELY(condition) __builtin_expect(!!(condition), 0)

static _rare_ int forked(const struct gmb_arena *arena)
{
    struct outcome outcome = OUTCOME_OK;

    (void) outcome_set(
        &outcome, GMB_E_FORKED, "the arena belongs to the process that opened its session");
    return outcome_publish(&outcome);
}

static _rare_ int misused(void)
{
    struct outcome outcome = OUTCOME_OK;

    (void) outcome_set(&outcome, GMB_E_INVALID,
        "a page isn't allocated, or is pinned, or a count of it is at its end");
    return outcome_publish(&outcome);
}

/* What every page function begins with: a load or two. */
static inline bool arena_entered(struct gmb_arena *arena)
{
    if (UNLIKELY(!fork_guard_likely(arena->lease.session)))
        return false;
    if (UNLIKELY(atomic_load_explicit(&arena->deferred, memory_order_relaxed) > 0))
        (void) arena_after_apply(arena);
    return true;
}

static inline int op_result(enum arena_op op)
{
    return UNLIKELY(op != ARENA_OP_OK) ? misused() : 0;
}

static int page_lack(struct outcome *outcome, const struct gmb_arena *arena, size_t n)
{
    return outcome_set(outcome, GMB_E_EXHAUSTED, "the arena has not %zu free pages of %llu bytes",
        n, (unsigned long long) arena->pool.table.layout.page_bytes);
}

/* Without waiting there is nothing to be asked; but tell a broker that has gone from one that is
 * slow. */
static int alloc_refuse(struct gmb_arena *arena, size_t n, struct outcome *outcome)
{
    struct gmb_session *session = arena->lease.session;
    struct outcome gone;

    (void) page_lack(outcome, arena, n);
    if (pthread_mutex_trylock(&session->lock) == 0) {
        if (session_usable(session, &gone) < 0)
            *outcome = gone;
        (void) pthread_mutex_unlock(&session->lock);
    }
    return outcome->code;
}

/* A thread that waits for memory. */
struct want {
    size_t n;
    uint64_t deadline_ns, patience_ns;
    enum arena_lane_name lane; /* … of the fill that it asked for, and its number there; 0: none */
    uint64_t fill;
};

/* Whether a refusal of the broker's ends the wait: not one that crossed a restore. */
static bool fill_failed(const struct gmb_arena *arena, const struct want *want)
{
    const struct arena_lane *lane = &arena->lanes[want->lane];
    int code = lane->outcome.code;

    return want->fill != 0 && lane->concluded == want->fill && code != 0 && code != GMB_E_INVALID &&
           code != GMB_E_CONFLICT;
}

/* Whether what it asked for is on its way. */
static bool fill_flies(const struct gmb_arena *arena, const struct want *want)
{
    const struct arena_lane *lane = &arena->lanes[want->lane];

    return lane->request != NULL && want->fill == lane->concluded + 1;
}

/* Asks for what it lacks, unless the lane for it is taken: what comes there may do. */
static int want_ask(
    struct gmb_arena *arena, struct want *want, uint64_t now_ns, struct outcome *outcome)
{
    uint64_t lacking = MAX(sub_saturate(want->n, arena_pool_free(&arena->pool)), UINT64_C(1));
    enum arena_lane_name lane =
        lacking < arena->pool.table.layout.pages_per_chunk ? ARENA_LANE_GROWTH : ARENA_LANE_LARGE;
    int r;

    if (arena->lanes[lane].request != NULL)
        return 0;
    r = arena_fill_start(arena, lane, lacking, want->deadline_ns - now_ns, outcome);
    if (r == 0) {
        want->lane = lane;
        want->fill = arena->lanes[lane].concluded + 1;
    }
    /* There, somebody may free pages meanwhile. */
    return r == GMB_E_EXHAUSTED ? 0 : r;
}

/* One turn of waiting, with the session's lock: asks, listens. An error ends the wait. */
static int alloc_turn(struct gmb_arena *arena, struct want *want, struct outcome *outcome)
{
    struct gmb_session *session = arena->lease.session;
    uint64_t now_ns = clock_now(&clock_monotonic), until_ns;
    bool own = fill_flies(arena, want);
    int r = session_usable(session, outcome);

    if (r < 0)
        return r;
    if (fill_failed(arena, want)) {
        *outcome = arena->lanes[want->lane].outcome;
        return outcome->code;
    }
    /* The broker keeps the deadline of what this thread asked for; another thread's fill may wait
     * for longer than this one will. */
    until_ns = own ? want->patience_ns : want->deadline_ns;
    if (now_ns >= until_ns)
        return outcome_set(
            outcome, GMB_E_TIMED_OUT, "the arena got not %zu free pages in time", want->n);
    if (!own) {
        r = want_ask(arena, want, now_ns, outcome);
        if (r < 0)
            return r;
        if (fill_flies(arena, want))
            until_ns = want->patience_ns;
    }
    session_step(session, until_ns);
    return 0;
}

static int alloc_wait(struct gmb_arena *arena, size_t n, uint32_t *ret_pages, uint64_t wait_ns,
    struct outcome *outcome)
{
    struct gmb_session *session = arena->lease.session;
    struct want want = {.n = n};
    int r = 0;

    want.deadline_ns = add_saturate(clock_now(&clock_monotonic), MIN(wait_ns, LIMIT_WAIT_NS));
    want.patience_ns = add_saturate(want.deadline_ns, session->timeout_ns);
    while (r == 0) {
        (void) arena_after_apply(arena);
        if (arena_pages_alloc(&arena->pool, n, ret_pages, arena_clock()) == ARENA_OP_OK) {
            *outcome = OUTCOME_OK;
            return 0;
        }
        (void) pthread_mutex_lock(&session->lock);
        r = alloc_turn(arena, &want, outcome);
        (void) pthread_mutex_unlock(&session->lock);
    }
    return r;
}

static _rare_ int alloc_short(
    struct gmb_arena *arena, size_t n, uint32_t *ret_pages, uint64_t wait_ns)
{
    struct outcome outcome = OUTCOME_OK;

    atomic_store(&arena->now, arena_clock());
    if (n > arena->pool.table.page_count)
        (void) outcome_set(&outcome, GMB_E_OVER_LIMIT, "the arena has %u pages at most",
            arena->pool.table.page_count);
    else if (wait_ns == GMB_WAIT_NONE)
        (void) alloc_refuse(arena, n, &outcome);
    else if (fork_guard_check(arena->lease.session, &outcome) == 0)
        (void) alloc_wait(arena, n, ret_pages, wait_ns, &outcome);
    return outcome_publish(&outcome);
}

_public_ int gmb_page_alloc(gmb_arena *arena, size_t n, uint32_t *ret_pages, uint64_t wait_ns)
{
    uint32_t now = atomic_load_explicit(&arena->now, memory_order_relaxed);

    if (UNLIKELY(!arena_entered(arena)))
        return forked(arena);
    if (UNLIKELY(arena_pages_alloc(&arena->pool, n, ret_pages, now) != ARENA_OP_OK))
        return alloc_short(arena, n, ret_pages, wait_ns);
    return 0;
}

_public_ int gmb_page_unref(gmb_arena *arena, size_t n, const uint32_t *pages)
{
    if (UNLIKELY(!arena_entered(arena)))
        return forked(arena);
    return op_result(arena_pages_unref(&arena->pool.table, n, pages));
}

_public_ int gmb_page_ref(gmb_arena *arena, size_t n, const uint32_t *pages)
{
    if (UNLIKELY(!arena_entered(arena)))
        return forked(arena);
    return op_result(arena_pages_ref(&arena->pool.table, n, pages));
}

static _rare_ int pin_wait(struct gmb_arena *arena, size_t n, const uint32_t *pages)
{
    struct outcome outcome = OUTCOME_OK;

    if (arena_want(arena, n, pages, &outcome) == 0)
        return GMB_PIN_WAITING;
    (void) arena_pages_unpin(&arena->pool.table, n, pages);
    return outcome_publish(&outcome);
}

_public_ int gmb_page_pin(gmb_arena *arena, size_t n, const uint32_t *pages)
{
    enum arena_op op;

    if (UNLIKELY(!arena_entered(arena)))
        return forked(arena);
    op = arena_pages_pin(&arena->pool.table, n, pages, arena_clock());
    if (UNLIKELY(op == ARENA_OP_WAITING))
        return pin_wait(arena, n, pages);
    return op == ARENA_OP_LOST ? GMB_PIN_LOST : op_result(op);
}

_public_ int gmb_page_unpin(gmb_arena *arena, size_t n, const uint32_t *pages)
{
    if (UNLIKELY(!arena_entered(arena)))
        return forked(arena);
    return op_result(arena_pages_unpin(&arena->pool.table, n, pages));
}

_public_ int gmb_page_ready(gmb_arena *arena, size_t n, const uint32_t *pages)
{
    enum arena_op op;

    if (UNLIKELY(!arena_entered(arena)))
        return forked(arena);
    op = arena_pages_ready(&arena->pool.table, n, pages);
    return op == ARENA_OP_MISUSE ? misused() : (int) op;
}

_public_ int gmb_page_touch(gmb_arena *arena, size_t n, const uint32_t *pages)
{
    if (UNLIKELY(!arena_entered(arena)))
        return forked(arena);
    return op_result(arena_pages_touch(&arena->pool.table, n, pages, arena_clock()));
}

_public_ int gmb_page_set_hint(gmb_arena *arena, uint32_t page, const struct gmb_page_hint *hint)
{
    if (UNLIKELY(!arena_entered(arena)))
        return forked(arena);
    return op_result(arena_page_set_hint(&arena->pool.table, page,
        &(struct arena_table_page){
            .flags = ARENA_PAGE_HINTED | (hint->recomputable != 0 ? ARENA_PAGE_RECOMPUTABLE : 0),
            .position = hint->position,
            .tokens = hint->tokens,
            .parent = hint->parent,
            .prefix = hint->prefix,
        }));
}

_public_ uint64_t gmb_arena_address(const gmb_arena *arena)
{
    return arena->lease.address;
}

_public_ void *gmb_arena_context(const gmb_arena *arena)
{
    return arena->lease.device->context;
}

_public_ uint64_t gmb_arena_page_bytes(const gmb_arena *arena)
{
    return arena->pool.table.layout.page_bytes;
}

_public_ uint32_t gmb_arena_pages(const gmb_arena *arena)
{
    return arena->pool.table.page_count;
}
