/*
 * A pid alone names whoever has it now. So the process is held by a pidfd first, then read about in
 * /proc, then asked whether it still lives: if it does, what was read was about it.
 *
 * Since Linux 6.5 the socket itself gives the pidfd of the process that connected. Before, one is
 * opened by pid, and a process that started after the connection was accepted can't be the peer.
 * What remains there is a process that connects and dies while its successor gets the same pid and
 * starts, all before accept(2): the pid space would have to wrap round in that time.
 */
#include "daemon/identity.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <systemd/sd-login.h>
#include <time.h>

#include "daemon/text.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

/* A line of /proc/PID/stat and the text of /proc/PID/cgroup, both with room. */
#define PROC_TEXT_BYTES 8192

static int proc_read(pid_t pid, const char *name, char text[PROC_TEXT_BYTES])
{
    _cleanup_close_ int fd = -1;
    char path[64];
    size_t used = 0;

    (void) snprintf(path, sizeof(path), "/proc/%d/%s", (int) pid, name);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? -ESRCH : -errno;
    while (used < PROC_TEXT_BYTES - 1) {
        ssize_t n = read(fd, text + used, PROC_TEXT_BYTES - 1 - used);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            break;
        used += (size_t) n;
    }
    text[used] = '\0';
    return 0;
}

int identity_parse_start(const char *stat_line, uint64_t *ret_ticks)
{
    /* The command in parentheses may hold spaces and parentheses: the last one ends it. */
    const char *at = strrchr(stat_line, ')');
    unsigned long long ticks;
    char *end;

    if (at == NULL)
        return -EBADMSG;
    for (unsigned field = 2; field < 22; field++) {
        at = strchr(at + 1, ' ');
        if (at == NULL)
            return -EBADMSG;
    }
    if (at[1] < '0' || at[1] > '9')
        return -EBADMSG;
    errno = 0;
    ticks = strtoull(at + 1, &end, 10);
    if (errno != 0 || (*end != ' ' && *end != '\n' && *end != '\0'))
        return -EBADMSG;
    *ret_ticks = ticks;
    return 0;
}

int identity_parse_cgroup(const char *text, char **ret_path)
{
    char *path;

    for (const char *line = text; *line != '\0';) {
        size_t length = strcspn(line, "\n");

        if (strncmp(line, "0::", 3) == 0) {
            path = strndup(line + 3, length - 3);
            if (path == NULL)
                return -ENOMEM;
            *ret_path = path;
            return 0;
        }
        line += length + (line[length] == '\n');
    }
    path = strdup("");
    if (path == NULL)
        return -ENOMEM;
    *ret_path = path;
    return 0;
}

/* Time since boot in the clock ticks of /proc/PID/stat. */
static uint64_t ticks_now(void)
{
    struct timespec now;
    uint64_t hz = (uint64_t) sysconf(_SC_CLK_TCK);

    (void) clock_gettime(CLOCK_BOOTTIME, &now);
    return (uint64_t) now.tv_sec * hz + (uint64_t) now.tv_nsec * hz / 1000000000u;
}

int identity_open_pid(pid_t pid, uint64_t accepted_ticks, int *ret_pidfd)
{
    _cleanup_close_ int pidfd = -1;
    uint64_t started;
    char text[PROC_TEXT_BYTES];
    int r;

    pidfd = (int) syscall(SYS_pidfd_open, pid, 0);
    if (pidfd < 0)
        return -errno;
    r = proc_read(pid, "stat", text);
    if (r == 0)
        r = identity_parse_start(text, &started);
    if (r < 0)
        return r;
    if (started > accepted_ticks)
        return -ESRCH;
    *ret_pidfd = TAKE_FD(pidfd);
    return 0;
}

static int pidfd_of_peer(int fd, pid_t pid, int *ret_pidfd)
{
    int pidfd;
    socklen_t length = sizeof(pidfd);

    if (getsockopt(fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &length) == 0) {
        *ret_pidfd = pidfd;
        return 0;
    }
    if (errno != ENOPROTOOPT)
        return errno == EINVAL ? -ESRCH : -errno;
    return identity_open_pid(pid, ticks_now(), ret_pidfd);
}

static int groups_read(int fd, struct identity *identity)
{
    gid_t groups[IDENTITY_GROUPS];
    socklen_t length = sizeof(groups);

    if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &length) < 0)
        return errno == ERANGE ? -E2BIG : -errno;
    identity->group_count = length / sizeof(gid_t);
    if (identity->group_count == 0)
        return 0;
    identity->groups = malloc(length);
    if (identity->groups == NULL)
        return -ENOMEM;
    memcpy(identity->groups, groups, length);
    return 0;
}

static bool process_alive(int pidfd)
{
    struct pollfd poll_fd = {.fd = pidfd, .events = POLLIN};

    return poll(&poll_fd, 1, 0) == 0;
}

static int unit_read(pid_t pid, char **ret_unit)
{
    char *unit = NULL;
    int r = sd_pid_get_unit(pid, &unit);

    /* Not in a unit, or no systemd here at all. */
    if (r < 0)
        unit = strdup("");
    if (unit == NULL)
        return -ENOMEM;
    /* Whoever manages cgroups of their own may name them as they like; it is shown to people. */
    text_copy(unit, strlen(unit) + 1, unit);
    *ret_unit = unit;
    return 0;
}

/* What /proc says of the process that the pidfd holds. */
static int proc_identify(struct identity *identity)
{
    char text[PROC_TEXT_BYTES];
    int r = proc_read(identity->pid, "stat", text);

    if (r == 0)
        r = identity_parse_start(text, &identity->start_ticks);
    if (r == 0)
        r = proc_read(identity->pid, "cgroup", text);
    if (r == 0)
        r = identity_parse_cgroup(text, &identity->cgroup);
    if (r == 0)
        r = unit_read(identity->pid, &identity->unit);
    if (r == 0 && !process_alive(identity->pidfd))
        r = -ESRCH;
    return r;
}

/* What /proc doesn't show: a mount with hidepid= hides whom it doesn't let one look at. */
static bool hidden(int r, int pidfd)
{
    return (r == -ESRCH || r == -EACCES || r == -EPERM) && process_alive(pidfd);
}

static int hide(struct identity *identity)
{
    free(identity->cgroup);
    free(identity->unit);
    identity->guessed = true;
    identity->cgroup = strdup("");
    identity->unit = strdup("");
    return identity->cgroup != NULL && identity->unit != NULL ? 0 : -ENOMEM;
}

int identity_find(pid_t pid, uint64_t start_ticks, uid_t uid, struct identity *ret)
{
    _cleanup_identity_ struct identity identity = IDENTITY_NONE;
    int r;

    if (pid <= 0)
        return -ESRCH;
    identity.pid = pid;
    identity.uid = uid;
    identity.gid = (gid_t) -1;
    identity.pidfd = (int) syscall(SYS_pidfd_open, pid, 0);
    /* EINVAL, ENOENT: it is the number of a thread by now. */
    if (identity.pidfd < 0)
        return errno == EINVAL || errno == ENOENT ? -ESRCH : -errno;
    identity.start_ticks = start_ticks;
    r = proc_identify(&identity);
    if (identity.start_ticks != start_ticks)
        return -ESRCH;
    if (hidden(r, identity.pidfd))
        r = hide(&identity);
    /* One that isn't reaped yet may be hidden, too. */
    else if (r < 0 && r != -ENOMEM && !process_alive(identity.pidfd))
        r = -ESRCH;
    if (r < 0)
        return r;
    *ret = identity;
    identity = IDENTITY_NONE;
    return 0;
}

int identity_read(int fd, struct identity *ret)
{
    _cleanup_identity_ struct identity identity = IDENTITY_NONE;
    struct ucred cred;
    socklen_t length = sizeof(cred);
    int r;

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &length) < 0)
        return -errno;
    identity.pid = cred.pid;
    identity.uid = cred.uid;
    identity.gid = cred.gid;
    /* 0: a process of another pid namespace that has no pid in ours. */
    if (identity.pid <= 0)
        return -ESRCH;
    r = pidfd_of_peer(fd, identity.pid, &identity.pidfd);
    if (r == 0)
        r = groups_read(fd, &identity);
    if (r == 0)
        r = proc_identify(&identity);
    if (r < 0)
        return r;
    *ret = identity;
    identity = IDENTITY_NONE;
    return 0;
}

void identity_clear(struct identity *identity)
{
    free(identity->groups);
    free(identity->cgroup);
    free(identity->unit);
    close_fd(&identity->pidfd);
    *identity = IDENTITY_NONE;
}

bool identity_in_group(const struct identity *identity, gid_t gid)
{
    if (identity->gid == gid)
        return true;
    for (size_t i = 0; i < identity->group_count; i++) {
        if (identity->groups[i] == gid)
            return true;
    }
    return false;
}
