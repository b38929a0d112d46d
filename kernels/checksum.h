/*
 * The checksum of a page: 64 bits that depend on every byte and on where it stands, and that can be
 * computed in any order by any number of threads, because it is a sum mod 2^64 over the page's
 * 64-bit words. Word n (little-endian, counted from 0) adds
 *
 *     low(w ^ k) × high(w ^ k) + (low(w) + high(w)) × 2^32    with k = (n + 1) × CHECKSUM_KEY,
 *
 * low and high being its 32-bit halves. The product of keyed halves is NH (Black, Halevi, Krawczyk,
 * Krovetz, Rogaway, "UMAC", CRYPTO 1999) as XXH3 uses it: one widening multiplication, which vector
 * units have even where they have no 64-bit one. A key for each place makes swapped and shifted
 * words show. The second summand makes every flipped bit show, also beside a keyed half of 0, where
 * NH is blind: bit j of a half whose keyed partner is b < 2^32 moves the sum by ±2^j × (2^32 ± b),
 * which isn't 0 mod 2^64. Other changes go unseen with a chance of the order of 2^-64.
 *
 * It finds accidents. It is no protection against somebody who makes bytes to fit.
 */
#pragma once

#include "kernels/kernel.h"

#if !defined(KERNEL_GPU) && defined(__SSE2__)
#include <emmintrin.h>
#endif

#define CHECKSUM_KEY UINT64_C(0x9e3779b97f4a7c15) /* 2^64 / golden ratio, odd */

/* The keys of the two words of pair number `n`, and what leads from them to those of pair n + d. */
KERNEL_FUNCTION kernel_pair checksum_key(uint64_t n)
{
    kernel_pair key = {(2 * n + 1) * CHECKSUM_KEY, (2 * n + 2) * CHECKSUM_KEY};

    return key;
}

KERNEL_FUNCTION kernel_pair checksum_key_step(uint64_t d)
{
    kernel_pair step = {2 * d * CHECKSUM_KEY, 2 * d * CHECKSUM_KEY};

    return step;
}

#ifdef KERNEL_GPU

/* What one thread has summed. All zero at first. */
struct checksum {
    uint64_t sum;
};

KERNEL_FUNCTION void checksum_add_word(struct checksum *to, uint64_t word, uint64_t key)
{
    uint64_t keyed = word ^ key;

    to->sum += (keyed & UINT32_MAX) * (keyed >> 32) + ((word + (word >> 32)) << 32);
}

KERNEL_FUNCTION void checksum_add(struct checksum *to, kernel_pair words, kernel_pair key)
{
    checksum_add_word(to, words[0], key[0]);
    checksum_add_word(to, words[1], key[1]);
}

KERNEL_FUNCTION kernel_pair checksum_key_add(kernel_pair key, kernel_pair step)
{
    kernel_pair sum = {key[0] + step[0], key[1] + step[1]};

    return sum;
}

KERNEL_FUNCTION uint64_t checksum_value(const struct checksum *of)
{
    return of->sum;
}

#else

typedef uint32_t checksum_halves __attribute__((vector_size(16)));

/* The two summands apart: of the second only 32 bits count, so that its halves are summed as they
 * lie and folded at the end. */
struct checksum {
    kernel_pair products;
    checksum_halves halves;
};

KERNEL_FUNCTION void checksum_add(struct checksum *to, kernel_pair words, kernel_pair key)
{
    kernel_pair keyed = words ^ key;

#ifdef __SSE2__
    /* gcc multiplies in full width what has empty upper halves: three multiplications for one. */
    to->products += (kernel_pair) _mm_mul_epu32((__m128i) keyed, (__m128i) (keyed >> 32));
#else
    to->products += (keyed & UINT32_MAX) * (keyed >> 32);
#endif
    to->halves += (checksum_halves) words;
}

KERNEL_FUNCTION kernel_pair checksum_key_add(kernel_pair key, kernel_pair step)
{
    return key + step;
}

KERNEL_FUNCTION uint64_t checksum_value(const struct checksum *of)
{
    uint32_t halves = of->halves[0] + of->halves[1] + of->halves[2] + of->halves[3];

    return of->products[0] + of->products[1] + ((uint64_t) halves << 32);
}

#endif

/* Adds what a thread has summed to the checksum of page number `page`. `checksums` is 0 when nobody
 * asks for them. */
KERNEL_FUNCTION void checksum_join(uint64_t checksums, uint64_t page, const struct checksum *sum)
{
    if (checksums != 0)
        kernel_atomic_add(KERNEL_PTR(uint64_t, checksums) + page, checksum_value(sum));
}
