/* Counts the bytes of a range that hold the pattern of another owner. See pattern.h. */
#include "kernels/pattern.h"

KERNEL(pattern_foreign)
{
    const kernel_pair *src = KERNEL_PTR(const kernel_pair, args->src);
    uint64_t foreign = 0;

    KERNEL_FOR(i, index, args->bytes / sizeof(kernel_pair))
    {
        uint64_t n = args->first_word + 2 * i;
        kernel_pair pair = src[i];
        uint64_t seed = pattern_seed(pair[0], n);
        uint64_t other = seed ^ args->seed;

        if ((other & args->kin_mask) == 0 && (other & args->owner_mask) != 0 &&
            pattern_word(seed, n + 1) == pair[1])
            foreign += sizeof(kernel_pair);
    }
    if (foreign > 0)
        kernel_atomic_add(KERNEL_PTR(uint64_t, args->foreign), foreign);
}
