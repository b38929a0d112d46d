/* See keeper.h. */
#include "daemon/keeper/keeper.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

#include "base/log.h"
#include "daemon/keeper/child.h"

/* A broker that the watchdog aborted and that still lives is killed after this. */
#define ABORT_NS (10 * NSEC_PER_SEC)
/* Datagrams taken before signals and time get their turn. */
#define BURST 64

/* ------------------------------------------------------------------ what the broker says */

static void fd_store(
    struct keeper *keeper, const struct notify *notify, struct notify_datagram *datagram)
{
    const char *name = notify->fd_name != NULL ? notify->fd_name : "stored";

    for (size_t i = 0; i < datagram->fd_count; i++) {
        int r = store_consume_fd(&keeper->store, name, TAKE_FD(datagram->fds[i]));

        if (r < 0)
            log_warning("cannot hold the fd '%.64s' beside %zu others: %s", name,
                keeper->store.count, strerror(-r));
    }
}

static void datagram_take(struct keeper *keeper, struct notify_datagram *datagram)
{
    uint64_t watchdog_ns = keeper->options->watchdog_ns;
    struct notify notify;

    notify_parse(datagram->text, &notify);
    if (notify.fd_store)
        fd_store(keeper, &notify, datagram);
    if (notify.fd_store_remove && notify.fd_name != NULL)
        (void) store_remove(&keeper->store, notify.fd_name);
    if (notify.watchdog && watchdog_ns != 0 && keeper->phase == KEEPER_RUNNING)
        keeper->watchdog_ns = clock_now(keeper->clock) + watchdog_ns;
    manager_tell(&keeper->manager, notify.ready, notify.status, clock_now(keeper->clock));
}

static void notify_take(struct keeper *keeper)
{
    for (unsigned i = 0; i < BURST; i++) {
        struct notify_datagram datagram;
        int r = notify_receive(keeper->notify_fd, &datagram);

        if (r < 0)
            return;
        /* Anybody who can reach the socket may write there; the broker alone is heard. */
        if (keeper->child > 0 && datagram.pid == keeper->child)
            datagram_take(keeper, &datagram);
        /* A barrier is passed by closing its fd: everything before it was taken. */
        notify_datagram_clear(&datagram);
    }
}

/* ------------------------------------------------------------------ its life */

static void broker_start(struct keeper *keeper)
{
    uint64_t now_ns = clock_now(keeper->clock), watchdog_ns = keeper->options->watchdog_ns;
    pid_t pid = child_start(keeper);

    keeper->start_ns = CLOCK_NEVER;
    restart_started(&keeper->restart, now_ns);
    if (pid < 0) {
        log_error("cannot start the broker: %s", strerror(-pid));
        keeper->start_ns = restart_at(&keeper->restart, now_ns);
        return;
    }
    keeper->child = pid;
    keeper->phase = KEEPER_RUNNING;
    keeper->watchdog_ns = watchdog_ns == 0 ? CLOCK_NEVER : add_saturate(now_ns, watchdog_ns);
    log_info("the broker is process %d, with %zu fd%s", (int) pid, keeper->store.count,
        PLURAL_S(keeper->store.count));
}

static void broker_ended(struct keeper *keeper, int status)
{
    uint64_t now_ns = clock_now(keeper->clock);
    bool exited = WIFEXITED(status);
    int code = exited ? WEXITSTATUS(status) : 128 + WTERMSIG(status);

    /* What it said last may name fds that are to be held. */
    notify_take(keeper);
    keeper->child = 0;
    keeper->watchdog_ns = keeper->kill_ns = CLOCK_NEVER;
    if (keeper->phase == KEEPER_STOPPING || (keeper->phase == KEEPER_RUNNING && code == 0)) {
        keeper->phase = KEEPER_ENDED;
        keeper->status = code;
        return;
    }
    /* One that was asked to end has not failed. */
    keeper->start_ns =
        keeper->phase == KEEPER_RESTARTING ? now_ns : restart_at(&keeper->restart, now_ns);
    keeper->phase = KEEPER_WAITING;
    log_warning("the broker ended with %s %d; the next one starts in %llu ms, with %zu fd%s",
        exited ? "status" : "signal", exited ? code : code - 128,
        (unsigned long long) ((keeper->start_ns - now_ns) / NSEC_PER_MSEC), keeper->store.count,
        PLURAL_S(keeper->store.count));
}

/* As process 1 of a container the keeper inherits every orphan. */
static void reap(struct keeper *keeper)
{
    int status;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
        if (pid == keeper->child)
            broker_ended(keeper, status);
    }
}

/* One that is stopped (SIGSTOP) hears it, too: as systemd does it. */
static void child_signal(const struct keeper *keeper, int number)
{
    (void) kill(keeper->child, number);
    (void) kill(keeper->child, SIGCONT);
}

static void child_end(struct keeper *keeper, int number, enum keeper_phase phase)
{
    child_signal(keeper, number);
    if (keeper->phase == KEEPER_RUNNING)
        keeper->kill_ns = add_saturate(clock_now(keeper->clock), keeper->options->stop_timeout_ns);
    keeper->phase = phase;
    keeper->watchdog_ns = CLOCK_NEVER;
}

static void stop(struct keeper *keeper, int number)
{
    if (keeper->child != 0) {
        child_end(keeper, number, KEEPER_STOPPING);
        return;
    }
    keeper->phase = KEEPER_ENDED;
    keeper->status = 0;
}

/* A broker that is away is about to be started anyway; the end of all goes before. */
static void begin_anew(struct keeper *keeper)
{
    if (keeper->phase == KEEPER_RUNNING || keeper->phase == KEEPER_RESTARTING)
        child_end(keeper, SIGTERM, KEEPER_RESTARTING);
}

static void signals_take(struct keeper *keeper)
{
    struct signalfd_siginfo info;

    while (read(keeper->signal_fd, &info, sizeof(info)) == (ssize_t) sizeof(info)) {
        int number = (int) info.ssi_signo;

        if (number == SIGCHLD)
            continue; /* signals of one kind are merged: reap() asks for all */
        if (number == SIGTERM || number == SIGINT)
            stop(keeper, number);
        else if (number == SIGUSR1)
            begin_anew(keeper);
        else if (number == SIGUSR2)
            keeper->hand_over = true;
        else if (keeper->child > 0)
            (void) kill(keeper->child, number);
    }
    reap(keeper);
}

static void time_passed(struct keeper *keeper, uint64_t now_ns)
{
    if (keeper->phase == KEEPER_WAITING && now_ns >= keeper->start_ns)
        broker_start(keeper);
    if (now_ns >= keeper->watchdog_ns) {
        log_error("the broker has said nothing for %llu s: aborting it",
            (unsigned long long) (keeper->options->watchdog_ns / NSEC_PER_SEC));
        child_signal(keeper, SIGABRT);
        keeper->watchdog_ns = CLOCK_NEVER;
        keeper->kill_ns = now_ns + ABORT_NS;
    }
    manager_step(&keeper->manager, now_ns);
    if (now_ns >= keeper->kill_ns) {
        log_error("the broker does not end: killing it");
        (void) kill(keeper->child, SIGKILL);
        keeper->kill_ns = CLOCK_NEVER;
    }
}

static int poll_timeout(const struct keeper *keeper, uint64_t now_ns)
{
    uint64_t at_ns = MIN(keeper->kill_ns, keeper->watchdog_ns);
    uint64_t left_ns;

    at_ns = MIN(at_ns, keeper->manager.again_ns);
    if (keeper->phase == KEEPER_WAITING)
        at_ns = MIN(at_ns, keeper->start_ns);
    if (at_ns == CLOCK_NEVER)
        return -1;
    left_ns = sub_saturate(at_ns, now_ns);
    return (int) MIN((left_ns + NSEC_PER_MSEC - 1) / NSEC_PER_MSEC, UINT64_C(3600000));
}

/* ------------------------------------------------------------------ the loop */

static void hand_over(struct keeper *keeper)
{
    int r;

    keeper->hand_over = false;
    /* Their numbers are the stored fds' there. */
    close_fd(&keeper->signal_fd);
    manager_close(&keeper->manager);
    r = child_hand_over(keeper);
    log_error("cannot hand over to %s: %s; going on", keeper->argv[0], strerror(-r));
    manager_open(&keeper->manager);
    r = keeper_signals_open(keeper);
    if (r < 0) {
        log_error("no signals: %s", strerror(-r));
        keeper->phase = KEEPER_ENDED;
        keeper->status = 1;
    }
}

int keeper_run(struct keeper *keeper)
{
    while (keeper->phase != KEEPER_ENDED) {
        struct pollfd fds[] = {
            {.fd = keeper->signal_fd, .events = POLLIN},
            {.fd = keeper->notify_fd, .events = POLLIN},
        };

        time_passed(keeper, clock_now(keeper->clock));
        (void) poll(fds, ARRAY_SIZE(fds), poll_timeout(keeper, clock_now(keeper->clock)));
        notify_take(keeper);
        signals_take(keeper);
        /* A newer keeper isn't told that its broker is to be the last, or not. */
        if (keeper->hand_over &&
            (keeper->phase == KEEPER_RUNNING || keeper->phase == KEEPER_WAITING))
            hand_over(keeper);
    }
    return keeper->status;
}
