/* Durations as people write them: 193us, 1.5us, 200ms, 2s, 0. */
#pragma once

#include "base/macro.h"

/* -EINVAL for anything but a number with ns, us, ms or s behind it, or 0; at most an hour. */
int duration_parse(const char *text, uint64_t *ret_ns) _must_check_;
