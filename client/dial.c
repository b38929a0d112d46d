/*
 * connect(2) to a Unix socket waits for room in the listener's queue, and the send timeout is what
 * bounds that: a socket that doesn't block would fail instead.
 */
#include "client/dial.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/clock.h"

static int address_fill(const char *path, struct sockaddr_un *ret, struct outcome *outcome)
{
    *ret = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (path[0] == '\0' || strlen(path) >= sizeof(ret->sun_path))
        return outcome_set(outcome, GMB_E_INVALID, "a socket's path has 1 to %zu bytes: %s",
            sizeof(ret->sun_path) - 1, path);
    (void) strcpy(ret->sun_path, path);
    return 0;
}

static int timeout_arm(int fd, uint64_t deadline_ns)
{
    uint64_t left_ns = sub_saturate(deadline_ns, clock_now(&clock_monotonic));
    struct timeval left = {
        .tv_sec = (time_t) (left_ns / NSEC_PER_SEC),
        .tv_usec = (suseconds_t) (left_ns % NSEC_PER_SEC / NSEC_PER_USEC),
    };

    if (left_ns < NSEC_PER_USEC)
        return -ETIMEDOUT;
    return setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &left, sizeof(left)) < 0 ? -errno : 0;
}

static int dial_error(const char *path, int error, struct outcome *outcome)
{
    switch (error) {
    case ENOENT:
    case ECONNREFUSED:
        return outcome_set(outcome, GMB_E_DISCONNECTED,
            "gmbd isn't listening on %s: is gmbd.service running?", path);
    case EAGAIN:
    case ETIMEDOUT:
        return outcome_set(outcome, GMB_E_TIMED_OUT, "gmbd doesn't take connections on %s", path);
    case EPROTOTYPE:
        return outcome_set(outcome, GMB_E_INVALID, "%s is no socket of gmbd's", path);
    default:
        return outcome_set_errno(outcome, error, "connecting to gmbd on %s failed", path);
    }
}

int dial(const char *path, uint64_t deadline_ns, int *ret_fd, struct outcome *outcome)
{
    _cleanup_close_ int fd = -1;
    struct sockaddr_un address;
    int r = address_fill(path, &address, outcome);

    if (r < 0)
        return r;
    fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return outcome_set_errno(outcome, errno, "no socket can be made");
    do {
        r = timeout_arm(fd, deadline_ns);
        if (r < 0)
            return dial_error(path, -r, outcome);
        r = connect(fd, (const struct sockaddr *) &address, sizeof(address)) < 0 ? errno : 0;
    } while (r == EINTR);
    if (r != 0)
        return dial_error(path, r, outcome);
    *ret_fd = TAKE_FD(fd);
    return 0;
}
