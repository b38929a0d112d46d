/*
 * Whose bytes these are: the seeds of the patterns that are written over every chunk.
 *
 *   bits 63 … 52  the same in every gmb-replay
 *   bits 51 … 32  the tenant: a hash of its name
 *   bits 31 …  0  a hash of worker, request, attempt and chunk
 *
 * So each word on the device tells that it is one of ours and which tenant wrote it, and a chunk
 * that was handed to two owners, or moved within its lease, differs nearly everywhere. Names whose
 * hashes agree (one pair in a million) would hide each other's bytes from the look at received
 * memory, never from the check of one's own.
 */
#pragma once

#include "base/macro.h"

#define PATTERN_KIN_MASK UINT64_C(0xfff0000000000000)
#define PATTERN_OWNER_MASK UINT64_C(0x000fffff00000000)

struct pattern_owner {
    const char *tenant;
    uint32_t worker;
    uint64_t request;
    uint32_t attempt; /* a preempted request comes again */
};

uint64_t pattern_owner_seed(const struct pattern_owner *owner, uint64_t chunk);
