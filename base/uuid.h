/* UUIDs of devices: 16 bytes on the wire, `GPU-8-4-4-4-12` for people. Pure. */
#pragma once

#include "base/macro.h"

#define UUID_BYTES 16
#define UUID_TEXT_MAX 41

struct uuid {
    uint8_t bytes[UUID_BYTES];
};

/* Writes `GPU-…` with lower-case digits and returns `buffer`. */
char *uuid_format(char buffer[UUID_TEXT_MAX], const struct uuid *uuid);
/* The same with `MIG-…` for a MIG instance. */
char *uuid_format_device(char buffer[UUID_TEXT_MAX], const struct uuid *uuid, bool mig);
/* Whether the text of a device's UUID says that it is a MIG instance. */
bool uuid_is_mig(const char *text);

/*
 * `GPU-` or `MIG-` in front is optional and says nothing; digits in either case. -EINVAL for
 * anything else.
 */
int uuid_parse(const char *text, struct uuid *ret) _must_check_;

/* -EINVAL unless there are 16 bytes. */
int uuid_from_bytes(const uint8_t *bytes, size_t size, struct uuid *ret) _must_check_;

bool uuid_equal(const struct uuid *a, const struct uuid *b);
