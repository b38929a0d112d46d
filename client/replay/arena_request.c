/*
 * The phases of phase.h as straight code. Memory is asked for twice, first with the patience of one
 * exchange with the broker, so that "admitted at once" means that nobody had to give anything.
 *
 * A request that waits long for its next page is swapped out: it unpins what it has, which may go to
 * the host then, and waits for its page in the queue; then all of it comes back. If it can't (its
 * pages were dropped, or others are quicker), it tries again until its patience ends.
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
/* Until a swapped out request tries again to come back. */
#define AGAIN_NS (100 * NSEC_PER_MSEC)
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
    uint64_t begin_ns;

    atomic_store(&request->stats->entitled, worker->params->memory_min_bytes > 0);
    entitlement_check(request, count);
    set_phase(request, PHASE_ASKING);
    outcome = pages_take(&request->pages, count, AT_ONCE_NS);
    if (outcome == PAGES_SHORT) {
        begin_ns = clock_now(&clock_monotonic);
        wait_begin(request, PHASE_WAITING);
        outcome = pages_take(&request->pages, count, worker->params->wait_ns);
        waited(request, begin_ns);
    }
    if (outcome == PAGES_SHORT || outcome == PAGES_REFUSED)
        return end_refused(request);
    return outcome;
}

/* Swapped out until it has one more page and all that it had before. */
static enum pages_outcome swap(struct arena_request *request)
{
    struct arena_worker *worker = request->worker;
    uint64_t begin_ns = clock_now(&clock_monotonic), now_ns = begin_ns;
    uint64_t until_ns = add_saturate(begin_ns, worker->params->wait_ns);
    const size_t wanted = request->pages.count + 1;
    enum pages_outcome outcome = PAGES_SHORT;

    pages_unpin(&request->pages);
    atomic_fetch_add(&request->stats->preempted, 1);
    wait_begin(request, PHASE_WAITING);
    while (outcome == PAGES_SHORT && now_ns < until_ns) {
        outcome = pages_pin(&request->pages, MIN(until_ns - now_ns, NSEC_PER_SEC));
        if (outcome == PAGES_LOST) { /* all that it had is computed again */
            pages_drop(&request->pages);
            request->pages.owner.attempt++;
            outcome = PAGES_OK;
        }
        if (outcome == PAGES_OK)
            outcome = pages_take(&request->pages, wanted - request->pages.count,
                request->pages.count > 0 ? AT_ONCE_NS : until_ns - now_ns);
        if (outcome == PAGES_SHORT) {
            pages_unpin(&request->pages);
            (void) arena_nap(worker, clock_now(&clock_monotonic) + AGAIN_NS);
        }
        now_ns = clock_now(&clock_monotonic);
    }
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
