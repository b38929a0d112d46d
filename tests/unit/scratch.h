/*
 * A folder for one run of a test program. The process that starts the tests makes it and removes
 * it, so that a test which fails, crashes or is killed leaves nothing behind either.
 */
#pragma once

#include "base/macro.h"

#define SCRATCH_PATH_BYTES 64

/* Before the first test is forked, and after the last has ended. Folders lie in /tmp without it. */
void scratch_begin(void);
void scratch_end(void);

/* Makes a folder that everybody may pass through, for one test. -errno. */
int scratch_make(char ret_path[SCRATCH_PATH_BYTES]) _must_check_;
/* Removes a folder and all in it. -errno. */
int scratch_remove(const char *path);
