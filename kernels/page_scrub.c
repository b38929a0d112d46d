/* Zeroes pages, so that the next owner of the memory finds nothing of the last. See pages.h. */
#include "kernels/pages.h"

KERNEL(page_scrub)
{
    const struct page_batch *batch = &args->batch;

    KERNEL_UNITS(u, index, page_units(batch->count, batch->page_bytes))
    {
        const struct page_unit unit = page_unit(u, batch->page_bytes, sizeof(kernel_pair));
        const struct page_move move = page_move(batch, unit.page);
        kernel_pair *dst = KERNEL_PTR(kernel_pair, move.dst) + unit.first;
        const kernel_pair zero = {0, 0};

        KERNEL_LANES(i, index, unit.count)
        dst[i] = zero;
    }
}
