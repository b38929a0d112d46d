/*
 * Pages on their way back. A pin counts at once and keeps the page from being evicted again; the
 * broker then hears of those that aren't here. It fills their chunks and restores them by itself,
 * and writes the arena's eventfd, whose edges wake the seat and with it everybody who waits.
 */
#include "client/arena_want.h"

#include "base/clock.h"
#include "client/fork.h"
#include "client/request.h"
#include "client/wait.h"

/* The next pages of the list that are away, as one request; NULL in `ret` when there are no
 * more. */
static int want_next(struct gmb_arena *arena, size_t n, const uint32_t *pages, size_t *at,
    struct request **ret, struct outcome *outcome)
{
    struct request *request = request_new(REQUEST_WANT, REQUEST_OWNER_NOBODY);

    if (request != NULL)
        request->pages = calloc(MIN(n - *at, (size_t) LIMIT_WANT_PAGES), sizeof(*pages));
    if (request == NULL || request->pages == NULL) {
        request_free(request);
        return outcome_set(outcome, GMB_E_INTERNAL, "no host memory to ask for pages");
    }
    request->target = arena->lease.id;
    for (; *at < n && request->page_count < LIMIT_WANT_PAGES; ++*at) {
        if (arena_page_away(&arena->pool.table, pages[*at]))
            request->pages[request->page_count++] = pages[*at];
    }
    *ret = request;
    if (request->page_count == 0)
        *ret = request_free(request);
    return 0;
}

int arena_want(struct gmb_arena *arena, size_t n, const uint32_t *pages, struct outcome *outcome)
{
    struct gmb_session *session = arena->lease.session;
    int r = 0;

    atomic_fetch_add(&arena->waits, 1);
    for (size_t at = 0; r == 0 && at < n;) {
        struct request *request = NULL;

        r = want_next(arena, n, pages, &at, &request, outcome);
        if (r < 0 || request == NULL)
            continue;
        (void) pthread_mutex_lock(&session->lock);
        r = request_submit(session, request, outcome);
        (void) pthread_mutex_unlock(&session->lock);
        if (r < 0)
            request_free(request);
    }
    return r;
}

static int wait_pages(struct gmb_arena *arena, size_t n, const uint32_t *pages, uint64_t wait_ns,
    struct outcome *outcome)
{
    struct gmb_session *session = arena->lease.session;
    uint64_t deadline_ns = add_saturate(clock_now(&clock_monotonic), wait_ns);
    enum arena_op op;

    (void) pthread_mutex_lock(&session->lock);
    for (;;) {
        op = arena_pages_ready(&arena->pool.table, n, pages);
        if (op != ARENA_OP_WAITING)
            break;
        if (session->conn == NULL) {
            *outcome = session->broken;
            break;
        }
        if (atomic_load(&arena->lease.device->failed)) {
            (void) outcome_set(outcome, GMB_E_GPU, "the arena's device is out of service");
            break;
        }
        if (clock_now(&clock_monotonic) >= deadline_ns) {
            (void) outcome_set(outcome, GMB_E_TIMED_OUT, "pages are still on their way back");
            break;
        }
        session_step(session, deadline_ns);
    }
    (void) pthread_mutex_unlock(&session->lock);
    if (op == ARENA_OP_MISUSE)
        return outcome_set(outcome, GMB_E_INVALID, "a page isn't pinned");
    return outcome->code != 0 ? outcome->code : (int) op;
}

_public_ int gmb_page_wait(gmb_arena *arena, size_t n, const uint32_t *pages, uint64_t wait_ns)
{
    struct outcome outcome = OUTCOME_OK;
    int r = fork_guard_check(arena->lease.session, &outcome);

    if (r == 0)
        r = wait_pages(arena, n, pages, wait_ns, &outcome);
    return r < 0 ? outcome_publish(&outcome) : r;
}

_public_ int gmb_arena_fd(const gmb_arena *arena)
{
    return arena->event_fd;
}
