/*
 * As engines do it: what has arrived is a queue, what runs is a batch. So a worker has as many
 * threads as its batch has places, however many requests wait.
 */
#include "client/replay/arena_pool.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/eventfd.h>

#include "base/clock.h"
#include "client/replay/arena_admit.h"
#include "client/replay/arena_obey.h"

#define THREAD_STACK_BYTES (256u * 1024u)

/* ---- the gate ---- */

/* Whether its priority is no longer served, by the tenant's figures alone. */
static bool turned_away(const struct arena_request *request)
{
    const struct arena_worker *worker = request->worker;
    struct gmb_pressure pressure = {.size = sizeof(pressure)};
    size_t count;

    if (!worker->obeys)
        return false;
    count = arena_request_pages(worker,
        MIN(request->trace->context_tokens, worker->ladder.context_tokens), worker->ladder.density);
    if (gmb_admit(worker->arena, count, request->priority, NULL) != GMB_ADMIT_REJECT)
        return false;
    /* What can never fit is the broker's to refuse, by the name of its limit. */
    return gmb_pressure_read(worker->session, 0, &pressure) == 0 &&
           request->priority < pressure.reject_below;
}

enum verdict { STAYS, TURNED_AWAY, LATE, STOPPED, VERDICT_MAX };

/* The lock is held. */
static enum verdict judge(const struct arena_request *request, uint64_t now_ns)
{
    if (atomic_load(&request->worker->stopping))
        return STOPPED;
    if (turned_away(request))
        return TURNED_AWAY;
    return now_ns < add_saturate(request->arrived_ns, request->worker->params->wait_ns) ? STAYS
                                                                                        : LATE;
}

/* It never ran. */
static void end_early(struct arena_request *request, enum verdict verdict)
{
    struct arena_worker *worker = request->worker;

    if (atomic_load(&request->stats->waited))
        arena_wait_end(request, request->arrived_ns);
    if (verdict == TURNED_AWAY) {
        atomic_store(&request->stats->entitled, false);
        arena_obey_count(worker, GMB_DEGRADE_REJECT_BELOW_PRIORITY, 1,
            arena_request_bytes(worker, request->trace->context_tokens));
    }
    arena_request_end(request,
        verdict == STOPPED
            ? PAGES_FAILED
            : arena_end_refused(request, verdict == LATE ? "batch" : "reject-below-priority"));
}

/* Why it waits at the gate, for the report: once for each reason. The lock is held. */
static void wait_count(struct arena_request *request)
{
    struct arena_worker *worker = request->worker;
    enum gmb_degrade step =
        worker->ladder.paused ? GMB_DEGRADE_PAUSE_NEW : GMB_DEGRADE_REDUCE_BATCH;

    if (atomic_load(&request->stats->phase) == PHASE_ASKING)
        arena_wait_begin(request, PHASE_WAITING);
    if (!worker->ladder.in_force[step] || request->delayed[step])
        return;
    request->delayed[step] = true;
    arena_obey_count(worker, step, 1, 0);
}

/* The lock is held. */
static void gate_leave(struct arena_request *request)
{
    list_remove(&request->waiting);
    request->worker->gate_count--;
}

void arena_pool_look(struct arena_worker *worker)
{
    uint64_t now_ns = clock_now(&clock_monotonic);
    struct list gone[VERDICT_MAX];

    for (enum verdict i = 0; i < VERDICT_MAX; i++)
        list_init(&gone[i]);
    (void) pthread_mutex_lock(&worker->lock);
    list_for_each_safe(request, &worker->gate, struct arena_request, waiting)
    {
        enum verdict verdict = judge(request, now_ns);

        if (verdict == STAYS) {
            wait_count(request);
            continue;
        }
        gate_leave(request);
        list_append(&gone[verdict], &request->waiting);
    }
    (void) pthread_mutex_unlock(&worker->lock);
    for (enum verdict i = 0; i < VERDICT_MAX; i++) {
        list_for_each_safe(request, &gone[i], struct arena_request, waiting)
        {
            list_remove(&request->waiting);
            end_early(request, i);
        }
    }
}

void arena_pool_enter(struct arena_request *request)
{
    struct arena_worker *worker = request->worker;

    atomic_store(&request->stats->entitled, worker->params->memory_min_bytes > 0);
    stats_phase(worker->stats, request->stats, PHASE_ASKING);
    (void) pthread_mutex_lock(&worker->lock);
    worker->unfinished++;
    /* The places are enough for it and for those that came before. */
    if (worker->ladder.paused || worker->running + worker->gate_count >= worker->ladder.batch)
        wait_count(request);
    arena_queue_enter(&worker->gate, request);
    worker->gate_count++;
    (void) pthread_cond_signal(&worker->gate_open);
    (void) pthread_mutex_unlock(&worker->lock);
}

void arena_pool_leave(struct arena_worker *worker)
{
    (void) pthread_mutex_lock(&worker->lock);
    worker->running--;
    (void) pthread_cond_signal(&worker->gate_open);
    (void) pthread_mutex_unlock(&worker->lock);
}

bool arena_pool_busy(struct arena_worker *worker)
{
    bool busy;

    (void) pthread_mutex_lock(&worker->lock);
    busy = worker->unfinished > 0 || !list_empty(&worker->ended);
    (void) pthread_mutex_unlock(&worker->lock);
    return busy;
}

void arena_pool_wake(struct arena_worker *worker)
{
    (void) pthread_cond_broadcast(&worker->gate_open);
    (void) eventfd_write(worker->wake_fd, 1);
}

/* ---- threads ---- */

/* Takes the first that may run off the gate; NULL: the worker stops, or no more will come. */
static struct arena_request *request_await(struct arena_worker *worker)
{
    struct arena_request *request = NULL;

    (void) pthread_mutex_lock(&worker->lock);
    while (!atomic_load(&worker->stopping) && !worker->pool_ends) {
        bool open = !worker->ladder.paused && worker->running < worker->ladder.batch;

        request = open ? list_first(&worker->gate, struct arena_request, waiting) : NULL;
        if (request != NULL)
            break;
        (void) pthread_cond_wait(&worker->gate_open, &worker->lock);
    }
    if (request != NULL) {
        gate_leave(request);
        worker->running++;
    }
    (void) pthread_mutex_unlock(&worker->lock);
    return request;
}

static void *thread_main(void *user)
{
    struct arena_worker *worker = user;
    struct arena_request *request;
    struct gpu_error error;

    if (device_enter(worker->device, &error) < 0)
        arena_fail(worker, "cannot use the device: %s", error.text);
    while ((request = request_await(worker)) != NULL)
        arena_request_run(request);
    return NULL;
}

static int thread_start(struct arena_worker *worker)
{
    pthread_attr_t attr;
    int r = pthread_attr_init(&attr);

    if (r != 0)
        return -r;
    r = pthread_attr_setstacksize(&attr, THREAD_STACK_BYTES);
    if (r == 0)
        r = pthread_create(&worker->threads[worker->thread_count], &attr, thread_main, worker);
    (void) pthread_attr_destroy(&attr);
    worker->thread_count += r == 0;
    return -r;
}

int arena_pool_start(struct arena_worker *worker)
{
    int r = 0;

    worker->threads = calloc(worker->params->batch, sizeof(*worker->threads));
    if (worker->threads == NULL)
        return -ENOMEM;
    for (uint32_t i = 0; r == 0 && i < worker->params->batch; i++)
        r = thread_start(worker);
    return r;
}

void arena_pool_end(struct arena_worker *worker)
{
    (void) pthread_mutex_lock(&worker->lock);
    worker->pool_ends = true;
    (void) pthread_cond_broadcast(&worker->gate_open);
    (void) pthread_mutex_unlock(&worker->lock);
    for (size_t i = 0; i < worker->thread_count; i++)
        (void) pthread_join(worker->threads[i], NULL);
    free(worker->threads);
    worker->threads = NULL;
    worker->thread_count = 0;
}
