/*
 * Memory that several processes map, or that outlives the one that made it: a memfd whose size
 * nobody can change, since whoever maps one that somebody else made shorter dies by SIGBUS.
 */
#pragma once

#include <stdint.h>

#include "base/macro.h"

/* One of that size, zeroed; the fd is the caller's, CLOEXEC. -errno. `name` is what /proc shows. */
int memfile_new(const char *name, uint64_t bytes) _must_check_;
/* Whether what came from elsewhere is one, and at least that large: 0, or -EINVAL, -errno. */
int memfile_check(int fd, uint64_t bytes) _must_check_;
