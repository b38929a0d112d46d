/*
 * The phases of phase.h as straight code. Memory is asked for twice, first with the patience of one
 * exchange with the broker, so that "admitted at once" means that nobody had to give anything.
 *
 * A request that waits long for its next page is swapped out: it unpins what it has, which may go
 * to the host then, and waits until all of it can come back with one page more.
 */
#include "client/replay/arena_admit.h"

#include <errno.h>
#include <stdio.h>
#include <sys/eventfd.h>

#include "base/clock.h"
#include "client/replay/arena_obey.h"
#include "client/replay/arena_pool.h"

/* One exchange with a broker that has the memory. */
#define AT_ONCE_NS (20 * NSEC_PER_MSEC)
/* As in request.c: how long a request that holds memory waits for more. */
#define STALL_NS NSEC_PER_SEC
#define STALL_MIN_NS (50 * NSEC_PER_MSEC)

static void set_phase(struct arena_request *request, enum phase phase)
{
    stats_phase(request->worker->stats, request->stats, phase);
}

static uint64_t left_ns(uint64_t until_ns)
{
    return sub_saturate(until_ns, clock_now(&clock_monotonic));
}

/* ---- tokens ---- */

size_t arena_request_pages(const struct arena_worker *worker, uint64_t tokens, unsigned density)
{
    const struct model model = model_denser(&worker->pages, density);

    return (size_t) model_chunks(&model, tokens);
}

uint64_t arena_request_bytes(const struct arena_worker *worker, uint64_t tokens)
{
    return model_token_bytes(&worker->pages, tokens) / worker->pages.scale;
}

void arena_request_store(struct arena_request *request, uint64_t tokens)
{
    struct arena_worker *worker = request->worker;
    const struct model model = model_denser(&worker->pages, request->density);
    uint64_t plain = model_token_bytes(&worker->pages, tokens);
    uint64_t bytes = model_token_bytes(&model, tokens);

    request->stored += bytes;
    if (request->density > 1)
        arena_obey_count(
            worker, GMB_DEGRADE_QUANTIZE_KV, tokens, (plain - bytes) / worker->pages.scale);
}

/* ---- growing ---- */

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
    arena_wait_begin(request, PHASE_WAITING);
    if (arena_turn_enter(request, until_ns))
        outcome = come_back(request, wanted, until_ns);
    else if (atomic_load(&request->worker->stopping))
        outcome = PAGES_FAILED;
    arena_turn_leave(request);
    arena_wait_end(request, begin_ns);
    if (outcome == PAGES_SHORT || outcome == PAGES_REFUSED)
        return arena_end_refused(request, gmb_error_limit());
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

    arena_check_entitled(request, 1);
    set_phase(request, PHASE_GROWING);
    outcome = pages_take(&request->pages, 1, AT_ONCE_NS);
    if (outcome == PAGES_SHORT) {
        arena_wait_begin(request, PHASE_STALLED);
        outcome =
            pages_take(&request->pages, 1, MAX(arena_compress(worker, STALL_NS), STALL_MIN_NS));
        arena_wait_end(request, begin_ns);
    }
    if (outcome == PAGES_SHORT)
        outcome = swap(request);
    else if (outcome == PAGES_REFUSED)
        return arena_end_refused(request, gmb_error_limit());
    if (outcome == PAGES_OK)
        set_phase(request, PHASE_DECODE);
    return outcome;
}

/* Tokens that will have been generated when its pages are full, at the density of this moment. */
static uint64_t tokens_with_pages(struct arena_request *request)
{
    struct arena_worker *worker = request->worker;
    struct model model;
    uint64_t room;

    (void) pthread_mutex_lock(&worker->lock);
    request->density = worker->ladder.density;
    (void) pthread_mutex_unlock(&worker->lock);
    model = model_denser(&worker->pages, request->density);
    room = model_tokens_within(&model, request->pages.count, request->stored);
    return MIN(add_saturate(request->generated, room), request->trace->generated_tokens);
}

static enum pages_outcome generate(struct arena_request *request)
{
    struct arena_worker *worker = request->worker;
    const struct model *model = &worker->pages;
    uint64_t now_ns = clock_now(&clock_monotonic), tokens;
    enum pages_outcome outcome;

    set_phase(request, PHASE_PREFILL);
    if (!arena_nap(worker,
            now_ns + arena_compress(worker, model_prefill_ns(model, request->context_tokens))))
        return PAGES_FAILED;
    set_phase(request, PHASE_DECODE);
    for (;;) {
        tokens = tokens_with_pages(request);
        now_ns = clock_now(&clock_monotonic);
        if (!arena_nap(worker, now_ns + arena_compress(worker,
                                            model_decode_ns(model, tokens - request->generated))))
            return PAGES_FAILED;
        arena_request_store(request, tokens - request->generated);
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

void arena_request_end(struct arena_request *request, enum pages_outcome outcome)
{
    struct arena_worker *worker = request->worker;

    if (outcome != PAGES_OK && outcome != PAGES_REFUSED) {
        pages_drop(&request->pages);
        set_phase(request, PHASE_LOST);
    }
    (void) pthread_mutex_lock(&worker->lock);
    list_append(&worker->ended, &request->link);
    worker->unfinished--;
    (void) pthread_mutex_unlock(&worker->lock);
    (void) eventfd_write(worker->wake_fd, 1);
}

void arena_request_run(struct arena_request *request)
{
    enum pages_outcome outcome = arena_admit(request);

    if (outcome == PAGES_OK)
        outcome = generate(request);
    if (outcome == PAGES_OK && !pages_check(&request->pages))
        outcome = PAGES_FAILED;
    if (outcome == PAGES_OK)
        keep(request);
    arena_pool_leave(request->worker);
    arena_request_end(request, outcome);
}

struct arena_request *arena_request_free(struct arena_request *request)
{
    if (request) {
        pages_done(&request->pages);
        (void) pthread_cond_destroy(&request->turn);
        free(request);
    }
    return NULL;
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
    request->priority = worker_request_priority(params, index);
    request->density = 1;
    request->arrived_ns = clock_now(&clock_monotonic);
    list_init(&request->link);
    list_init(&request->waiting);
    r = arena_condition_init(&request->turn);
    if (r < 0) {
        free(request);
        return r;
    }
    r = pages_init(&request->pages, worker, index,
        (size_t) model_request_chunks(&worker->pages, request->trace));
    if (r < 0) {
        (void) arena_request_free(request);
        return r;
    }
    atomic_fetch_add(&worker->stats->in_flight, 1);
    arena_pool_enter(request);
    return 0;
}
