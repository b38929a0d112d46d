/*
 * In place of ledger_io.c: a broker that kills itself behind the n-th write of its ledger, counted
 * from when the file is there that GMBD_CUT names and says which. The file is removed first, so
 * that the next broker lives.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "daemon/ledger/ledger_format.h"

static long writes_left(void)
{
    const char *path = getenv("GMBD_CUT");
    FILE *file = path != NULL ? fopen(path, "re") : NULL;
    long left = 0;

    if (file == NULL)
        return 0;
    if (fscanf(file, "%ld", &left) != 1)
        left = 0;
    (void) fclose(file);
    return left;
}

int ledger_pwrite(int fd, const void *bytes, size_t size, off_t offset)
{
    static long left;

    if (left == 0)
        left = writes_left();
    if (pwrite(fd, bytes, size, offset) != (ssize_t) size)
        return errno != 0 ? -errno : -ENOSPC;
    if (left == 1 && unlink(getenv("GMBD_CUT")) == 0)
        (void) kill(getpid(), SIGKILL);
    left -= left > 0;
    return 0;
}
