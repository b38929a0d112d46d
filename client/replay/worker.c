/*
 * One loop: the library's fd, SIGTERM, a timer for the next arrival, and one for each request.
 *
 * To end early, the worker begins no further request, withdraws those that wait and gives back
 * those that hold memory, and leaves when the library has answered for each, or after
 * STOP_SECONDS, when the broker is not answering: what is held then goes with the process.
 */
#include "client/replay/worker.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "client/replay/request.h"

#define STOP_SECONDS 3

struct loop {
    struct worker worker;
    struct gmb_device_info info;
    struct event *library, *terminate, *start, *arrival, *deadline, *stop;
};

static struct loop *loop_of(struct worker *worker)
{
    return container_of(worker, struct loop, worker);
}

/* Stopping is an event of its own, so that it never runs within a request's own step. */
static void begin_stop(struct worker *worker)
{
    if (worker->stopping)
        return;
    worker->stopping = true;
    if (loop_of(worker)->stop)
        event_active(loop_of(worker)->stop, 0, 0);
}

void worker_fail(struct worker *worker, const char *format, ...)
{
    va_list args;

    if (!worker->failed) {
        va_start(args, format);
        (void) vsnprintf(worker->stats->text, sizeof(worker->stats->text), format, args);
        va_end(args);
    }
    worker->failed = true;
    begin_stop(worker);
}

void worker_idle(struct worker *worker)
{
    if (worker->stopping || worker->next_index >= worker->params->trace->count)
        (void) event_base_loopbreak(worker->base);
}

static uint64_t arrival_ns(const struct worker *worker, uint64_t index)
{
    const struct worker_params *params = worker->params;

    return atomic_load(&params->stats->start_ns) +
           (uint64_t) ((double) params->trace->requests[index].arrival_ns / params->speed);
}

static void on_arrival(evutil_socket_t fd, short what, void *user)
{
    struct worker *worker = user;
    const struct worker_params *params = worker->params;

    (void) fd;
    (void) what;
    requests_prune(worker);
    while (!worker->stopping && worker->next_index < params->trace->count) {
        uint64_t index = worker->next_index, due = arrival_ns(worker, index);
        uint64_t now = clock_now(&clock_monotonic), left_us = sub_saturate(due, now) / 1000;
        struct timeval left = {
            .tv_sec = (time_t) (left_us / 1000000), .tv_usec = (suseconds_t) (left_us % 1000000)};

        if (due > now) {
            if (event_add(loop_of(worker)->arrival, &left) < 0)
                worker_fail(worker, "no memory for a timer");
            return;
        }
        if (now - due > atomic_load(&worker->stats->late_ns))
            atomic_store(&worker->stats->late_ns, now - due);
        worker->next_index += params->stats->worker_count;
        if (request_begin(worker, index) < 0)
            worker_fail(worker, "no memory for a request");
    }
    if (worker->unfinished == 0)
        worker_idle(worker);
}

static void on_library(evutil_socket_t fd, short what, void *user)
{
    struct worker *worker = user;

    (void) fd;
    (void) what;
    if (gmb_dispatch(worker->session, 0) >= 0)
        return;
    worker_fail(worker, "the broker is gone: %s", gmb_error_text());
    (void) event_del(loop_of(worker)->library);
}

static void on_terminate(evutil_socket_t number, short what, void *user)
{
    (void) number;
    (void) what;
    begin_stop(user);
}

static void on_deadline(evutil_socket_t fd, short what, void *user)
{
    struct worker *worker = user;

    (void) fd;
    (void) what;
    (void) event_base_loopbreak(worker->base);
}

static void on_stop(evutil_socket_t fd, short what, void *user)
{
    struct worker *worker = user;
    const struct timeval patience = {.tv_sec = STOP_SECONDS};

    (void) fd;
    (void) what;
    (void) event_del(loop_of(worker)->arrival);
    (void) event_add(loop_of(worker)->deadline, &patience);
    requests_stop(worker);
    if (worker->unfinished == 0)
        worker_idle(worker);
}

static int connect_broker(struct loop *loop)
{
    struct worker *worker = &loop->worker;
    struct gmb_options options = {
        .size = sizeof(options), .socket = worker->params->socket, .program = "gmb-replay"};
    char text[WEIGHTS_TEXT_BYTES];
    struct gpu_error error;
    enum gpu_driver driver;
    int r;

    r = gmb_connect(&options, &worker->session);
    if (r == 0) {
        loop->info.size = sizeof(loop->info);
        r = gmb_device_get(worker->session, 0, &loop->info);
    }
    if (r < 0) {
        worker_fail(worker, "cannot connect: %s", gmb_error_text());
        return -ECONNREFUSED;
    }
    worker->tenant = gmb_tenant(worker->session);
    worker->device_uuid = loop->info.uuid;
    r = gpu_driver_parse(gmb_driver(worker->session), &driver);
    if (r == 0)
        r = device_open(driver, loop->info.uuid, &worker->device, &error);
    if (r < 0) {
        worker_fail(worker, "cannot use the device: %s", error.text);
        return r;
    }
    r = weights_take(worker->session, worker->device, worker->tenant, worker->params->weights_bytes,
        &worker->weights, text);
    if (r < 0)
        worker_fail(worker, "%s", text);
    return r;
}

static void weights_end(struct worker *worker)
{
    char text[WEIGHTS_TEXT_BYTES];
    uint64_t differing;

    if (weights_give(worker->session, &worker->weights, &differing, text) < 0)
        worker_fail(worker, "%s", text);
    atomic_fetch_add(&worker->stats->corrupt_bytes, differing);
}

/* The end of the pipe: all are ready, or the coordinator is gone. */
static void on_start(evutil_socket_t fd, short what, void *user)
{
    struct worker *worker = user;

    (void) fd;
    (void) what;
    if (atomic_load(&worker->params->stats->start_ns) == 0)
        begin_stop(worker);
    else
        on_arrival(-1, 0, worker);
}

static void tell_ready(struct worker *worker)
{
    const char byte = 0;

    atomic_store(&worker->stats->state, WORKER_STATE_READY);
    if (write(worker->params->ready_fd, &byte, 1) != 1)
        worker_fail(worker, "the coordinator is gone");
}

static int make_events(struct loop *loop)
{
    struct worker *worker = &loop->worker;
    const int fd = gmb_fd(worker->session);

    loop->library = event_new(worker->base, fd, EV_READ | EV_PERSIST, on_library, worker);
    loop->terminate = evsignal_new(worker->base, SIGTERM, on_terminate, worker);
    loop->start = event_new(worker->base, worker->params->start_fd, EV_READ, on_start, worker);
    loop->arrival = evtimer_new(worker->base, on_arrival, worker);
    loop->deadline = evtimer_new(worker->base, on_deadline, worker);
    loop->stop = event_new(worker->base, -1, 0, on_stop, worker);
    if (!loop->library || !loop->terminate || !loop->start || !loop->arrival || !loop->deadline ||
        !loop->stop || event_add(loop->library, NULL) < 0 || event_add(loop->terminate, NULL) < 0 ||
        event_add(loop->start, NULL) < 0) {
        worker_fail(worker, "no memory for an event loop");
        return -ENOMEM;
    }
    return 0;
}

static void loop_close(struct loop *loop)
{
    struct event **const events[] = {&loop->library, &loop->terminate, &loop->start, &loop->arrival,
        &loop->deadline, &loop->stop};

    if (loop->worker.weights.lease)
        weights_end(&loop->worker);
    /* First what may still call back, then what is called. */
    gmb_disconnect(loop->worker.session);
    requests_free(&loop->worker);
    (void) device_close(loop->worker.device);
    for (size_t i = 0; i < ARRAY_SIZE(events); i++)
        if (*events[i])
            event_free(*events[i]);
    if (loop->worker.base)
        event_base_free(loop->worker.base);
}

static enum worker_state outcome(const struct worker *worker)
{
    if (worker->failed)
        return WORKER_STATE_FAILED;
    return worker->stopping ? WORKER_STATE_STOPPED : WORKER_STATE_FINISHED;
}

int worker_run(const struct worker_params *params)
{
    struct loop loop = {.worker = {.params = params, .next_index = params->index}};
    struct worker *worker = &loop.worker;
    int r;

    list_init(&worker->live);
    worker->stats = &params->stats->workers[params->index];
    worker->base = event_base_new();
    if (!worker->base) {
        worker_fail(worker, "no memory for an event loop");
        r = -ENOMEM;
    } else {
        r = connect_broker(&loop);
        if (r == 0)
            r = make_events(&loop);
    }
    if (r == 0) {
        tell_ready(worker);
        (void) event_base_dispatch(worker->base);
    }
    loop_close(&loop);
    atomic_store(&worker->stats->state, outcome(worker));
    return worker->failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
