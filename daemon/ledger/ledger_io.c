/* The one place where the ledger is written. */
#include <errno.h>
#include <unistd.h>

#include "daemon/ledger/ledger_format.h"

int ledger_pwrite(int fd, const void *bytes, size_t size, off_t offset)
{
    ssize_t n;

    do {
        n = pwrite(fd, bytes, size, offset);
    } while (n < 0 && errno == EINTR);
    if (n < 0)
        return -errno;
    return (size_t) n == size ? 0 : -ENOSPC;
}
