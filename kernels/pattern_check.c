/* Counts the bytes of a range that differ from the pattern. See pattern.h. */
#include "kernels/pattern.h"

/* Bytes of `word` that are not zero: each byte is folded onto its lowest bit, the multiplication
 * sums the eight bits into the highest byte. */
KERNEL_FUNCTION uint64_t nonzero_bytes(uint64_t word)
{
    word |= word >> 4;
    word |= word >> 2;
    word |= word >> 1;
    word &= UINT64_C(0x0101010101010101);
    return (word * UINT64_C(0x0101010101010101)) >> 56;
}

KERNEL(pattern_check)
{
    const kernel_pair *src = KERNEL_PTR(const kernel_pair, args->src);
    uint64_t differing = 0;

    KERNEL_FOR(i, index, args->bytes / sizeof(kernel_pair))
    {
        uint64_t n = args->first_word + 2 * i;
        kernel_pair pair = src[i];

        differing += nonzero_bytes(pair[0] ^ pattern_word(args->seed, n));
        differing += nonzero_bytes(pair[1] ^ pattern_word(args->seed, n + 1));
    }
    if (differing > 0)
        kernel_atomic_add(KERNEL_PTR(uint64_t, args->differing), differing);
}
