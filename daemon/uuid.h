/* UUIDs of devices: 16 bytes on the wire, `GPU-8-4-4-4-12` for people. Pure. */
#pragma once

#include "base/macro.h"

#define UUID_BYTES 16

/*
 * Takes 32 hexadecimal digits in groups of 8-4-4-4-12, with or without `GPU-` or `MIG-` before
 * them. -EINVAL for anything else.
 */
int uuid_parse(const char *text, uint8_t ret_uuid[UUID_BYTES]) _must_check_;
