/*
 * Most steps work on what comes: they are settings that requests look up. Dropping cached sequences
 * is the one that gives memory at once, and so the one whose answer has bytes in it.
 *
 * What a drop gives is what of it was on the device: pages that the broker had moved to the host
 * give nothing there. The arena's own counts tell, before and after; others may move pages
 * meanwhile, so that it is an estimate, which the broker holds against its ledger.
 */
#include "client/replay/arena_obey.h"

#include <assert.h>

#include "base/clock.h"
#include "client/replay/arena_pool.h"

static_assert(STATS_STEPS == LADDER_STEPS, "one count for each step");

void arena_obey_count(
    struct arena_worker *worker, enum gmb_degrade step, uint64_t count, uint64_t bytes)
{
    struct stats_step *stats = &worker->stats->steps[step];

    atomic_fetch_add(&stats->affected, count);
    atomic_fetch_add(&stats->bytes, bytes);
}

static uint64_t pages_evicted(const struct arena_worker *worker)
{
    struct gmb_arena_stats stats = {.size = sizeof(stats)};

    return gmb_arena_get_stats(worker->arena, &stats) == 0 ? stats.evicted_pages : 0;
}

/* Those that would be read again last go first. Returns the bytes that it gave on the device. */
static uint64_t cache_drop(struct arena_worker *worker)
{
    uint64_t pages = 0, evicted = pages_evicted(worker), gone;
    struct list dropped;
    size_t count = 0;

    list_init(&dropped);
    (void) pthread_mutex_lock(&worker->lock);
    list_for_each(request, &worker->cached, struct arena_request, link) count++;
    count = ladder_drop_now(&worker->ladder, count);
    for (size_t i = 0; i < count; i++) {
        struct arena_request *last = container_of(worker->cached.prev, struct arena_request, link);

        list_remove(&last->link);
        list_append(&dropped, &last->link);
    }
    (void) pthread_mutex_unlock(&worker->lock);
    list_for_each_safe(request, &dropped, struct arena_request, link)
    {
        pages += request->pages.count;
        pages_drop(&request->pages);
        list_remove(&request->link);
        (void) arena_request_free(request);
    }
    gone = sub_saturate(evicted, pages_evicted(worker));
    pages = sub_saturate(pages, gone) * worker->pages.chunk_bytes;
    arena_obey_count(worker, GMB_DEGRADE_DROP_PREFIX_CACHE, count, pages);
    return pages;
}

static void obey(void *user, const struct gmb_advice *advice)
{
    struct arena_worker *worker = user;
    bool before[LADDER_STEPS];

    (void) pthread_mutex_lock(&worker->lock);
    for (size_t i = 0; i < LADDER_STEPS; i++)
        before[i] = worker->ladder.in_force[i];
    ladder_apply(&worker->ladder, advice, worker->running);
    arena_pool_wake(worker);
    (void) pthread_mutex_unlock(&worker->lock);
    for (uint32_t i = 0; i < advice->step_count; i++) {
        enum gmb_degrade step = (enum gmb_degrade) advice->steps[i].action;
        uint64_t freed_bytes = 0;

        /* A share that was dropped already isn't dropped of the rest again. */
        if (step == GMB_DEGRADE_DROP_PREFIX_CACHE && !before[step])
            freed_bytes = cache_drop(worker);
        if (!before[step])
            atomic_fetch_add(&worker->stats->steps[step].asked, 1);
        if (gmb_advice_ack(worker->session, advice->id, step, GMB_ADVICE_DONE, freed_bytes) == 0)
            atomic_fetch_add(&worker->stats->steps[step].answered, 1);
    }
}

void arena_obey_begin(struct arena_worker *worker)
{
    int r = gmb_pressure_subscribe(worker->session, NULL, obey, worker);

    worker->obeys = r == 0;
    if (r < 0 && r != GMB_E_UNSUPPORTED)
        arena_fail(worker, "cannot subscribe to advice: %s", gmb_error_text());
}

void arena_obey_end(struct arena_worker *worker)
{
    /* A broker that has gone gives no more advice. */
    if (worker->obeys)
        (void) gmb_pressure_subscribe(worker->session, NULL, NULL, NULL);
    worker->obeys = false;
}
