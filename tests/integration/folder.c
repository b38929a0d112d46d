/* See folder.h. */
#include "tests/integration/folder.h"

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

static bool alone(void)
{
    static bool done;

    done = done || (geteuid() == 0 && unshare(CLONE_NEWNS) == 0 &&
                       mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0);
    return done;
}

bool folder_mount(const char *folder, const char *type, unsigned long flags, const char *options)
{
    return alone() && mount("test", folder, type, flags, options) == 0;
}

int folder_file(const char *folder, pid_t pid)
{
    char path[64], target[256], name[320];
    struct dirent *entry;
    int fd = -1;
    DIR *fds;

    (void) snprintf(path, sizeof(path), "/proc/%d/fd", (int) pid);
    fds = opendir(path);
    ck_assert_ptr_nonnull(fds);
    while (fd < 0 && (entry = readdir(fds)) != NULL) {
        ssize_t length;

        (void) snprintf(name, sizeof(name), "%s/%s", path, entry->d_name);
        length = readlink(name, target, sizeof(target) - 1);
        target[length > 0 ? length : 0] = '\0';
        if (strncmp(target, folder, strlen(folder)) == 0)
            fd = open(name, O_RDWR | O_CLOEXEC);
    }
    (void) closedir(fds);
    ck_assert_int_ge(fd, 0);
    return fd;
}

int folder_fill(const char *folder)
{
    static const char bytes[65536];
    int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

    ck_assert_int_ge(fd, 0);
    while (write(fd, bytes, sizeof(bytes)) > 0)
        continue;
    ck_assert_int_eq(errno, ENOSPC);
    return fd;
}
