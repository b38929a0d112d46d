/* See child.h. */
#include "daemon/keeper/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "daemon/keeper/pass.h"

static int pass_store(struct pass *pass, const struct store *store)
{
    for (size_t i = 0; i < store->count; i++) {
        int r = pass_add(pass, store->fds[i].name, store->fds[i].fd);

        if (r < 0)
            return r;
    }
    return 0;
}

static int pass_prefixed(struct pass *pass, const char *prefix, const char *name, int fd)
{
    char text[STORE_NAME_BYTES + sizeof(HAND_OVER_SOCKET)];

    (void) snprintf(text, sizeof(text), "%s%s", prefix, name);
    return pass_add(pass, text, fd);
}

static int environment_set(const struct keeper *keeper)
{
    char text[4096];

    (void) snprintf(text, sizeof(text), "%s/notify", keeper->directory);
    if (setenv("NOTIFY_SOCKET", text, 1) < 0)
        return -errno;
    (void) snprintf(text, sizeof(text), "%zu", keeper->options->fds_max);
    if (setenv("FDSTORE", text, 1) < 0)
        return -errno;
    if (unsetenv("WATCHDOG_USEC") < 0 || unsetenv("WATCHDOG_PID") < 0 ||
        unsetenv(HAND_OVER_CHILD) < 0)
        return -errno;
    if (keeper->options->watchdog_ns == 0)
        return 0;
    (void) snprintf(text, sizeof(text), "%llu",
        (unsigned long long) (keeper->options->watchdog_ns / NSEC_PER_USEC));
    if (setenv("WATCHDOG_USEC", text, 1) < 0)
        return -errno;
    (void) snprintf(text, sizeof(text), "%d", (int) getpid());
    return setenv("WATCHDOG_PID", text, 1) < 0 ? -errno : 0;
}

static void child_run(const struct keeper *keeper, struct pass *pass)
{
    char **command = keeper->options->command;
    sigset_t none;
    int r;

    (void) sigemptyset(&none);
    (void) sigprocmask(SIG_SETMASK, &none, NULL);
    r = pass_apply(pass, getpid());
    if (r == 0)
        r = environment_set(keeper);
    if (r == 0) {
        (void) execvp(command[0], command);
        r = -errno;
    }
    log_error("cannot start %s: %s", command[0], strerror(-r));
    _exit(127);
}

pid_t child_start(struct keeper *keeper)
{
    _cleanup_(pass_clear) struct pass pass = {0};
    pid_t pid;
    int r = 0;

    for (size_t i = 0; i < keeper->options->listen_count && r == 0; i++)
        r = pass_add(&pass, keeper->options->listen[i].name, keeper->sockets[i].fd);
    if (r == 0)
        r = pass_store(&pass, &keeper->store);
    if (r < 0)
        return r;
    pid = fork();
    if (pid < 0)
        return -errno;
    if (pid == 0)
        child_run(keeper, &pass);
    return pid;
}

static int pass_all(struct pass *pass, const struct keeper *keeper)
{
    int r = pass_add(pass, HAND_OVER_NOTIFY, keeper->notify_fd);

    for (size_t i = 0; i < keeper->options->listen_count && r == 0; i++) {
        const char *name = keeper->options->listen[i].name;

        r = pass_prefixed(pass, HAND_OVER_SOCKET, name, keeper->sockets[i].fd);
        if (r == 0)
            r = pass_prefixed(pass, HAND_OVER_LOCK, name, keeper->sockets[i].lock);
    }
    return r < 0 ? r : pass_store(pass, &keeper->store);
}

/* Where the fds lie now is where they are to be found if the exec fails. */
static void adopt_places(struct keeper *keeper, const struct pass *pass)
{
    size_t at = 0;

    keeper->notify_fd = pass->fds[at++];
    for (size_t i = 0; i < keeper->options->listen_count; i++) {
        keeper->sockets[i].fd = pass->fds[at++];
        keeper->sockets[i].lock = pass->fds[at++];
    }
    for (size_t i = 0; i < keeper->store.count; i++)
        keeper->store.fds[i].fd = pass->fds[at++];
    for (size_t i = 0; i < pass->count; i++)
        (void) fcntl(pass->fds[i], F_SETFD, FD_CLOEXEC);
}

int child_hand_over(struct keeper *keeper)
{
    _cleanup_(pass_clear) struct pass pass = {0};
    char number[32];
    int r = pass_all(&pass, keeper);

    if (r < 0)
        return r;
    (void) snprintf(number, sizeof(number), "%d", (int) keeper->child);
    if (setenv(HAND_OVER_CHILD, number, 1) < 0)
        return -errno;
    r = pass_apply(&pass, getpid());
    if (r == 0) {
        (void) execvp(keeper->argv[0], keeper->argv);
        r = -errno;
    }
    adopt_places(keeper, &pass);
    return r;
}
