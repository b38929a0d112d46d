/*
 * What takes effect when a stream has passed: a list in the order of the calls, each with an event
 * of the driver's. An event that hasn't passed holds up what the same stream got later, so that
 * order stays, and nothing else.
 *
 * A stream that ended in an error never passes: its pages stay until the arena goes, which nobody
 * can shorten, since the process's context is dead with it.
 */
#include "client/arena.h"
#include "client/fork.h"
#include "gpu/loader.h"

#define EVENTS_KEPT 64u
/* Streams that are held up at once before the rest has to wait for the next time. */
#define STREAMS_LOOKED_AT 16u

struct arena_after {
    struct list link;
    CUevent event;
    CUstream stream;
    bool unpin;
    size_t n;
    uint32_t pages[];
};

static const struct cuda_api *api(const struct gmb_arena *arena)
{
    return arena->lease.session->gpu->cuda;
}

static void event_put(struct gmb_arena *arena, CUevent event)
{
    if (arena->event_count < EVENTS_KEPT && arena->events != NULL)
        arena->events[arena->event_count++] = event;
    else
        (void) api(arena)->event_destroy(event);
}

static void after_apply_consume(struct gmb_arena *arena, struct arena_after *after)
{
    /* A failure is the caller's misuse, and nobody is there to hear of it. */
    if (after->unpin)
        (void) arena_pages_unpin(&arena->pool.table, after->n, after->pages);
    else
        (void) arena_pages_unref(&arena->pool.table, after->n, after->pages);
    list_remove(&after->link);
    event_put(arena, after->event);
    free(after);
    atomic_fetch_sub(&arena->deferred, 1);
}

static bool stream_held(CUstream const *held, unsigned count, CUstream stream)
{
    for (unsigned i = 0; i < count; i++) {
        if (held[i] == stream)
            return true;
    }
    return false;
}

bool arena_after_apply(struct gmb_arena *arena)
{
    CUstream held[STREAMS_LOOKED_AT];
    unsigned held_count = 0;
    bool some = false;

    /* Whoever holds the lock does the work. */
    if (atomic_load(&arena->deferred) == 0 || pthread_mutex_trylock(&arena->after_lock) != 0)
        return false;
    list_for_each_safe(after, &arena->after, struct arena_after, link)
    {
        if (stream_held(held, held_count, after->stream))
            continue;
        if (api(arena)->event_query(after->event) == CUDA_SUCCESS) {
            after_apply_consume(arena, after);
            some = true;
        } else {
            held[held_count++] = after->stream;
            if (held_count == STREAMS_LOOKED_AT)
                break;
        }
    }
    (void) pthread_mutex_unlock(&arena->after_lock);
    return some;
}

void arena_after_drop(struct gmb_arena *arena)
{
    /* In a forked child the events are nobody's, and the list may be torn: another thread was at
     * work on it, whose driver calls no fork should wait for. It is left lying. */
    if (!fork_guard_same(arena->lease.session))
        return;
    list_for_each_safe(after, &arena->after, struct arena_after, link)
    {
        list_remove(&after->link);
        (void) api(arena)->event_destroy(after->event);
        free(after);
    }
    while (arena->event_count > 0)
        (void) api(arena)->event_destroy(arena->events[--arena->event_count]);
    free(arena->events);
    arena->events = NULL;
    atomic_store(&arena->deferred, 0);
}

/* Records an event behind the work in the stream; the arena's context is current meanwhile. */
static CUresult event_record(struct gmb_arena *arena, CUstream stream, CUevent *ret)
{
    CUevent event = NULL;
    CUcontext ignored;
    CUresult r = api(arena)->ctx_push_current(arena->lease.device->context);

    if (r != CUDA_SUCCESS)
        return r;
    if (arena->event_count > 0)
        event = arena->events[--arena->event_count];
    else
        r = api(arena)->event_create(&event, CU_EVENT_DISABLE_TIMING);
    if (r == CUDA_SUCCESS) {
        r = api(arena)->event_record(event, stream);
        if (r != CUDA_SUCCESS)
            event_put(arena, event);
    }
    (void) api(arena)->ctx_pop_current(&ignored);
    *ret = event;
    return r;
}

static bool pages_plausible(
    const struct gmb_arena *arena, size_t n, const uint32_t *pages, bool unpin)
{
    for (size_t i = 0; i < n; i++) {
        if (!arena_page_held(&arena->pool.table, pages[i], unpin))
            return false;
    }
    return true;
}

static int after_add(struct gmb_arena *arena, size_t n, const uint32_t *pages, CUstream stream,
    bool unpin, struct outcome *outcome)
{
    struct arena_after *after = malloc(sizeof(*after) + n * sizeof(*pages));
    CUresult r;

    if (after == NULL)
        return outcome_set(outcome, GMB_E_INTERNAL, "no host memory for what waits for a stream");
    list_init(&after->link);
    after->stream = stream;
    after->unpin = unpin;
    after->n = n;
    for (size_t i = 0; i < n; i++)
        after->pages[i] = pages[i];
    (void) pthread_mutex_lock(&arena->after_lock);
    if (arena->events == NULL)
        arena->events = calloc(EVENTS_KEPT, sizeof(*arena->events));
    r = event_record(arena, stream, &after->event);
    if (r == CUDA_SUCCESS) {
        list_append(&arena->after, &after->link);
        atomic_fetch_add(&arena->deferred, 1);
    }
    (void) pthread_mutex_unlock(&arena->after_lock);
    if (r == CUDA_SUCCESS)
        return 0;
    free(after);
    return outcome_set(outcome, GMB_E_GPU, "an event can't be recorded in the stream: %d", (int) r);
}

static int page_after(
    struct gmb_arena *arena, size_t n, const uint32_t *pages, void *stream, bool unpin)
{
    struct outcome outcome = OUTCOME_OK;
    int r = fork_guard_check(arena->lease.session, &outcome);

    if (r == 0)
        (void) arena_after_apply(arena);
    if (r == 0 && api(arena) == NULL)
        r = outcome_set(&outcome, GMB_E_UNSUPPORTED, "the driver has no streams");
    if (r == 0 && !pages_plausible(arena, n, pages, unpin))
        r = outcome_set(&outcome, GMB_E_INVALID, "a page isn't %s", unpin ? "pinned" : "allocated");
    if (r == 0 && n > 0)
        (void) after_add(arena, n, pages, stream, unpin, &outcome);
    return outcome_publish(&outcome);
}

_public_ int gmb_page_unref_after(gmb_arena *arena, size_t n, const uint32_t *pages, void *stream)
{
    return page_after(arena, n, pages, stream, false);
}

_public_ int gmb_page_unpin_after(gmb_arena *arena, size_t n, const uint32_t *pages, void *stream)
{
    return page_after(arena, n, pages, stream, true);
}
