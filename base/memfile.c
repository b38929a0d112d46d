/* See memfile.h. */
#include "base/memfile.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int memfile_new(const char *name, uint64_t bytes)
{
    _cleanup_close_ int fd = -1;

    if (bytes > INT64_MAX)
        return -EFBIG;
    fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 || ftruncate(fd, (off_t) bytes) < 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
        return -errno;
    return TAKE_FD(fd);
}

int memfile_check(int fd, uint64_t bytes)
{
    int seals = fcntl(fd, F_GET_SEALS);
    struct stat status;

    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0)
        return -EINVAL;
    if (fstat(fd, &status) < 0)
        return -errno;
    return (uint64_t) status.st_size >= bytes ? 0 : -EINVAL;
}
