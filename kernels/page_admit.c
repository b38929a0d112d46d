/* See page_admit.h. */
#include "kernels/page_admit.h"

#include "kernels/pages.h"

KERNEL(page_admit)
{
    struct page_move *moves = KERNEL_PTR(struct page_move, args->table);
    const uint64_t *checksums = KERNEL_PTR(const uint64_t, args->checksums);
    const uint64_t *expected = KERNEL_PTR(const uint64_t, args->expected);

    KERNEL_FOR(i, index, args->count)
    {
        if (checksums[i] != expected[i])
            moves[i].dst = 0;
    }
}
