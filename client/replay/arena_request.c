/*
 * The phases of phase.h as straight code. Memory is asked for twice, first with the patience of one
 * exchange with the broker, so that "admitted at once" means that nobody had to give anything.
 *
 * A request that waits long for its next page is swapped out: it unpins what it has, which may go
 * to the host then, and waits until all of it can come back with one page more.
 *
 * Of the requests of a worker that wait for memory one at a time asks for it, those that were
 * swapped out before those that arrive: if all did, each would get a part and none enough. Engines
 * schedule alike.
 */
#include "client/replay/arena_request.h"

#include <errno.h>
#include <stdio.h>
#include <sys/eventfd.h>

#include "base/clock.h"

/* One exchange with a broker that has the memory. */
#define AT_ONCE_NS (20 * NSEC_PER_MSEC)
/* As in request.c: how long a request that holds memory waits for more. */
#define STALL_NS NSEC_PER_SEC
#define STALL_MIN_NS (50 * NSEC_PER_MSEC)
#define THREAD_STACK_BYTES (256u * 1024u)

static void set_phase(struct arena_request *request, enum phase phase)
{
    stats_phase(request->worker->stats, request->stats, phase);
}

static void wait_begin(struct arena_request *request, enum phase phase)
{
    atomic_store(&request->stats->waited, true);
    set_phase(request, phase);
}

static void waited(struct arena_request *request, uint64_t since_ns)
{
    atomic_fetch_add(&request->stats->waited_ns, clock_now(&clock_monotonic) - since_ns);
}

/* Its turn to ask: the first of its queue, and nobody in the one before. */
static bool may_ask(const struct arena_request *request, bool swapped)
{
    struct arena_worker *worker = request->worker;

    if (swapped)
        return list_first(&worker->swapped, struct arena_request, waiting) == request;
    return list_empty(&worker->swapped) &&
           list_first(&worker->waiting, struct arena_request, waiting) == request;
}

/* Waits for its turn until then. False when the time is over or the worker is to stop; leave in any
 * case. */
static bool turn_enter(struct arena_request *request, bool swapped, uint64_t until_ns)
{
    struct arena_worker *worker = request->worker;
    const struct timespec until = {
        .tv_sec = (time_t) (until_ns / NSEC_PER_SEC), .tv_nsec = (long) (until_ns % NSEC_PER_SEC)};
    bool mine;
    int r = 0;

    (void) pthread_mutex_lock(&worker->lock);
    list_append(swapped ? &worker->swapped : &worker->waiting, &request->waiting);
    while (!(mine = may_ask(request, swapped)) && r == 0 && !atomic_load(&worker->stopping))
        r = pthread_cond_timedwait(&worker->changed, &worker->lock, &until);
    (void) pthread_mutex_unlock(&worker->lock);
    return mine && !atomic_load(&worker->stopping);
}

static void turn_leave(struct arena_request *request)
{
    struct arena_worker *worker = request->worker;

    (void) pthread_mutex_lock(&worker->lock);
    list_remove(&request->waiting);
    (void) pthread_cond_broadcast(&worker->changed);
    (void) pthread_mutex_unlock(&worker->lock);
}

static uint64_t left_ns(uint64_t until_ns)
{
    return sub_saturate(until_ns, clock_now(&clock_monotonic));
}

/* Whether its tenant stays within its guarantee with so many pages more. */
static void entitlement_check(struct arena_request *request, size_t count)
{
    const struct worker_params *params = request->worker->params;
    uint64_t held =
        atomic_load(&params->stats->tenants[params->index % params->stats->tenant_count].now);

    if (held + count * request->worker->pages.chunk_bytes > params->memory_min_bytes)
        atomic_store(&request->stats->entitled, false);
}

static enum pages_outcome end_refused(struct arena_request *request)
{
    (void) snprintf(request->stats->limit, sizeof(request->stats->limit), "%s", gmb_error_limit());
    pages_drop(&request->pages);
    set_phase(request, PHASE_REFUSED);
    return PAGES_REFUSED;
}

/* The pages of the prompt. */
static enum pages_outcome admit(struct arena_request *request)
{
    struct arena_worker *worker = request->worker;
    size_t count = (size_t) model_chunks(&worker->pages, request->trace->context_tokens);
    enum pages_outcome outcome;
    uint64_t begin_ns, until_ns;

    atomic_store(&request->stats->entitled, worker->params->memory_min_bytes > 0);
    entitlement_check(request, count);
    set_phase(request, PHASE_ASKING);
    outcome = pages_take(&request->pages, count, AT_ONCE_NS);
    if (outcome == PAGES_SHORT) {
        begin_ns = clock_now(&clock_monotonic);
        until_ns = add_saturate(begin_ns, worker->params->wait_ns);
        wait_begin(request, PHASE_WAITING);
        if (turn_enter(request, false, until_ns))
            outcome = pages_take(&request->pages, count, left_ns(until_ns));
        turn_leave(request);
        waited(request, begin_ns);
    }
    if (atomic_load(&worker->stopping))
        return PAGES_FAILED;
    if (outcome == PAGES_SHORT || outcome == PAGES_REFUSED)
        return end_refused(request);
    return outcome;
}

/* Its turn: all that it had comes back, with one page more. What was dropped is computed again. */
static enum pages_outcome come_back(struct arena_request *request, size_t wanted, uint64_t until_ns)
{
    struct pages *pages = &request->pages;
    enum pages_outcome outcome = PAGES_SHORT;

    while (outcome == PAGES_SHORT && left_ns(until_ns) > 0) {
        outcome = pages_pin(pages, left_ns(until_ns));
        if (outcome == PAGES_LOST) {
            pages_drop(pages);
            pages->owner.attempt++;
            outcome = PAGES_OK;
        }
        if (outcome == PAGES_OK)
            outcome =
                pages_take(pages, wanted - pages->count, MIN(left_ns(until_ns), NSEC_PER_SEC));
        if (outcome == PAGES_SHORT)
            pages_unpin(pages);
    }
    return outcome;
}

/* Swapped out until it has one more page and all that it had before. */
static enum pages_outcome swap(struct arena_request *request)
{
    uint64_t begin_ns = clock_now(&clock_monotonic);
    uint64_t until_ns = add_saturate(begin_ns, request->worker->params->wait_ns);
    const size_t wanted = request->pages.count + 1;
    enum pages_outcome outcome = PAGES_SHORT;

    pages_unpin(&request->pages);
    atomic_fetch_add(&request->stats->preempted, 1);
    wait_begin(request, PHASE_WAITING);
    if (turn_enter(request, true, until_ns))
        outcome = come_back(request, wanted, until_ns);
    else if (atomic_load(&request->worker->stopping))
        outcome = PAGES_FAILED;
    turn_leave(request);
    waited(request, begin_ns);
    if (outcome == PAGES_SHORT || outcome == PAGES_REFUSED)
        return end_refused(request);
    if (outcome == PAGES_OK)
        set_phase(request, PHASE_PREFILL);
    return outcome;
}

/* One page more. */
static enum pages_outcome grow(struct arena_request *request)
{
    const struct arena_worker *worker = request->worker;
    uint64_t begin_ns = clock_now(&clock_monotonic);
    enum pages_outcome outcome;

    entitlement_check(request, 1);
    set_phase(request, PHASE_GROWING);
    outcome = pages_take(&request->pages, 1, AT_ONCE_NS);
    if (outcome == PAGES_SHORT) {
        wait_begin(request, PHASE_STALLED);
        outcome =
            pages_take(&request->pages, 1, MAX(arena_compress(worker, STALL_NS), STALL_MIN_NS));
        waited(request, begin_ns);
    }
    if (outcome == PAGES_SHORT)
        outcome = swap(request);
    else if (outcome == PAGES_REFUSED)
        return end_refused(request);
    if (outcome == PAGES_OK)
        set_phase(request, PHASE_DECODE);
    return outcome;
}

/* Tokens that can be generated with its pages. */
static uint64_t tokens_with_pages(const struct arena_request *request)
{
    uint64_t past = model_tokens_past(&request->worker->pages, request->pages.count);
    uint64_t room = sub_saturate(past, request->trace->context_tokens + 1);

    return MIN(room, request->trace->generated_tokens);
}

static enum pages_outcome generate(struct arena_request *request)
{
    struct arena_worker *worker = request->worker;
    const struct model *model = &worker->pages;
    uint64_t now_ns = clock_now(&clock_monotonic), tokens;
    enum pages_outcome outcome;

    set_phase(request, PHASE_PREFILL);
    if (!arena_nap(worker, now_ns + arena_compress(worker,
                                        model_prefill_ns(model, request->trace->context_tokens))))
        return PAGES_FAILED;
    set_phase(request, PHASE_DECODE);
    for (;;) {
        tokens = tokens_with_pages(request);
        now_ns = clock_now(&clock_monotonic);
        if (!arena_nap(worker, now_ns + arena_compress(worker,
                                            model_decode_ns(model, tokens - request->generated))))
            return PAGES_FAILED;
        request->generated = tokens;
        if (tokens == request->trace->generated_tokens)
            return PAGES_OK;
        outcome = grow(request);
        if (outcome != PAGES_OK)
            return outcome;
    }
}

/* Its pages stay until they are read again. */
static void keep(struct arena_request *request)
{
    pages_allow_drop(&request->pages);
    pages_unpin(&request->pages);
    set_phase(request, PHASE_COMPLETED);
    request->reread_ns = clock_now(&clock_monotonic) + request->worker->params->think_ns;
}

static void *request_main(void *user)
{
    struct arena_request *request = user;
    struct arena_worker *worker = request->worker;
    enum pages_outcome outcome = PAGES_FAILED;
    struct gpu_error error;

    if (device_enter(worker->device, &error) < 0)
        arena_fail(worker, "cannot use the device: %s", error.text);
    else
        outcome = admit(request);
    if (outcome == PAGES_OK)
        outcome = generate(request);
    if (outcome == PAGES_OK && pages_check(&request->pages)) {
        keep(request);
    } else if (outcome != PAGES_REFUSED) {
        pages_drop(&request->pages);
        set_phase(request, PHASE_LOST);
    }
    (void) pthread_mutex_lock(&worker->lock);
    request->ended = true;
    worker->unfinished--;
    (void) pthread_mutex_unlock(&worker->lock);
    (void) eventfd_write(worker->wake_fd, 1);
    return NULL;
}

struct arena_request *arena_request_free(struct arena_request *request)
{
    if (request) {
        pages_done(&request->pages);
        free(request);
    }
    return NULL;
}

static int thread_start(struct arena_request *request)
{
    pthread_attr_t attr;
    int r = pthread_attr_init(&attr);

    if (r != 0)
        return -r;
    r = pthread_attr_setstacksize(&attr, THREAD_STACK_BYTES);
    if (r == 0)
        r = pthread_create(&request->thread, &attr, request_main, request);
    (void) pthread_attr_destroy(&attr);
    return -r;
}

int arena_request_begin(struct arena_worker *worker, uint64_t index)
{
    const struct worker_params *params = worker->params;
    struct arena_request *request = calloc(1, sizeof(*request));
    int r;

    if (!request)
        return -ENOMEM;
    request->worker = worker;
    request->trace = &params->trace->requests[index];
    request->stats = &params->stats->requests[index];
    list_init(&request->waiting);
    r = pages_init(&request->pages, worker, index,
        (size_t) model_request_chunks(&worker->pages, request->trace));
    if (r < 0) {
        (void) arena_request_free(request);
        return r;
    }
    (void) pthread_mutex_lock(&worker->lock);
    worker->unfinished++;
    list_append(&worker->live, &request->link);
    (void) pthread_mutex_unlock(&worker->lock);
    atomic_fetch_add(&worker->stats->in_flight, 1);
    r = thread_start(request);
    if (r == 0)
        return 0;
    atomic_fetch_sub(&worker->stats->in_flight, 1);
    (void) pthread_mutex_lock(&worker->lock);
    worker->unfinished--;
    list_remove(&request->link);
    (void) pthread_mutex_unlock(&worker->lock);
    (void) arena_request_free(request);
    return r;
}
