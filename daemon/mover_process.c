/*
 * The child inherits two things on purpose: standard error, and its end of a socket pair, as fd 3.
 * Everything else is CLOEXEC or closed by the mover itself.
 */
#include "daemon/mover_process.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "proto/mover.pb-c.h"

#define CHILD_SOCKET 3

extern char **environ;

/* Talk between the service manager and gmbd: a helper that read it would speak for gmbd. */
static bool variable_private(const char *variable)
{
    static const char *const names[] = {"LISTEN_FDNAMES=", "LISTEN_FDS=", "LISTEN_PID=",
        "NOTIFY_SOCKET=", "WATCHDOG_PID=", "WATCHDOG_USEC="};

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        if (strncmp(variable, names[i], strlen(names[i])) == 0)
            return true;
    }
    return false;
}

/* The array is the caller's, the strings are not. NULL without memory. */
static char **environment_make(void)
{
    size_t count = 0, kept = 0;
    char **result;

    while (environ[count] != NULL)
        count++;
    result = calloc(count + 1, sizeof(*result));
    for (size_t i = 0; result != NULL && i < count; i++) {
        if (!variable_private(environ[i]))
            result[kept++] = environ[i];
    }
    return result;
}

static int program_find(const struct mover_start *start, char path[PATH_MAX])
{
    const char *program = start->program != NULL ? start->program : secure_getenv(start->variable);
    size_t room = PATH_MAX - strlen(start->name) - 1;
    char *slash;
    ssize_t length;

    if (program != NULL)
        return snprintf(path, PATH_MAX, "%s", program) < PATH_MAX ? 0 : -ENAMETOOLONG;
    length = readlink("/proc/self/exe", path, room);
    if (length < 0)
        return -errno;
    if (length >= (ssize_t) room)
        return -ENAMETOOLONG;
    path[length] = '\0';
    slash = strrchr(path, '/');
    strcpy(slash != NULL ? slash + 1 : path, start->name);
    return 0;
}

/* Its own process group: a signal from the terminal is for gmbd, which ends its helpers itself. */
static int attributes_set(posix_spawnattr_t *attributes)
{
    const short flags = POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP;
    sigset_t none, all;
    int r;

    (void) sigemptyset(&none);
    (void) sigfillset(&all);
    r = posix_spawnattr_setflags(attributes, flags);
    if (r == 0)
        r = posix_spawnattr_setsigmask(attributes, &none);
    if (r == 0)
        r = posix_spawnattr_setsigdefault(attributes, &all);
    if (r == 0)
        r = posix_spawnattr_setpgroup(attributes, 0);
    return -r;
}

/* The simulator's default directory, and one that others may not enter and change, is its user's
 * alone: another one would find no device there. */
static bool user_stays(const struct mover_start *start)
{
    const char *directory = getenv("GMB_SIM_DIR");
    struct stat status;

    if (strcmp(start->driver, "sim") != 0)
        return false;
    return directory == NULL || stat(directory, &status) < 0 ||
           (status.st_mode & (S_IWOTH | S_IXOTH)) != (S_IWOTH | S_IXOTH);
}

static int child_spawn(
    const char *path, const struct mover_start *start, int socket, pid_t *ret_pid)
{
    char gpu[32], user[64], name[32];
    char *arguments[] = {name, (char[]){"--socket=3"}, gpu, user_stays(start) ? NULL : user, NULL};
    _cleanup_free_ char **environment = environment_make();
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    int r;

    if (environment == NULL)
        return -ENOMEM;
    if (snprintf(gpu, sizeof(gpu), "--gpu=%s", start->driver) >= (int) sizeof(gpu) ||
        snprintf(user, sizeof(user), "--user=%s", start->user) >= (int) sizeof(user) ||
        snprintf(name, sizeof(name), "%s", start->name) >= (int) sizeof(name))
        return -ENAMETOOLONG;
    r = -posix_spawn_file_actions_init(&actions);
    if (r < 0)
        return r;
    r = -posix_spawnattr_init(&attributes);
    if (r == 0) {
        r = attributes_set(&attributes);
        if (r == 0)
            r = -posix_spawn_file_actions_adddup2(&actions, socket, CHILD_SOCKET);
        if (r == 0)
            r = -posix_spawn(ret_pid, path, &actions, &attributes, arguments, environment);
        (void) posix_spawnattr_destroy(&attributes);
    }
    (void) posix_spawn_file_actions_destroy(&actions);
    return r;
}

int mover_process_start(const struct mover_start *start, struct mover_process *ret, int *ret_socket)
{
    struct mover_process process = MOVER_PROCESS_NONE;
    int pair[2], r;
    char path[PATH_MAX];

    r = program_find(start, path);
    if (r < 0)
        return r;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    r = child_spawn(path, start, pair[1], &process.pid);
    close_fd(&pair[1]);
    if (r == 0) {
        /* Our child, unreaped: the pid is its own. */
        process.pidfd = pidfd_open(process.pid, 0);
        if (process.pidfd < 0) {
            r = -errno;
            mover_process_end(&process, 0);
        }
    }
    if (r < 0) {
        close_fd(&pair[0]);
        return r;
    }
    *ret = process;
    *ret_socket = pair[0];
    return 0;
}

void mover_process_kill(const struct mover_process *process)
{
    if (process->pid > 0)
        (void) kill(process->pid, SIGKILL);
}

static bool process_wait(struct mover_process *process, int options)
{
    siginfo_t info = {0};
    int r;

    if (process->pid == 0)
        return true;
    do
        r = waitid(P_PID, (id_t) process->pid, &info, WEXITED | options);
    while (r < 0 && errno == EINTR);
    if (r == 0 && info.si_pid == 0)
        return false;
    process->wait_status = info.si_status;
    process->wait_code = info.si_code;
    process->pid = 0;
    return true;
}

bool mover_process_reap(struct mover_process *process)
{
    return process_wait(process, WNOHANG);
}

bool mover_process_stopped(const struct mover_process *process)
{
    siginfo_t info = {0};

    return process->pid > 0 &&
           waitid(P_PID, (id_t) process->pid, &info, WSTOPPED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid == process->pid;
}

void mover_process_forget(struct mover_process *process)
{
    close_fd(&process->pidfd);
}

void mover_process_end(struct mover_process *process, int patience_ms)
{
    struct pollfd ended = {.fd = process->pidfd, .events = POLLIN};

    if (process->pid == 0)
        return;
    if (process->pidfd < 0 || poll(&ended, 1, patience_ms) <= 0)
        mover_process_kill(process);
    (void) process_wait(process, 0);
    mover_process_forget(process);
}

static const char *exit_text(int status)
{
    switch ((Gmb__MoverExit) status) {
    case GMB__MOVER_EXIT__MOVER_EXIT_END:
        return "it lost the connection";
    case GMB__MOVER_EXIT__MOVER_EXIT_USAGE:
        return "it could not be confined";
    case GMB__MOVER_EXIT__MOVER_EXIT_DEVICE:
        return "no use of the device";
    case GMB__MOVER_EXIT__MOVER_EXIT_STICKY:
        return "sticky error of the driver";
    case GMB__MOVER_EXIT__MOVER_EXIT_PROTOCOL:
        return "the conversation made no sense";
    case GMB__MOVER_EXIT__MOVER_EXIT_MEMORY:
        return "no device memory for its context";
    case _GMB__MOVER_EXIT_IS_INT_SIZE:
        break;
    }
    return status == 127 ? "the program could not be run" : "unknown";
}

bool mover_process_starved(const struct mover_process *process)
{
    return process->wait_code == CLD_EXITED &&
           process->wait_status == GMB__MOVER_EXIT__MOVER_EXIT_MEMORY;
}

char *mover_process_describe(const struct mover_process *process, char text[MOVER_PROCESS_TEXT])
{
    int status = process->wait_status;

    if (process->wait_code == CLD_EXITED)
        (void) snprintf(
            text, MOVER_PROCESS_TEXT, "exited with status %d (%s)", status, exit_text(status));
    else
        (void) snprintf(text, MOVER_PROCESS_TEXT, "was killed by signal %d", status);
    return text;
}
