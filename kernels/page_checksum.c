/* Checksums of pages that stay where they are. See pages.h. */
#include "kernels/checksum.h"
#include "kernels/pages.h"

KERNEL(page_checksum)
{
    const struct page_batch *batch = &args->batch;

    KERNEL_UNITS(u, index, page_units(batch->count, batch->page_bytes))
    {
        const struct page_unit unit = page_unit(u, batch->page_bytes, sizeof(kernel_pair));
        const struct page_move move = page_move(batch, unit.page);
        const kernel_pair *src = KERNEL_PTR(const kernel_pair, move.src) + unit.first;
        kernel_pair key = checksum_key(unit.first + kernel_lane(index));
        const kernel_pair step = checksum_key_step(kernel_lanes(index));
        struct checksum sum = {0};

        KERNEL_LANES(i, index, unit.count)
        {
            checksum_add(&sum, src[i], key);
            key = checksum_key_add(key, step);
        }
        checksum_join(batch->checksums, unit.page, &sum);
    }
}
