/*
 * A pid in a name tells little: /run may be shared with other pid namespaces. But the kernel
 * refuses whoever connects to a socket that nobody has open. A folder without a socket may be one
 * that is being made, and stays.
 */
#include "daemon/keeper/sweep.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/macro.h"

static bool own_folder(int base_fd, const char *name)
{
    struct stat found;

    return strncmp(name, SWEEP_PREFIX, strlen(SWEEP_PREFIX)) == 0 &&
           fstatat(base_fd, name, &found, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(found.st_mode) &&
           found.st_uid == geteuid();
}

static bool abandoned(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    _cleanup_close_ int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || strlen(path) >= sizeof(address.sun_path))
        return false;
    memcpy(address.sun_path, path, strlen(path));
    return connect(fd, (struct sockaddr *) &address, sizeof(address)) < 0 && errno == ECONNREFUSED;
}

void sweep_folders(const char *base)
{
    DIR *folder = opendir(base);

    if (folder == NULL)
        return;
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        char path[PATH_MAX];

        if (!own_folder(dirfd(folder), entry->d_name) ||
            snprintf(path, sizeof(path), "%s/%s/notify", base, entry->d_name) >=
                (int) sizeof(path) ||
            !abandoned(path))
            continue;
        (void) unlink(path);
        *strrchr(path, '/') = '\0';
        (void) rmdir(path);
    }
    (void) closedir(folder);
}
