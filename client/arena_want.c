/*
 * Pages on their way back. A pin counts at once and keeps the page from being evicted again; the
 * broker then hears of those that aren't here. It fills their chunks and restores them by itself,
 * and writes the arena's eventfd, whose edges wake the seat and with it everybody who waits.
 */
#include "client/arena_want.h"

#include "base/clock.h"
#include "client/fork.h"
#include "client/request.h"
#include "client/resume.h"
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

/* Why no page can come back now. With the lock. */
static int arena_gone(const struct gmb_arena *arena, struct outcome *outcome)
{
    if (arena->lease.lost)
        return outcome_set(
            outcome, GMB_E_DISCONNECTED, "the broker lost this arena when it restarted");
    return session_usable(arena->lease.session, outcome);
}

static bool is_named(const struct request *request, uint32_t page)
{
    for (size_t i = 0; i < request->page_count; i++) {
        if (request->pages[i] == page)
            return true;
    }
    return false;
}

/* Takes out what a message of before it will ask for, which the socket had no room for yet. Else
 * whoever pins faster than the broker reads would queue without end, and what is queued behind it,
 * that chunks are mapped say, would come too late for everybody. With the session's lock. */
static void want_reduce(struct gmb_session *session, struct request *request)
{
    for (struct list *at = session->pending.prev; at != &session->pending; at = at->prev) {
        const struct request *before = container_of(at, struct request, link);
        size_t left = 0;

        if (before->sent)
            return; /* those that weren't sent stand at the end */
        if (before->kind != REQUEST_WANT || before->target != request->target)
            continue;
        for (size_t i = 0; i < request->page_count; i++) {
            if (!is_named(before, request->pages[i]))
                request->pages[left++] = request->pages[i];
        }
        request->page_count = left;
    }
}

/* One message, unless nothing is left to be asked for. Consumes the request. */
static int want_submit(struct gmb_arena *arena, struct request *request, struct outcome *outcome)
{
    struct gmb_session *session = arena->lease.session;
    int r;

    (void) pthread_mutex_lock(&session->lock);
    r = arena_gone(arena, outcome);
    if (r == 0)
        want_reduce(session, request);
    if (r < 0 || request->page_count == 0)
        request_free(request);
    else if ((r = request_submit(session, request, outcome)) < 0)
        request_free(request);
    (void) pthread_mutex_unlock(&session->lock);
    return r;
}

int arena_want(struct gmb_arena *arena, size_t n, const uint32_t *pages, struct outcome *outcome)
{
    int r = 0;

    atomic_fetch_add(&arena->waits, 1);
    for (size_t at = 0; r == 0 && at < n;) {
        struct request *request = NULL;

        r = want_next(arena, n, pages, &at, &request, outcome);
        if (r == 0 && request != NULL)
            r = want_submit(arena, request, outcome);
    }
    return r;
}

static bool page_waits(const struct gmb_arena *arena, uint32_t page)
{
    uint64_t word = __atomic_load_n(&arena->pool.table.pages[page].word, __ATOMIC_RELAXED);

    return arena_word_pins(word) > 0 && arena_page_away(&arena->pool.table, page);
}

/* One message's worth of pages from `*at` on. NULL without host memory. */
static struct request *want_again_next(struct gmb_arena *arena, uint32_t *at)
{
    struct request *request = request_new(REQUEST_WANT, REQUEST_OWNER_NOBODY);

    if (request != NULL)
        request->pages = calloc(LIMIT_WANT_PAGES, sizeof(*request->pages));
    if (request == NULL || request->pages == NULL)
        return request_free(request);
    request->target = arena->lease.id;
    for (; *at < arena->pool.table.page_count && request->page_count < LIMIT_WANT_PAGES; ++*at) {
        if (page_waits(arena, *at))
            request->pages[request->page_count++] = *at;
    }
    return request;
}

void arena_want_again(struct gmb_arena *arena)
{
    struct outcome ignored = OUTCOME_OK;

    for (uint32_t at = 0; at < arena->pool.table.page_count;) {
        struct request *request = want_again_next(arena, &at);

        /* Whoever waits for them asks again when its time is up. */
        if (request == NULL)
            return;
        if (request->page_count == 0 || request_submit(arena->lease.session, request, &ignored) < 0)
            request_free(request);
    }
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
        if (arena_gone(arena, outcome) < 0)
            break;
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
