/*
 * Which pages of a batch may go on: a move whose checksum isn't the expected one gets destination
 * 0, which the kernels of pages.h pass over. Between a launch that sums and one that moves, in one
 * stream, nobody has to wait for the sums.
 */
#pragma once

#include "kernels/kernel.h"

struct page_admit_args {
    uint64_t table; /* device address of `count` page_moves */
    uint64_t count;
    uint64_t checksums; /* of `count` uint64_t: what was found */
    uint64_t expected;  /* of `count` uint64_t */
};
