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
 * The seed of the pattern whose word `n` is `word`. Each step of pattern_word() is a bijection:
 * the shifts are undone by shifting on, the products by the inverses of the factors mod 2^64.
 */
KERNEL_FUNCTION uint64_t pattern_seed(uint64_t word, uint64_t n)
{
    uint64_t z = word ^ (word >> 31) ^ (word >> 62);

    z *= UINT64_C(0x319642b2d24d8ec3);
    z ^= (z >> 27) ^ (z >> 54);
    z *= UINT64_C(0x96de1b173f119089);
    z ^= (z >> 30) ^ (z >> 60);
    return z - (n + 1) * UINT64_C(0x9e3779b97f4a7c15);
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

/*
 * `pattern_foreign`: adds to the uint64_t at `foreign` the number of bytes that hold somebody
 * else's pattern: 16 at a time, where both words are of one seed that agrees with `seed` in the
 * bits of `kin_mask` (what all our seeds have in common) and differs in those of `owner_mask`
 * (whose it is). Two words agree on a seed by chance once in 2^64, so that what was never a
 * pattern (zeros, weights, garbage) doesn't count. The rest as for check.
 */
struct pattern_foreign_args {
    uint64_t src;
    uint64_t bytes;
    uint64_t seed;
    uint64_t first_word;
    uint64_t kin_mask;
    uint64_t owner_mask;
    uint64_t foreign;
};
