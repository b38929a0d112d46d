/*
 * The main thread lets requests arrive and looks after those that have ended; as many threads as
 * may run at once run them, one reads again, one of the library's own dispatches.
 *
 * To end early, `stopping` is set and everybody woken: naps end at once, calls of the library
 * within two seconds, and each request gives its pages back itself.
 */
#include "client/replay/arena_worker.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>

#include "base/clock.h"
#include "client/replay/arena_admit.h"
#include "client/replay/arena_obey.h"
#include "client/replay/arena_pool.h"

/* Pages of all requests of a worker at once, as address space: a page costs 64 bytes of table. */
#define PAGES_MAX (UINT64_C(1) << 18)

/* What the library waits by itself before it gives an empty chunk back, in the trace's time; in
 * real time at least what makes a look after it worthwhile. */
#define IDLE_NS NSEC_PER_SEC
#define IDLE_MIN_NS (20 * NSEC_PER_MSEC)

void arena_stop(struct arena_worker *worker)
{
    (void) pthread_mutex_lock(&worker->lock);
    atomic_store(&worker->stopping, true);
    (void) pthread_cond_broadcast(&worker->ending);
    (void) pthread_cond_broadcast(&worker->gate_open);
    (void) pthread_cond_signal(&worker->cache_changed);
    arena_turns_wake_all(worker);
    (void) pthread_mutex_unlock(&worker->lock);
    (void) eventfd_write(worker->wake_fd, 1);
}

void arena_fail(struct arena_worker *worker, const char *format, ...)
{
    va_list args;

    (void) pthread_mutex_lock(&worker->lock);
    if (!worker->failed && !atomic_load(&worker->stopping)) {
        va_start(args, format);
        (void) vsnprintf(worker->stats->text, sizeof(worker->stats->text), format, args);
        va_end(args);
    }
    worker->failed = true;
    (void) pthread_mutex_unlock(&worker->lock);
    arena_stop(worker);
}

int arena_condition_init(pthread_cond_t *condition)
{
    pthread_condattr_t attr;
    int r = pthread_condattr_init(&attr);

    if (r != 0)
        return -r;
    r = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    if (r == 0)
        r = pthread_cond_init(condition, &attr);
    (void) pthread_condattr_destroy(&attr);
    return -r;
}

bool arena_nap(struct arena_worker *worker, uint64_t until_ns)
{
    const struct timespec until = {
        .tv_sec = (time_t) (until_ns / NSEC_PER_SEC), .tv_nsec = (long) (until_ns % NSEC_PER_SEC)};
    int r = 0;

    (void) pthread_mutex_lock(&worker->lock);
    while (r == 0 && !atomic_load(&worker->stopping))
        r = pthread_cond_timedwait(&worker->ending, &worker->lock, &until);
    (void) pthread_mutex_unlock(&worker->lock);
    return !atomic_load(&worker->stopping);
}

uint64_t arena_compress(const struct arena_worker *worker, uint64_t trace_ns)
{
    return (uint64_t) ((double) trace_ns / worker->params->speed);
}

/* ---- making it ---- */

static int connect_broker(struct arena_worker *worker)
{
    struct gmb_options options = {
        .size = sizeof(options), .socket = worker->params->socket, .program = "gmb-replay"};
    struct gmb_device_info info = {.size = sizeof(info)};
    char text[WEIGHTS_TEXT_BYTES];
    struct gpu_error error;
    enum gpu_driver driver;
    int r = gmb_connect(&options, &worker->session);

    if (r == 0)
        r = gmb_device_get(worker->session, 0, &info);
    if (r < 0) {
        arena_fail(worker, "cannot connect: %s", gmb_error_text());
        return -ECONNREFUSED;
    }
    worker->tenant = gmb_tenant(worker->session);
    r = gpu_driver_parse(gmb_driver(worker->session), &driver);
    if (r == 0)
        r = device_open(driver, info.uuid, &worker->device, &error);
    if (r < 0) {
        arena_fail(worker, "cannot use the device: %s", error.text);
        return r;
    }
    r = weights_take(worker->session, worker->device, worker->tenant, worker->params->weights_bytes,
        &worker->weights, text);
    if (r < 0)
        arena_fail(worker, "%s", text);
    return r;
}

/* Address space for all that the worker's requests ever have, so that none waits for address space.
 */
static uint64_t arena_bytes(const struct arena_worker *worker)
{
    const struct worker_params *params = worker->params;
    uint64_t pages = ARENA_PAGES_PER_CHUNK;

    for (uint64_t i = params->index; i < params->trace->count; i += params->stats->worker_count)
        pages = add_saturate(
            pages, model_request_chunks(&worker->pages, &params->trace->requests[i]) + 1);
    return MIN(pages, PAGES_MAX) * worker->pages.chunk_bytes;
}

static int make_arena(struct arena_worker *worker)
{
    const uint64_t chunk_bytes = worker->params->model->chunk_bytes;
    struct gmb_arena_params params = {
        .size = sizeof(params),
        .page_bytes = chunk_bytes / ARENA_PAGES_PER_CHUNK,
        .chunk_bytes = chunk_bytes,
        .idle_ns = MAX(arena_compress(worker, IDLE_NS), IDLE_MIN_NS),
        .label = "gmb-replay",
    };

    worker->pages = *worker->params->model;
    worker->pages.chunk_bytes = params.page_bytes;
    params.max_bytes = arena_bytes(worker);
    if (gmb_arena_new(worker->session, &params, &worker->arena) == 0 &&
        gmb_thread_start(worker->session) == 0)
        return 0;
    arena_fail(worker, "cannot make an arena: %s", gmb_error_text());
    return -EIO;
}

static int init(struct arena_worker *worker, const struct worker_params *params)
{
    int r;

    worker->params = params;
    worker->stats = &params->stats->workers[params->index];
    ladder_init(&worker->ladder, params->batch);
    list_init(&worker->ended);
    list_init(&worker->gate);
    list_init(&worker->swapped);
    list_init(&worker->waiting);
    list_init(&worker->cached);
    worker->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (worker->wake_fd < 0)
        return -errno;
    r = arena_condition_init(&worker->ending);
    if (r == 0)
        r = arena_condition_init(&worker->gate_open);
    if (r == 0)
        r = arena_condition_init(&worker->cache_changed);
    if (r == 0)
        r = -pthread_mutex_init(&worker->lock, NULL);
    if (r == 0)
        r = -pthread_mutex_init(&worker->device_lock, NULL);
    return r;
}

/* ---- the run ---- */

/* Sequences that go as soon as they have ended, for the ladder's sake. */
static void drop_ended(struct arena_worker *worker, struct list *dropped)
{
    list_for_each_safe(request, dropped, struct arena_request, link)
    {
        arena_obey_count(worker, GMB_DEGRADE_DROP_PREFIX_CACHE, 1,
            request->pages.count * worker->pages.chunk_bytes);
        pages_drop(&request->pages);
        list_remove(&request->link);
        (void) arena_request_free(request);
    }
}

/* Takes requests that have ended; those that left pages are cached from then on. */
static void reap(struct arena_worker *worker)
{
    struct list dropped;

    list_init(&dropped);
    (void) pthread_mutex_lock(&worker->lock);
    list_for_each_safe(request, &worker->ended, struct arena_request, link)
    {
        list_remove(&request->link);
        if (request->pages.count == 0)
            (void) arena_request_free(request);
        else if (ladder_drop_next(&worker->ladder))
            list_append(&dropped, &request->link);
        else
            list_append(&worker->cached, &request->link);
    }
    (void) pthread_cond_signal(&worker->cache_changed);
    (void) pthread_mutex_unlock(&worker->lock);
    drop_ended(worker, &dropped);
}

/* Waits for a request's end, SIGTERM, or the time, or until somebody is to look at the gate; then
 * looks after all of them. */
static void wait_event(struct arena_worker *worker, int signal_fd, int start_fd, uint64_t until_ns)
{
    uint64_t now_ns = clock_now(&clock_monotonic), left_ns = sub_saturate(until_ns, now_ns);
    struct timespec left;
    struct pollfd fds[] = {{.fd = signal_fd, .events = POLLIN},
        {.fd = worker->wake_fd, .events = POLLIN}, {.fd = start_fd, .events = POLLIN}};
    eventfd_t ignored;

    left_ns = MIN(left_ns, ARENA_POOL_LOOK_NS);
    left.tv_sec = (time_t) (left_ns / NSEC_PER_SEC);
    left.tv_nsec = (long) (left_ns % NSEC_PER_SEC);
    if (ppoll(fds, ARRAY_SIZE(fds), &left, NULL) > 0) {
        if (fds[0].revents != 0)
            arena_stop(worker);
        (void) eventfd_read(worker->wake_fd, &ignored);
    }
    arena_pool_look(worker);
    reap(worker);
}

static void arrive(struct arena_worker *worker, int signal_fd)
{
    const struct worker_params *params = worker->params;
    const uint64_t start_ns = atomic_load(&params->stats->start_ns);
    uint64_t index = params->index;

    while (!atomic_load(&worker->stopping) && index < params->trace->count) {
        uint64_t due_ns =
            start_ns + arena_compress(worker, params->trace->requests[index].arrival_ns);
        uint64_t now_ns = clock_now(&clock_monotonic);
        int r;

        if (now_ns < due_ns) {
            wait_event(worker, signal_fd, -1, due_ns);
            continue;
        }
        atomic_store(
            &worker->stats->late_ns, MAX(atomic_load(&worker->stats->late_ns), now_ns - due_ns));
        r = arena_request_begin(worker, index);
        if (r < 0)
            arena_fail(worker, "cannot begin a request: error %d", -r);
        index += params->stats->worker_count;
    }
    (void) pthread_mutex_lock(&worker->lock);
    worker->last_arrived = true;
    (void) pthread_mutex_unlock(&worker->lock);
    while (arena_pool_busy(worker))
        wait_event(worker, signal_fd, -1, UINT64_MAX);
}

static void play(struct arena_worker *worker, int signal_fd)
{
    const char byte = 0;
    pthread_t cache;

    atomic_store(&worker->stats->state, WORKER_STATE_READY);
    if (write(worker->params->ready_fd, &byte, 1) != 1)
        arena_fail(worker, "the coordinator is gone");
    while (!atomic_load(&worker->stopping) && atomic_load(&worker->params->stats->start_ns) == 0)
        wait_event(worker, signal_fd, worker->params->start_fd, UINT64_MAX);
    if (arena_pool_start(worker) < 0 ||
        pthread_create(&cache, NULL, arena_cache_main, worker) != 0) {
        arena_fail(worker, "cannot start threads");
        arena_pool_end(worker);
        return;
    }
    arrive(worker, signal_fd);
    reap(worker);
    arena_pool_end(worker);
    (void) pthread_join(cache, NULL);
}

static void note_stats(struct arena_worker *worker)
{
    struct gmb_arena_stats stats = {.size = sizeof(stats)};

    if (gmb_arena_get_stats(worker->arena, &stats) != 0)
        return;
    atomic_store(&worker->stats->evictions, stats.evictions);
    atomic_store(&worker->stats->restores, stats.restores);
}

static void weights_end(struct arena_worker *worker)
{
    char text[WEIGHTS_TEXT_BYTES];
    uint64_t differing;

    if (weights_give(worker->session, &worker->weights, &differing, text) < 0)
        arena_fail(worker, "%s", text);
    atomic_fetch_add(&worker->stats->corrupt_bytes, differing);
}

static void done(struct arena_worker *worker)
{
    if (worker->arena != NULL) {
        note_stats(worker);
        if (gmb_arena_free(worker->arena) < 0)
            arena_fail(worker, "cannot give the arena back: %s", gmb_error_text());
    }
    if (worker->weights.lease != NULL)
        weights_end(worker);
    gmb_disconnect(worker->session);
    (void) device_close(worker->device);
    close_fd(&worker->wake_fd);
}

int arena_worker_run(const struct worker_params *params)
{
    struct arena_worker worker = {0};
    _cleanup_close_ int signal_fd = -1;
    sigset_t terminate;

    (void) sigemptyset(&terminate);
    (void) sigaddset(&terminate, SIGTERM);
    (void) pthread_sigmask(SIG_BLOCK, &terminate, NULL);
    signal_fd = signalfd(-1, &terminate, SFD_CLOEXEC | SFD_NONBLOCK);
    if (init(&worker, params) < 0 || signal_fd < 0) {
        (void) snprintf(worker.stats->text, sizeof(worker.stats->text), "no memory or fd");
        atomic_store(&worker.stats->state, WORKER_STATE_FAILED);
        return EXIT_FAILURE;
    }
    if (connect_broker(&worker) == 0 && make_arena(&worker) == 0) {
        arena_obey_begin(&worker);
        play(&worker, signal_fd);
        arena_obey_end(&worker);
    }
    done(&worker);
    atomic_store(&worker.stats->state, worker.failed     ? WORKER_STATE_FAILED
                                       : worker.stopping ? WORKER_STATE_STOPPED
                                                         : WORKER_STATE_FINISHED);
    return worker.failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
