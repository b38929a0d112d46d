/* See step.h. Only the main threads of these programs send and receive. */
#include "tests/integration/step.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

ssize_t __real_sendmsg(int fd, const struct msghdr *message, int flags);
ssize_t __real_recvmsg(int fd, struct msghdr *message, int flags);
ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags);
ssize_t __wrap_recvmsg(int fd, struct msghdr *message, int flags);

static void step(void)
{
    static unsigned left;
    static int number, parent;
    const char *path = getenv(STEP_VARIABLE);
    FILE *file = left == 0 && path != NULL ? fopen(path, "re") : NULL;

    if (file != NULL) {
        if (fscanf(file, "%u %d %d", &left, &number, &parent) != 3)
            left = 0;
        (void) fclose(file);
    }
    if (left == 0 || --left > 0)
        return;
    if (unlink(path) == 0)
        (void) kill(parent != 0 ? getppid() : getpid(), number);
}

ssize_t __wrap_sendmsg(int fd, const struct msghdr *message, int flags)
{
    ssize_t n = __real_sendmsg(fd, message, flags);

    if (n >= 0)
        step();
    return n;
}

ssize_t __wrap_recvmsg(int fd, struct msghdr *message, int flags)
{
    ssize_t n = __real_recvmsg(fd, message, flags);

    if (n > 0)
        step();
    return n;
}
