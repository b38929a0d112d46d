/* Processes that belong to a run. */
#pragma once

#include "base/macro.h"

#include <sys/types.h>

#define PROGRAM_PATH_BYTES 4096

/*
 * Where `name` is: beside this program, in `../../build_dir` of it (a build tree) or `../sbin` (an
 * installation); else the bare name, for $PATH to find.
 */
void program_find(const char *name, const char *build_dir, char ret[PROGRAM_PATH_BYTES]);

/*
 * For a child of `parent` right after fork: dies by SIGKILL when its parent does, however that
 * ends; signals from the terminal go to the parent alone. To be called after the last change of
 * user or group, which would undo it.
 */
void process_tie_to_parent(pid_t parent);
