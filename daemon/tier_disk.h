/*
 * The file behind a host tier that is larger than memory.
 *
 * Nobody maps it: a mapping whose disk is gone, or whose file got shorter, ends the process by
 * SIGBUS. The mover reads and writes it, and gets an error that it can answer with.
 */
#pragma once

#include "base/limits.h"
#include "base/macro.h"

/* What a refusal says: a path, and why. A text as messages carry it, with its NUL. */
#define TIER_DISK_TEXT (LIMIT_TEXT_BYTES + 1)

/*
 * Makes a file of `bytes` in the folder `path` that has no name and is gone with its last fd, and
 * reserves its room, so that the disk can't get full later on. Blocks as long as the disk takes:
 * for start only. -errno with one line in `reason`, which names the path.
 */
int tier_disk_open(
    const char *path, uint64_t bytes, int *ret_fd, char reason[TIER_DISK_TEXT]) _must_check_;
