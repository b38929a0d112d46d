/*
 * A page counts as the request's memory on the device while it is pinned: what isn't may be on the
 * host. A page may be evicted between its allocation and its first pin; it comes back, and is
 * written then.
 */
#include "client/replay/arena_pages.h"

#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"

/* A blocking call of the library returns within this, so that a worker that is to stop does. */
#define SLICE_NS (2 * NSEC_PER_SEC)
/* For so long pages that have come back are held while others have not. Requests that all hold a
 * part and wait for the rest would wait for each other for ever: none keeps it longer. */
#define HOLD_NS (5 * NSEC_PER_SEC)

int pages_init(struct pages *pages, struct arena_worker *worker, uint64_t request, size_t room)
{
    *pages = (struct pages){
        .worker = worker,
        .owner = {.tenant = worker->tenant, .worker = worker->params->index, .request = request},
        .room = room,
    };
    pages->numbers = calloc(MAX(room, (size_t) 1), sizeof(*pages->numbers));
    return pages->numbers ? 0 : -ENOMEM;
}

void pages_done(struct pages *pages)
{
    free(pages->numbers);
    pages->numbers = NULL;
}

static void account(const struct pages *pages, size_t count, bool take)
{
    const struct worker_params *params = pages->worker->params;
    uint64_t bytes = count * pages->worker->pages.chunk_bytes;

    if (take)
        stats_take(params->stats, params->index, bytes);
    else
        stats_give(params->stats, params->index, bytes);
}

static enum pages_outcome fail(struct pages *pages, const char *what)
{
    arena_fail(pages->worker, "%s: %s", what, gmb_error_text());
    return PAGES_FAILED;
}

/* Waits for pages that this thread has pinned. */
static enum pages_outcome wait_resident(
    struct pages *pages, size_t first, size_t count, uint64_t wait_ns)
{
    struct arena_worker *worker = pages->worker;
    uint64_t begin_ns = clock_now(&clock_monotonic), until_ns = add_saturate(begin_ns, wait_ns);
    uint64_t now_ns = begin_ns;
    int r;

    do {
        r = gmb_page_wait(worker->arena, count, pages->numbers + first,
            MIN(sub_saturate(until_ns, now_ns), SLICE_NS));
        now_ns = clock_now(&clock_monotonic);
    } while (r == GMB_E_TIMED_OUT && now_ns < until_ns && !atomic_load(&worker->stopping));
    atomic_fetch_add(&worker->stats->restore_ns, now_ns - begin_ns);
    if (r == GMB_PIN_READY)
        return PAGES_OK;
    if (r == GMB_PIN_LOST)
        return PAGES_LOST;
    if (r == GMB_E_TIMED_OUT)
        return atomic_load(&worker->stopping) ? PAGES_FAILED : PAGES_SHORT;
    return fail(pages, "cannot wait for pages");
}

static enum pages_outcome pin(struct pages *pages, size_t first, size_t count, uint64_t wait_ns)
{
    gmb_arena *arena = pages->worker->arena;
    enum pages_outcome outcome;
    int r = gmb_page_pin(arena, count, pages->numbers + first);

    if (r < 0)
        return fail(pages, "cannot pin pages");
    if (r == GMB_PIN_LOST)
        return PAGES_LOST;
    outcome = r == GMB_PIN_READY ? PAGES_OK : wait_resident(pages, first, count, wait_ns);
    if (outcome == PAGES_OK)
        account(pages, count, true);
    else if (gmb_page_unpin(arena, count, pages->numbers + first) < 0)
        return fail(pages, "cannot unpin pages");
    return outcome;
}

/* One page of the request, for the device. */
static struct device_span span_of(const struct pages *pages, size_t index)
{
    const struct arena_worker *worker = pages->worker;

    return (struct device_span){
        .address =
            gmb_arena_address(worker->arena) + pages->numbers[index] * worker->pages.chunk_bytes,
        .chunk_bytes = worker->pages.chunk_bytes,
        .first = index,
        .count = 1,
        .owner = &pages->owner,
    };
}

/* Writes or compares pages, and settles what was found. */
static bool touch(struct pages *pages, size_t first, size_t count, bool write)
{
    struct arena_worker *worker = pages->worker;
    uint64_t foreign = 0, differing = 0;
    struct gpu_error error;
    int r = 0;

    (void) pthread_mutex_lock(&worker->device_lock);
    for (size_t i = first; r == 0 && i < first + count; i++) {
        struct device_span span = span_of(pages, i);

        r = write ? device_receive(worker->device, &span, &error)
                  : device_check(worker->device, &span, &error);
    }
    if (r == 0)
        r = device_settle(worker->device, &foreign, &differing, &error);
    (void) pthread_mutex_unlock(&worker->device_lock);
    if (r < 0) {
        arena_fail(worker, "cannot %s pages: %s", write ? "write" : "check", error.text);
        return false;
    }
    if (!write)
        atomic_fetch_add(&worker->stats->checked_bytes, count * worker->pages.chunk_bytes);
    atomic_fetch_add(&worker->stats->foreign_bytes, foreign);
    atomic_fetch_add(&worker->stats->corrupt_bytes, foreign + differing);
    return true;
}

static enum pages_outcome allocate(struct pages *pages, size_t count, uint64_t wait_ns)
{
    struct arena_worker *worker = pages->worker;
    uint64_t now_ns = clock_now(&clock_monotonic), until_ns = add_saturate(now_ns, wait_ns);
    int r;

    do {
        r = gmb_page_alloc(
            worker->arena, count, pages->numbers + pages->count, MIN(until_ns - now_ns, SLICE_NS));
        now_ns = clock_now(&clock_monotonic);
    } while (r == GMB_E_TIMED_OUT && now_ns < until_ns && !atomic_load(&worker->stopping));
    if (r == 0)
        return PAGES_OK;
    if (r == GMB_E_OVER_LIMIT)
        return PAGES_REFUSED;
    if (r == GMB_E_TIMED_OUT || r == GMB_E_EXHAUSTED)
        return atomic_load(&worker->stopping) ? PAGES_FAILED : PAGES_SHORT;
    return fail(pages, "cannot allocate pages");
}

enum pages_outcome pages_take(struct pages *pages, size_t count, uint64_t wait_ns)
{
    const size_t first = pages->count;
    enum pages_outcome outcome;

    if (count == 0)
        return PAGES_OK;
    outcome = allocate(pages, count, wait_ns);
    if (outcome != PAGES_OK)
        return outcome;
    outcome = pin(pages, first, count, MAX(wait_ns, SLICE_NS));
    if (outcome != PAGES_OK) {
        if (gmb_page_unref(pages->worker->arena, count, pages->numbers + first) < 0)
            return fail(pages, "cannot give pages back");
        return outcome == PAGES_LOST ? PAGES_SHORT : outcome;
    }
    pages->count += count;
    pages->pinned = true;
    return touch(pages, first, count, true) ? PAGES_OK : PAGES_FAILED;
}

enum pages_outcome pages_pin(struct pages *pages, uint64_t wait_ns)
{
    uint64_t now_ns = clock_now(&clock_monotonic), until_ns = add_saturate(now_ns, wait_ns);
    enum pages_outcome outcome;

    if (pages->pinned || pages->count == 0)
        return PAGES_OK;
    do {
        outcome = pin(pages, 0, pages->count, MIN(until_ns - now_ns, HOLD_NS));
        now_ns = clock_now(&clock_monotonic);
    } while (outcome == PAGES_SHORT && now_ns < until_ns);
    pages->pinned = outcome == PAGES_OK;
    return outcome;
}

void pages_unpin(struct pages *pages)
{
    if (!pages->pinned)
        return;
    pages->pinned = false;
    account(pages, pages->count, false);
    if (gmb_page_unpin(pages->worker->arena, pages->count, pages->numbers) < 0)
        (void) fail(pages, "cannot unpin pages");
}

bool pages_check(struct pages *pages)
{
    return touch(pages, 0, pages->count, false);
}

void pages_allow_drop(struct pages *pages)
{
    for (size_t i = 0; i < pages->count; i++) {
        struct gmb_page_hint hint = {
            .parent = i > 0 ? pages->numbers[i - 1] : UINT32_MAX, .recomputable = 1};

        if (gmb_page_set_hint(pages->worker->arena, pages->numbers[i], &hint) < 0)
            (void) fail(pages, "cannot say what a page is");
    }
}

void pages_drop(struct pages *pages)
{
    pages_unpin(pages);
    if (pages->count > 0 && gmb_page_unref(pages->worker->arena, pages->count, pages->numbers) < 0)
        (void) fail(pages, "cannot give pages back");
    pages->count = 0;
}
