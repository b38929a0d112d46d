/* See tier_file.h. */
#include "daemon/tier_file.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stdio.h>
#include <sys/file.h>
#include <time.h>

#include "base/clock.h"

int tier_file_seal(int fd)
{
    const int wanted = F_SEAL_SHRINK | F_SEAL_GROW;
    int seals = fcntl(fd, F_GET_SEALS);

    if (seals < 0)
        return -EINVAL;
    return (seals & wanted) == wanted || fcntl(fd, F_ADD_SEALS, wanted) == 0 ? 0 : -EINVAL;
}

int tier_file_punch(int fd, uint64_t offset, uint64_t bytes)
{
    const int mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;

    return fallocate(fd, mode, (off_t) offset, (off_t) bytes) < 0 ? -errno : 0;
}

static int file_reopen(int fd, int *ret_fd)
{
    char path[32];

    (void) snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    *ret_fd = open(path, O_RDWR | O_CLOEXEC);
    /* A disk that had errors and can only be read by now: what lies there is still wanted. */
    if (*ret_fd < 0 && errno == EROFS)
        *ret_fd = open(path, O_RDONLY | O_CLOEXEC);
    return *ret_fd < 0 ? -errno : 0;
}

int tier_lend(int fd, int *ret_fd)
{
    _cleanup_close_ int own = -1;
    int r = file_reopen(fd, &own);

    if (r == 0 && flock(own, LOCK_SH | LOCK_NB) < 0)
        r = -errno;
    if (r == 0)
        *ret_fd = TAKE_FD(own);
    return r;
}

int tier_quiet_wait(int fd, uint64_t patience_ns)
{
    uint64_t deadline_ns = add_saturate(clock_now(&clock_monotonic), patience_ns);
    const struct timespec pause = {.tv_nsec = 1000000};
    _cleanup_close_ int own = -1;
    int r = file_reopen(fd, &own);

    while (r == 0 && flock(own, LOCK_EX | LOCK_NB) < 0) {
        if (errno != EWOULDBLOCK)
            r = -errno;
        else if (clock_now(&clock_monotonic) >= deadline_ns)
            r = -ETIMEDOUT;
        else
            (void) nanosleep(&pause, NULL);
    }
    return r;
}
