/*
 * An fd that the broker makes readable for a client, until this one has read its 8 bytes.
 *
 * It is a timerfd that expires at once, and not an eventfd: the client has the same open file, and
 * may do with it what it likes. A write to an eventfd whose counter it has filled, and whose
 * O_NONBLOCK it has cleared, would hold the broker for ever; setting a timer never waits.
 */
#pragma once

#include <errno.h>
#include <sys/timerfd.h>

#include "base/macro.h"

/* The caller's; silent. -errno of timerfd_create(2). */
static inline int bell_new(int *ret_fd)
{
    int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);

    if (fd < 0)
        return -errno;
    *ret_fd = fd;
    return 0;
}

/* Whether an fd of a broker before is one: else nobody would ever hear it. */
static inline bool bell_is(int fd)
{
    struct itimerspec left;

    return timerfd_gettime(fd, &left) == 0;
}

/* Readable from now on. Rung again before it was read, it rings once. Never blocks. */
static inline void bell_ring(int fd)
{
    const struct itimerspec at_once = {.it_value.tv_nsec = 1};

    (void) timerfd_settime(fd, 0, &at_once, NULL);
}
