/* See tier_disk.h. */
#include "daemon/tier_disk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#define FILE_MODE 0600

/* EISDIR: a file system or kernel that doesn't know the flag sees a folder that is opened. */
static bool nameless_unknown(int error)
{
    return error == EOPNOTSUPP || error == EISDIR;
}

/* Not posix_fallocate(), which where the file system can't reserve writes a byte into every block:
 * minutes, for a promise that a file system with snapshots doesn't keep. */
static int file_reserve(int fd, uint64_t bytes)
{
    int r;

    do
        r = fallocate(fd, 0, 0, (off_t) bytes);
    while (r < 0 && errno == EINTR);
    return r < 0 ? -errno : 0;
}

int tier_disk_open(const char *path, uint64_t bytes, int *ret_fd, char reason[TIER_DISK_TEXT])
{
    /* O_EXCL: nobody can give it a name. */
    _cleanup_close_ int fd = open(path, O_TMPFILE | O_RDWR | O_CLOEXEC | O_EXCL, FILE_MODE);
    int r = fd < 0 ? -errno : 0;

    if (r < 0) {
        (void) snprintf(reason, TIER_DISK_TEXT, "no file can be made in HostTierPath=%s: %s", path,
            nameless_unknown(-r) ? "its file system has none without a name (O_TMPFILE)"
                                 : strerror(-r));
        return r;
    }
    r = bytes > INT64_MAX ? -EFBIG : file_reserve(fd, bytes);
    if (r < 0) {
        (void) snprintf(reason, TIER_DISK_TEXT, "%llu MiB can't be reserved in HostTierPath=%s: %s",
            (unsigned long long) (bytes >> 20), path,
            r == -EOPNOTSUPP ? "its file system reserves no room (fallocate)" : strerror(-r));
        return r;
    }
    *ret_fd = TAKE_FD(fd);
    return 0;
}
