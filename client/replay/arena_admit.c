/*
 * Behind the gate (arena_pool.h) a request waits for memory, in the order of priority and then of
 * arrival.
 *
 * Of the requests of a worker that wait for memory one at a time asks for it, those that were
 * swapped out before those that arrive: if all did, each would get a part and none enough. Engines
 * schedule alike.
 */
#include "client/replay/arena_admit.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "client/replay/arena_obey.h"

/* One exchange with a broker that has the memory. */
#define AT_ONCE_NS (20 * NSEC_PER_MSEC)
/* How long one request asks before it looks whether a more important one has come. */
#define TURN_NS NSEC_PER_SEC

static void set_phase(struct arena_request *request, enum phase phase)
{
    stats_phase(request->worker->stats, request->stats, phase);
}

void arena_wait_begin(struct arena_request *request, enum phase phase)
{
    atomic_store(&request->stats->waited, true);
    if (atomic_load(&request->stats->phase) != phase)
        set_phase(request, phase);
}

void arena_wait_end(struct arena_request *request, uint64_t since_ns)
{
    atomic_fetch_add(&request->stats->waited_ns, clock_now(&clock_monotonic) - since_ns);
}

enum pages_outcome arena_end_refused(struct arena_request *request, const char *limit)
{
    (void) snprintf(request->stats->limit, sizeof(request->stats->limit), "%s", limit);
    pages_drop(&request->pages);
    set_phase(request, PHASE_REFUSED);
    return PAGES_REFUSED;
}

void arena_check_entitled(struct arena_request *request, size_t count)
{
    const struct worker_params *params = request->worker->params;
    uint64_t held =
        atomic_load(&params->stats->tenants[params->index % params->stats->tenant_count].now);

    if (held + count * request->worker->pages.chunk_bytes > params->memory_min_bytes)
        atomic_store(&request->stats->entitled, false);
}

static struct timespec timespec_of(uint64_t ns)
{
    return (struct timespec){
        .tv_sec = (time_t) (ns / NSEC_PER_SEC), .tv_nsec = (long) (ns % NSEC_PER_SEC)};
}

void arena_turns_wake(struct arena_worker *worker)
{
    struct list *const queues[] = {&worker->swapped, &worker->waiting};

    for (size_t i = 0; i < ARRAY_SIZE(queues); i++) {
        struct arena_request *first = list_first(queues[i], struct arena_request, waiting);

        if (first != NULL)
            (void) pthread_cond_signal(&first->turn);
    }
}

void arena_turns_wake_all(struct arena_worker *worker)
{
    struct list *const queues[] = {&worker->swapped, &worker->waiting};

    for (size_t i = 0; i < ARRAY_SIZE(queues); i++) {
        list_for_each(request, queues[i], struct arena_request, waiting)(void)
            pthread_cond_signal(&request->turn);
    }
}

void arena_queue_enter(struct list *queue, struct arena_request *request)
{
    struct list *before = queue;

    list_for_each(other, queue, struct arena_request, waiting)
    {
        if (other->priority < request->priority) {
            before = &other->waiting;
            break;
        }
    }
    list_append(before, &request->waiting);
}

static void queue_leave(struct arena_request *request)
{
    list_remove(&request->waiting);
    arena_turns_wake(request->worker);
}

/* ---- turns ---- */

/* Its turn to ask: the first of its queue, and nobody in the one before. */
static bool may_ask(const struct arena_request *request, bool swapped)
{
    struct arena_worker *worker = request->worker;

    if (swapped)
        return list_first(&worker->swapped, struct arena_request, waiting) == request;
    return list_empty(&worker->swapped) &&
           list_first(&worker->waiting, struct arena_request, waiting) == request;
}

static bool turn_await(struct arena_request *request, bool swapped, uint64_t until_ns)
{
    struct arena_worker *worker = request->worker;
    const struct timespec until = timespec_of(until_ns);
    bool mine;
    int r = 0;

    while (!(mine = may_ask(request, swapped)) && r == 0 && !atomic_load(&worker->stopping))
        r = pthread_cond_timedwait(&request->turn, &worker->lock, &until);
    return mine && !atomic_load(&worker->stopping);
}

bool arena_turn_enter(struct arena_request *request, uint64_t until_ns)
{
    struct arena_worker *worker = request->worker;
    bool mine;

    (void) pthread_mutex_lock(&worker->lock);
    arena_queue_enter(&worker->swapped, request);
    mine = turn_await(request, true, until_ns);
    (void) pthread_mutex_unlock(&worker->lock);
    return mine;
}

void arena_turn_leave(struct arena_request *request)
{
    (void) pthread_mutex_lock(&request->worker->lock);
    queue_leave(request);
    (void) pthread_mutex_unlock(&request->worker->lock);
}

/* Asks again and again while it is its turn, and lets a more important one that has come ask
 * first. */
static enum pages_outcome take_in_turn(
    struct arena_request *request, size_t count, uint64_t until_ns)
{
    struct arena_worker *worker = request->worker;
    enum pages_outcome outcome = PAGES_SHORT;
    bool mine = true;

    (void) pthread_mutex_lock(&worker->lock);
    arena_queue_enter(&worker->waiting, request);
    while (outcome == PAGES_SHORT && mine) {
        uint64_t left_ns;

        mine = turn_await(request, false, until_ns);
        left_ns = sub_saturate(until_ns, clock_now(&clock_monotonic));
        if (!mine || left_ns == 0)
            break;
        (void) pthread_mutex_unlock(&worker->lock);
        outcome = pages_take(&request->pages, count, MIN(left_ns, TURN_NS));
        (void) pthread_mutex_lock(&worker->lock);
    }
    queue_leave(request);
    (void) pthread_mutex_unlock(&worker->lock);
    return outcome;
}

/* ---- both ---- */

/* The tokens of the prompt that are read, and the pages for them. */
static size_t prompt_pages(struct arena_request *request)
{
    struct arena_worker *worker = request->worker;
    uint64_t tokens = request->trace->context_tokens, limit;

    (void) pthread_mutex_lock(&worker->lock);
    limit = worker->ladder.context_tokens;
    request->density = worker->ladder.density;
    (void) pthread_mutex_unlock(&worker->lock);
    request->context_tokens = MIN(tokens, limit);
    if (request->context_tokens < tokens)
        arena_obey_count(worker, GMB_DEGRADE_SHRINK_CONTEXT, 1,
            arena_request_bytes(worker, tokens - request->context_tokens));
    return arena_request_pages(worker, request->context_tokens, request->density);
}

static enum pages_outcome take_prompt(struct arena_request *request, uint64_t until_ns)
{
    size_t count = prompt_pages(request);
    enum pages_outcome outcome;
    uint64_t begin_ns;

    arena_check_entitled(request, count);
    outcome = pages_take(&request->pages, count, AT_ONCE_NS);
    if (outcome == PAGES_SHORT) {
        begin_ns = clock_now(&clock_monotonic);
        arena_wait_begin(request, PHASE_WAITING);
        outcome = take_in_turn(request, count, until_ns);
        arena_wait_end(request, begin_ns);
    }
    if (outcome == PAGES_OK)
        arena_request_store(request, request->context_tokens);
    return outcome;
}

/* What refused last; where it was nobody, it waited in vain for its turn. */
static const char *limit_name(void)
{
    const char *limit = gmb_error_limit();

    return strcmp(limit, "none") != 0 ? limit : "turn";
}

enum pages_outcome arena_admit(struct arena_request *request)
{
    uint64_t until_ns = add_saturate(request->arrived_ns, request->worker->params->wait_ns);
    enum pages_outcome outcome;

    if (atomic_load(&request->stats->waited))
        arena_wait_end(request, request->arrived_ns);
    outcome = take_prompt(request, until_ns);
    if (outcome != PAGES_OK && atomic_load(&request->worker->stopping))
        return PAGES_FAILED;
    if (outcome == PAGES_SHORT || outcome == PAGES_REFUSED)
        return arena_end_refused(request, limit_name());
    return outcome;
}
