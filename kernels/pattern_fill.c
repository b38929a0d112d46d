/* Writes the pattern over a range; each element is one 16-byte store. See pattern.h. */
#include "kernels/pattern.h"

KERNEL(pattern_fill)
{
    kernel_pair *dst = KERNEL_PTR(kernel_pair, args->dst);

    KERNEL_FOR(i, index, args->bytes / sizeof(kernel_pair))
    {
        uint64_t n = args->first_word + 2 * i;
        kernel_pair pair = {pattern_word(args->seed, n), pattern_word(args->seed, n + 1)};

        dst[i] = pair;
    }
}
