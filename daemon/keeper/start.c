/* How a keeper begins: with nothing, or with what an earlier one handed over. */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>

#include "base/log.h"
#include "daemon/keeper/child.h"
#include "daemon/keeper/sweep.h"

int keeper_signals_open(struct keeper *keeper)
{
    sigset_t set;

    (void) sigemptyset(&set);
    (void) sigaddset(&set, SIGCHLD);
    (void) sigaddset(&set, SIGTERM);
    (void) sigaddset(&set, SIGINT);
    (void) sigaddset(&set, SIGHUP);
    (void) sigaddset(&set, SIGUSR1);
    (void) sigaddset(&set, SIGUSR2);
    if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
        return -errno;
    keeper->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return keeper->signal_fd < 0 ? -errno : 0;
}

/* Twice as many as are held: while they move to their places both numbers are open. */
static void fd_limit_raise(const struct keeper_options *options)
{
    rlim_t wanted = 2 * (rlim_t) options->fds_max + 64;
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return;
    if (limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        (void) setrlimit(RLIMIT_NOFILE, &limit);
    }
    if (limit.rlim_cur < wanted)
        log_warning("%llu fds can be open here, which is enough to hold %llu and not %zu: raise "
                    "RLIMIT_NOFILE",
            (unsigned long long) limit.rlim_cur,
            (unsigned long long) sub_saturate(limit.rlim_cur, 64) / 2, options->fds_max);
}

/* A folder that is the keeper's alone: nobody else can fill the socket's queue. */
static int notify_open(struct keeper *keeper)
{
    const char *run = getenv("XDG_RUNTIME_DIR");
    const char *base = geteuid() == 0 && access("/run", W_OK) == 0 ? "/run"
                       : run != NULL && access(run, W_OK) == 0     ? run
                                                                   : "/tmp";
    char path[sizeof(((struct sockaddr_un *) NULL)->sun_path)];
    _cleanup_free_ char *directory = NULL;
    int r;

    sweep_folders(base);
    if (asprintf(&directory, "%s/" SWEEP_PREFIX "%d.XXXXXX", base, (int) getpid()) < 0) {
        directory = NULL;
        return -ENOMEM;
    }
    if (mkdtemp(directory) == NULL)
        return -errno;
    keeper->directory = TAKE_PTR(directory);
    r = snprintf(path, sizeof(path), "%s/notify", keeper->directory);
    if (r < 0 || (size_t) r >= sizeof(path))
        return -ENAMETOOLONG;
    keeper->notify_fd = notify_socket(path);
    return MIN(keeper->notify_fd, 0);
}

static int sockets_bind(struct keeper *keeper)
{
    for (size_t i = 0; i < keeper->options->listen_count; i++) {
        const struct keeper_listen *listen = &keeper->options->listen[i];
        char error[LISTEN_ERROR_BYTES];
        int r = listen_bind(listen->path, listen->mode, listen->gid, &keeper->sockets[i], error);

        if (r < 0) {
            log_error("%s", error);
            return r;
        }
    }
    return 0;
}

/* ------------------------------------------------------------------ after a handover */

/* The listener that was passed on under this name, or else a new one by sockets_bind(). */
static struct listen_socket *listener_of(struct keeper *keeper, const char *name)
{
    for (size_t i = 0; i < keeper->options->listen_count; i++) {
        if (strcmp(keeper->options->listen[i].name, name) == 0)
            return &keeper->sockets[i];
    }
    return NULL;
}

static const char *suffix_of(const char *name, const char *prefix)
{
    size_t length = strlen(prefix);

    return strncmp(name, prefix, length) == 0 ? name + length : NULL;
}

static void adopt(struct keeper *keeper, const char *name, int fd)
{
    const char *socket = suffix_of(name, HAND_OVER_SOCKET);
    const char *lock = suffix_of(name, HAND_OVER_LOCK);
    struct listen_socket *listener;
    int *place;
    int r;

    (void) fcntl(fd, F_SETFD, FD_CLOEXEC);
    if (strcmp(name, HAND_OVER_NOTIFY) == 0) {
        keeper->notify_fd = fd;
        return;
    }
    if (socket == NULL && lock == NULL) {
        r = store_consume_fd(&keeper->store, name, fd);
        if (r < 0)
            log_error("the fd '%.64s' is lost: %s", name, strerror(-r));
        return;
    }
    listener = listener_of(keeper, socket != NULL ? socket : lock);
    place = listener == NULL ? NULL : socket != NULL ? &listener->fd : &listener->lock;
    if (place == NULL || *place >= 0)
        (void) close(fd);
    else
        *place = fd;
}

static int directory_find(struct keeper *keeper)
{
    struct sockaddr_un address = {0};
    socklen_t length = sizeof(address);

    if (getsockname(keeper->notify_fd, (struct sockaddr *) &address, &length) < 0)
        return -errno;
    if (address.sun_path[0] != '/')
        return -EINVAL;
    keeper->directory = strdup(dirname(address.sun_path));
    return keeper->directory == NULL ? -ENOMEM : 0;
}

static int paths_set(struct keeper *keeper)
{
    for (size_t i = 0; i < keeper->options->listen_count; i++) {
        keeper->sockets[i].path = strdup(keeper->options->listen[i].path);
        if (keeper->sockets[i].path == NULL)
            return -ENOMEM;
    }
    return 0;
}

static int take_over(struct keeper *keeper, pid_t child)
{
    char **names = NULL;
    int count = sd_listen_fds_with_names(1, &names);

    for (int i = 0; i < count; i++) {
        adopt(keeper, names[i], SD_LISTEN_FDS_START + i);
        free(names[i]);
    }
    free(names);
    if (keeper->notify_fd < 0) {
        log_error("nothing was handed over, though %s is set", HAND_OVER_CHILD);
        return -EINVAL;
    }
    keeper->child = child;
    keeper->phase = child > 0 ? KEEPER_RUNNING : KEEPER_WAITING;
    if (child > 0 && keeper->options->watchdog_ns != 0)
        keeper->watchdog_ns = clock_now(keeper->clock) + keeper->options->watchdog_ns;
    log_info("took over from an earlier keeper: process %d, %zu fd%s", (int) child,
        keeper->store.count, PLURAL_S(keeper->store.count));
    if (directory_find(keeper) < 0)
        return -EINVAL;
    return paths_set(keeper);
}

/* ------------------------------------------------------------------ */

int keeper_start(struct keeper *keeper, const struct keeper_options *options, char **argv,
    const struct clock *clock)
{
    const char *child = getenv(HAND_OVER_CHILD);
    int r;

    *keeper = (struct keeper){
        .options = options,
        .argv = argv,
        .clock = clock,
        .phase = KEEPER_WAITING,
        .notify_fd = -1,
        .signal_fd = -1,
        .watchdog_ns = CLOCK_NEVER,
        .kill_ns = CLOCK_NEVER,
    };
    for (size_t i = 0; i < ARRAY_SIZE(keeper->sockets); i++)
        keeper->sockets[i] = LISTEN_SOCKET_NONE;
    store_init(&keeper->store, options->fds_max);
    manager_open(&keeper->manager);
    /* What a broker leaves behind is reaped here, in a container or not. */
    (void) prctl(PR_SET_CHILD_SUBREAPER, 1L, 0L, 0L, 0L);
    fd_limit_raise(options);
    r = keeper_signals_open(keeper);
    if (r < 0) {
        log_error("no signals: %s", strerror(-r));
        return r;
    }
    if (child != NULL)
        return take_over(keeper, (pid_t) atoi(child));
    r = notify_open(keeper);
    if (r < 0) {
        log_error("no socket for what the broker says: %s", strerror(-r));
        return r;
    }
    return sockets_bind(keeper);
}

void keeper_clear(struct keeper *keeper)
{
    manager_close(&keeper->manager);
    store_clear(&keeper->store);
    for (size_t i = 0; i < ARRAY_SIZE(keeper->sockets); i++)
        listen_close(&keeper->sockets[i]);
    close_fd(&keeper->signal_fd);
    close_fd(&keeper->notify_fd);
    if (keeper->directory != NULL) {
        _cleanup_free_ char *path = NULL;

        if (asprintf(&path, "%s/notify", keeper->directory) < 0)
            path = NULL;
        else
            (void) unlink(path);
        (void) rmdir(keeper->directory);
    }
    free(keeper->directory);
    keeper->directory = NULL;
}
