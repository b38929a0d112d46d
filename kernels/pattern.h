/*
 * A pattern that says whose memory this is and where: word n of pattern `seed` is the n-th output
 * of splitmix64 (Steele, Lea, Flood, "Fast splittable pseudorandom number generators", OOPSLA 2014)
 * started at `seed`. Words differ with owner and place alike, so that foreign bytes, stale bytes
 * and shifted bytes all show.
 */
#pragma once

#include "kernels/kernel.h"

/* Word `n` of the pattern `seed`. */
KERNEL_FUNCTION uint64_t pattern_word(uint64_t seed, uint64_t n)
{
    uint64_t z = seed + (n + 1) * UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/*
 * `pattern_fill`: writes the pattern. `dst` is a device address, 16-byte aligned, `bytes` a
 * multiple of 16; the range holds words `first_word`, `first_word` + 1, … of the pattern, so that a
 * part of a buffer can be written alone.
 */
struct pattern_fill_args {
    uint64_t dst;
    uint64_t bytes;
    uint64_t seed;
    uint64_t first_word;
};

/*
 * `pattern_check`: adds the number of bytes that differ from the pattern to the uint64_t at the
 * device address `differing` (8-byte aligned; the caller sets it to zero). The rest as for fill.
 */
struct pattern_check_args {
    uint64_t src;
    uint64_t bytes;
    uint64_t seed;
    uint64_t first_word;
    uint64_t differing;
};
