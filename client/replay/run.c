/*
 * Workers are forked before this process has an event loop or has touched the driver, and begin
 * together: each tells through one pipe that it is ready, and the end of the other starts them.
 *
 * A run ends when the last worker does. It is cut short by a signal or by a worker that ends before
 * its work is done: the others are told to give back what they hold, and are killed if they don't.
 */
#include "client/replay/run.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#include "base/clock.h"
#include "client/replay/arena_worker.h"
#include "client/replay/control.h"
#include "client/replay/live.h"
#include "client/replay/program.h"
#include "client/replay/worker.h"

/* A worker that was told to stop gives up on the broker after 3 s. */
#define KILL_SECONDS 6
/* Until memory that was given back is seen as free: above the broker's own grace for orphans. */
#define SETTLE_SECONDS 10
/* Between the last worker's readiness and the first arrival, so that all have woken up. */
#define LEAD_NS (20 * NSEC_PER_MSEC)
/* Of the trace: a user reads the answer and says something to it. */
#define THINK_SECONDS 10.0

struct coordinator {
    struct run *run;
    struct event_base *base;
    pid_t *pids; /* of the workers; 0 once reaped */
    uint32_t alive, ready;
    int ready_fd; /* read end */
    int start_fd; /* write end */
    bool stopping;
    struct event *events[6];
    size_t event_count;
    struct event *kill_timer;
};

const struct priorities *run_request_priorities(const struct run *run)
{
    static const struct priorities alike = {.count = 1, .values = {100}};

    return run->options->request_priorities.count > 0 ? &run->options->request_priorities : &alike;
}

/* ---- workers ---- */

static _Noreturn void become_worker(
    const struct run *run, uint32_t index, int ready_fd, int start_fd, pid_t parent)
{
    const struct worker_params params = {
        .trace = run->trace,
        .model = &run->sizing->model,
        .stats = run->stats,
        .index = index,
        .speed = run->sizing->speed,
        .wait_ns = run->options->wait_ns,
        .memory_min_bytes = run->options->socket || run->options->config
                                ? 0
                                : run->sizing->memory_min_bytes - run->sizing->weights_bytes,
        .weights_bytes = run->sizing->weights_bytes,
        .think_ns = (uint64_t) ((run->options->think > 0 ? run->options->think : THINK_SECONDS) /
                                run->sizing->speed * (double) NSEC_PER_SEC),
        .batch = run->options->batch > 0 ? run->options->batch : ARENA_BATCH,
        .request_priorities = run_request_priorities(run)->values,
        .request_priority_count = run_request_priorities(run)->count,
        .socket = run->client_socket,
        .ready_fd = ready_fd,
        .start_fd = start_fd,
    };
    struct stats_worker *stats = &run->stats->workers[index];
    int r = tenant_enter(&run->tenants->items[index % run->tenants->count]);

    if (r < 0) {
        (void) snprintf(
            stats->text, sizeof(stats->text), "cannot take on the group: %s", strerror(-r));
        atomic_store(&stats->state, WORKER_STATE_FAILED);
        _exit(EXIT_FAILURE);
    }
    process_tie_to_parent(parent);
    (void) signal(SIGINT, SIG_IGN);
    (void) signal(SIGPIPE, SIG_IGN);
    _exit(run->options->arena ? arena_worker_run(&params) : worker_run(&params));
}

static int spawn(struct coordinator *coordinator)
{
    const pid_t self = getpid();
    int ready[2], start[2];

    if (pipe2(ready, O_CLOEXEC) < 0)
        return -errno;
    coordinator->ready_fd = ready[0];
    if (pipe2(start, O_CLOEXEC) < 0) {
        (void) close(ready[1]);
        return -errno;
    }
    coordinator->start_fd = start[1];
    (void) fflush(NULL);
    for (uint32_t i = 0; i < coordinator->run->workers; i++) {
        pid_t pid = fork();

        if (pid == 0) {
            (void) close(ready[0]);
            (void) close(start[1]);
            become_worker(coordinator->run, i, ready[1], start[0], self);
        }
        if (pid < 0) {
            int r = -errno;

            (void) close(ready[1]);
            (void) close(start[0]);
            return r;
        }
        coordinator->pids[i] = pid;
        coordinator->alive++;
    }
    (void) close(ready[1]);
    (void) close(start[0]);
    return 0;
}

static void signal_all(const struct coordinator *coordinator, int number)
{
    for (uint32_t i = 0; i < coordinator->run->workers; i++)
        if (coordinator->pids[i] > 0)
            (void) kill(coordinator->pids[i], number);
}

static void stop_all(struct coordinator *coordinator)
{
    const struct timeval patience = {.tv_sec = KILL_SECONDS};

    if (coordinator->stopping)
        return;
    coordinator->stopping = true;
    signal_all(coordinator, SIGTERM);
    (void) event_add(coordinator->kill_timer, &patience);
}

/* Notes every worker that has ended, and cuts the run short when one ended too early. */
static void reap(struct coordinator *coordinator)
{
    struct run *run = coordinator->run;

    for (uint32_t i = 0; i < run->workers; i++) {
        enum worker_state state;
        int status;

        if (coordinator->pids[i] == 0 || waitpid(coordinator->pids[i], &status, WNOHANG) == 0)
            continue;
        coordinator->pids[i] = 0;
        coordinator->alive--;
        state = (enum worker_state) atomic_load(&run->stats->workers[i].state);
        if (state == WORKER_STATE_FINISHED || state == WORKER_STATE_STOPPED)
            continue;
        run->crashed++;
        run->killed += WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && !coordinator->stopping;
        if (state != WORKER_STATE_FAILED && WIFSIGNALED(status))
            (void) snprintf(run->stats->workers[i].text, STATS_TEXT_BYTES, "killed by signal %d",
                WTERMSIG(status));
        stop_all(coordinator);
    }
    if (coordinator->alive == 0)
        (void) event_base_loopbreak(coordinator->base);
}

/* ---- events ---- */

static void on_child(evutil_socket_t number, short what, void *user)
{
    (void) number;
    (void) what;
    reap(user);
}

static void on_interrupt(evutil_socket_t number, short what, void *user)
{
    struct coordinator *coordinator = user;

    (void) number;
    (void) what;
    coordinator->run->interrupted = true;
    stop_all(coordinator);
}

static void on_kill(evutil_socket_t fd, short what, void *user)
{
    (void) fd;
    (void) what;
    signal_all(user, SIGKILL);
}

static void on_live(evutil_socket_t fd, short what, void *user)
{
    struct coordinator *coordinator = user;

    (void) fd;
    (void) what;
    live_show(coordinator->run);
}

static void on_ready(evutil_socket_t fd, short what, void *user)
{
    struct coordinator *coordinator = user;
    char bytes[64];
    ssize_t size = read(fd, bytes, sizeof(bytes));

    (void) what;
    if (size > 0)
        coordinator->ready += (uint32_t) size;
    if (size <= 0 || coordinator->ready == coordinator->run->workers)
        (void) event_del(coordinator->events[0]);
    if (coordinator->ready == coordinator->run->workers && !coordinator->stopping) {
        atomic_store(&coordinator->run->stats->start_ns, clock_now(&clock_monotonic) + LEAD_NS);
        (void) close(coordinator->start_fd);
        coordinator->start_fd = -1;
    }
}

static int watch(
    struct coordinator *coordinator, struct event *event, const struct timeval *interval)
{
    if (!event)
        return -ENOMEM;
    coordinator->events[coordinator->event_count++] = event;
    return event_add(event, interval) < 0 ? -ENOMEM : 0;
}

static int watch_all(struct coordinator *coordinator)
{
    const struct timeval interval = {.tv_sec = LIVE_INTERVAL_MS / 1000};
    struct event_base *base = coordinator->base = event_base_new();
    int r;

    if (!base)
        return -ENOMEM;
    coordinator->kill_timer = evtimer_new(base, on_kill, coordinator);
    if (!coordinator->kill_timer)
        return -ENOMEM;
    r = watch(coordinator,
        event_new(base, coordinator->ready_fd, EV_READ | EV_PERSIST, on_ready, coordinator), NULL);
    if (r == 0)
        r = watch(coordinator, evsignal_new(base, SIGCHLD, on_child, coordinator), NULL);
    if (r == 0)
        r = watch(coordinator, evsignal_new(base, SIGINT, on_interrupt, coordinator), NULL);
    if (r == 0)
        r = watch(coordinator, evsignal_new(base, SIGTERM, on_interrupt, coordinator), NULL);
    if (r == 0)
        r = watch(coordinator, event_new(base, -1, EV_PERSIST, on_live, coordinator), &interval);
    return r;
}

/* ---- the run ---- */

static void coordinator_close(struct coordinator *coordinator)
{
    signal_all(coordinator, SIGKILL);
    for (uint32_t i = 0; coordinator->pids && i < coordinator->run->workers; i++)
        while (coordinator->pids[i] > 0 && waitpid(coordinator->pids[i], NULL, 0) < 0 &&
               errno == EINTR)
            continue;
    for (size_t i = 0; i < coordinator->event_count; i++)
        event_free(coordinator->events[i]);
    if (coordinator->kill_timer)
        event_free(coordinator->kill_timer);
    if (coordinator->base)
        event_base_free(coordinator->base);
    close_fd(&coordinator->ready_fd);
    close_fd(&coordinator->start_fd);
    free(coordinator->pids);
}

/* What doesn't come back once every worker is gone. On a broker that others use too, what they hold
 * is theirs: only what is orphaned beyond `before` counts. */
static void look_for_orphans(struct run *run, const struct control_memory *before)
{
    const struct timespec pause = {.tv_nsec = 20 * (long) NSEC_PER_MSEC};
    uint64_t deadline_ns = clock_now(&clock_monotonic) + SETTLE_SECONDS * NSEC_PER_SEC;
    struct control_memory now;

    while (control_memory(run->control_socket, 1000, &now) == 0) {
        uint64_t kept = sub_saturate(now.orphaned, before->orphaned) +
                        sub_saturate(now.releasing, before->releasing);

        if (!run->options->socket)
            kept += now.leased;
        run->orphaned_known = true;
        run->orphaned_bytes = kept;
        if (kept == 0 || clock_now(&clock_monotonic) >= deadline_ns)
            return;
        (void) nanosleep(&pause, NULL);
    }
    run->orphaned_known = false;
}

int run_trace(struct run *run)
{
    _cleanup_(coordinator_close) struct coordinator coordinator = {
        .run = run, .ready_fd = -1, .start_fd = -1};
    struct control_memory before = {0};
    uint64_t start_ns;
    int r;

    r = control_memory(run->control_socket, 1000, &before);
    if (r < 0 && !run->options->socket)
        return r;
    coordinator.pids = calloc(run->workers, sizeof(*coordinator.pids));
    if (!coordinator.pids)
        return -ENOMEM;
    r = spawn(&coordinator);
    if (r == 0)
        r = watch_all(&coordinator);
    if (r < 0)
        return r;
    reap(&coordinator); /* who ended before SIGCHLD was watched */
    if (coordinator.alive > 0)
        (void) event_base_dispatch(coordinator.base);
    live_end();
    start_ns = atomic_load(&run->stats->start_ns);
    run->seconds_ns = start_ns > 0 ? sub_saturate(clock_now(&clock_monotonic), start_ns) : 0;
    look_for_orphans(run, &before);
    return 0;
}
