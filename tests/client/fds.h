/* How many fds this process has. */
#pragma once

#include <check.h>
#include <dirent.h>

static inline size_t fds_open(void)
{
    DIR *directory = opendir("/proc/self/fd");
    size_t count = 0;

    ck_assert_ptr_nonnull(directory);
    while (readdir(directory) != NULL)
        count++;
    (void) closedir(directory);
    return count;
}
