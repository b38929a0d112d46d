/* Sizes as people write them: 512M, 40G, 1.5T, infinity. Base 1024, as systemd has it. */
#pragma once

#include "base/macro.h"

#define SIZE_INFINITY UINT64_MAX
#define SIZE_TEXT_MAX 24

/*
 * Parses bytes: digits, an optional decimal part, an optional suffix K M G T P E (with or without
 * `iB` or `B`, in either case), or `infinity`. No sign, no space, nothing behind.
 * -EINVAL for anything else, -ERANGE when the value doesn't fit in 63 bits. `ret_bytes` is written
 * on success only, so a malformed limit can never come out as "no limit".
 */
int size_parse(const char *text, uint64_t *ret_bytes) _must_check_;

/* Writes `bytes` into `buffer` as `40G`, `1.5M`, `512B`, `infinity` and returns it. */
char *size_format(char buffer[SIZE_TEXT_MAX], uint64_t bytes);
