/*
 * The state machine of phase.h, driven by two things: a timer of its own and the answers of the
 * broker. Both asks for memory are made twice: at once with no patience, which says whether the
 * memory was there, and if it wasn't, again in the broker's queue. So "admitted at once" and
 * "waited" are the broker's word, not a guess from times.
 *
 * Tokens are counted by the clock: `decode_from` of them were there at `decode_ns`. A stall moves
 * both, so that the time waited for memory is added to the service time, as it is in an engine.
 */
#include "client/replay/request.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "client/replay/request_memory.h"

/*
 * How long a request that holds memory waits for more before it is preempted, in the trace's time:
 * some of the others, whose answers take seconds, will have ended by then. What it holds lies idle
 * meanwhile. In real time at least what the broker takes to answer under load.
 */
#define STALL_NS NSEC_PER_SEC
#define STALL_MIN_NS (10 * NSEC_PER_MSEC)

static void on_granted(void *user, gmb_lease *lease, int error);
static void on_grown(void *user, gmb_lease *lease, int error);
static void decode_schedule(struct request *request);

static const struct model *model_of(const struct request *request)
{
    return request->worker->params->model;
}

static void set_phase(struct request *request, enum phase phase)
{
    stats_phase(request->worker->stats, request->stats, phase);
    request->phase = phase;
    if (phase_is_final(phase) && --request->worker->unfinished == 0)
        worker_idle(request->worker);
}

static void timer_set(struct request *request, uint64_t at_ns)
{
    uint64_t left_us = sub_saturate(at_ns, clock_now(&clock_monotonic)) / NSEC_PER_USEC;
    struct timeval left = {
        .tv_sec = (time_t) (left_us / 1000000), .tv_usec = (suseconds_t) (left_us % 1000000)};

    if (event_add(request->timer, &left) < 0)
        worker_fail(request->worker, "no memory for a timer");
}

static uint64_t compress(const struct request *request, uint64_t trace_ns)
{
    return (uint64_t) ((double) trace_ns / request->worker->params->speed);
}

/* ---- asking ---- */

static void refuse(struct request *request)
{
    (void) snprintf(request->stats->limit, sizeof(request->stats->limit), "%s", gmb_error_limit());
    set_phase(request, PHASE_REFUSED);
}

static void ask(struct request *request, uint64_t wait_ns)
{
    const uint64_t chunk_bytes = model_of(request)->chunk_bytes;
    struct gmb_lease_params params = {
        .size = sizeof(params),
        .device = request->worker->device_uuid,
        .bytes = request->wanted * chunk_bytes,
        .max_bytes = request->final * chunk_bytes,
        .chunk_bytes = chunk_bytes,
        .wait_ns = wait_ns,
        .label = "gmb-replay",
    };
    int r = gmb_lease_new_async(
        request->worker->session, &params, on_granted, request, &request->ask_id);

    if (r == GMB_E_OVER_LIMIT || r == GMB_E_EXHAUSTED)
        refuse(request);
    else if (r < 0)
        worker_fail(request->worker, "cannot ask for memory: %s", gmb_error_text());
}

static void wait_begin(struct request *request, enum phase phase)
{
    atomic_store(&request->stats->waited, true);
    request->asked_ns = clock_now(&clock_monotonic);
    set_phase(request, phase);
}

static void wait_end(struct request *request)
{
    if (request->asked_ns == 0)
        return;
    atomic_fetch_add(&request->stats->waited_ns, clock_now(&clock_monotonic) - request->asked_ns);
    request->asked_ns = 0;
}

/* Memory that isn't there now and may be later. */
static bool is_shortage(int error)
{
    return error == GMB_E_EXHAUSTED || error == GMB_E_TIMED_OUT;
}

static void on_granted(void *user, gmb_lease *lease, int error)
{
    struct request *request = user;
    struct worker *worker = request->worker;
    uint64_t tokens = request->trace->context_tokens + request->generated;

    request->ask_id = 0;
    if (worker->stopping) {
        if (error == 0)
            (void) gmb_lease_release(lease);
        set_phase(request, PHASE_LOST);
        return;
    }
    if (is_shortage(error) && request->phase == PHASE_ASKING) {
        wait_begin(request, PHASE_WAITING);
        ask(request, worker->params->wait_ns);
        return;
    }
    wait_end(request);
    if (is_shortage(error) || error == GMB_E_OVER_LIMIT) {
        refuse(request);
        return;
    }
    if (error != 0) {
        worker_fail(worker, "a request for memory failed: %s", gmb_error_text());
        return;
    }
    request->lease = lease;
    if (!request_receive(request))
        return;
    set_phase(request, PHASE_PREFILL);
    timer_set(request, clock_now(&clock_monotonic) +
                           compress(request, model_prefill_ns(model_of(request), tokens)));
}

static void abandon(struct request *request)
{
    if (phase_is_final(request->phase))
        return;
    if (request->lease) {
        if (!request->worker->failed)
            (void) request_check(request);
        (void) request_give_back(request);
    }
    set_phase(request, PHASE_LOST);
}

/* ---- growing ---- */

/* The request can't have what it needs: it gives back what it has, and starts over in the queue. */
static void preempt(struct request *request)
{
    wait_end(request);
    if (!request_check(request) || !request_give_back(request))
        return;
    atomic_fetch_add(&request->stats->preempted, 1);
    request->owner.attempt++;
    wait_begin(request, PHASE_WAITING);
    ask(request, request->worker->params->wait_ns);
}

static void grow(struct request *request, uint64_t wait_ns)
{
    int r = gmb_lease_grow_async(request->lease, model_of(request)->chunk_bytes, wait_ns, on_grown,
        request, &request->ask_id);

    if (r < 0)
        worker_fail(request->worker, "cannot ask for more memory: %s", gmb_error_text());
}

static void on_grown(void *user, gmb_lease *lease, int error)
{
    struct request *request = user;
    struct worker *worker = request->worker;

    (void) lease;
    request->ask_id = 0;
    if (worker->stopping) {
        abandon(request);
        return;
    }
    if (is_shortage(error) && request->phase == PHASE_GROWING) {
        wait_begin(request, PHASE_STALLED);
        grow(request, MAX(compress(request, STALL_NS), STALL_MIN_NS));
        return;
    }
    if (is_shortage(error) && request->phase == PHASE_STALLED) {
        preempt(request);
        return;
    }
    wait_end(request);
    if (error == GMB_E_OVER_LIMIT) {
        char limit[STATS_LIMIT_BYTES];

        (void) snprintf(limit, sizeof(limit), "%s", gmb_error_limit());
        if (!request_check(request) || !request_give_back(request))
            return;
        memcpy(request->stats->limit, limit, sizeof(limit));
        set_phase(request, PHASE_REFUSED);
        return;
    }
    if (error != 0) {
        worker_fail(worker, "a request for more memory failed: %s", gmb_error_text());
        return;
    }
    if (!request_receive(request))
        return;
    if (request->phase == PHASE_STALLED) {
        request->decode_ns = clock_now(&clock_monotonic);
        request->decode_from = request->generated;
    }
    set_phase(request, PHASE_DECODE);
    decode_schedule(request);
}

/* ---- time ---- */

/* Tokens that can be generated before the next chunk is needed; all that are left at most. */
static uint64_t tokens_with(const struct request *request, uint64_t chunks)
{
    uint64_t past = model_tokens_past(model_of(request), chunks);
    uint64_t room = sub_saturate(past, request->trace->context_tokens + 1);

    return MIN(room, request->trace->generated_tokens);
}

/* Sets the timer to the moment at which token tokens_with() + 1 begins, or to the end. */
static void decode_schedule(struct request *request)
{
    uint64_t tokens = tokens_with(request, request->chunks) - request->decode_from;

    timer_set(request,
        request->decode_ns + compress(request, model_decode_ns(model_of(request), tokens)));
}

static void on_timer(evutil_socket_t fd, short what, void *user)
{
    struct request *request = user;

    (void) fd;
    (void) what;
    if (request->worker->stopping)
        return;
    if (request->phase == PHASE_PREFILL) {
        request->decode_ns = clock_now(&clock_monotonic);
        request->decode_from = request->generated;
        set_phase(request, PHASE_DECODE);
        decode_schedule(request);
        return;
    }
    request->generated = tokens_with(request, request->chunks);
    if (request->generated < request->trace->generated_tokens) {
        request->wanted = request->chunks + 1;
        set_phase(request, PHASE_GROWING);
        grow(request, GMB_WAIT_NONE);
    } else if (request_check(request) && request_give_back(request)) {
        set_phase(request, PHASE_COMPLETED);
    }
}

/* ---- life ---- */

int request_begin(struct worker *worker, uint64_t index)
{
    const struct worker_params *params = worker->params;
    struct request *request = calloc(1, sizeof(*request));

    if (!request)
        return -ENOMEM;
    request->worker = worker;
    request->trace = &params->trace->requests[index];
    request->stats = &params->stats->requests[index];
    request->owner =
        (struct pattern_owner){.tenant = worker->tenant, .worker = params->index, .request = index};
    request->wanted = model_chunks(params->model, request->trace->context_tokens);
    request->final = model_request_chunks(params->model, request->trace);
    request->timer = evtimer_new(worker->base, on_timer, request);
    if (!request->timer) {
        free(request);
        return -ENOMEM;
    }
    list_append(&worker->live, &request->link);
    worker->unfinished++;
    atomic_fetch_add(&worker->stats->in_flight, 1);
    set_phase(request, PHASE_ASKING);
    ask(request, GMB_WAIT_NONE);
    return 0;
}

static void request_free(struct request *request)
{
    list_remove(&request->link);
    event_free(request->timer);
    free(request);
}

void requests_prune(struct worker *worker)
{
    list_for_each_safe(request, &worker->live, struct request, link)
    {
        if (phase_is_final(request->phase))
            request_free(request);
    }
}

void requests_stop(struct worker *worker)
{
    list_for_each_safe(request, &worker->live, struct request, link)
    {
        if (request->ask_id == 0)
            abandon(request);
        else
            (void) gmb_cancel(worker->session, request->ask_id); /* it calls back either way */
    }
}

void requests_free(struct worker *worker)
{
    list_for_each_safe(request, &worker->live, struct request, link)
    {
        if (!phase_is_final(request->phase))
            set_phase(request, PHASE_LOST);
        request_free(request);
    }
}
