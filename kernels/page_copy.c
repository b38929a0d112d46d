/*
 * Gather and scatter: pages go from where they lie to slots of a tier, or back, each word read
 * once, written once and summed on its way. See pages.h.
 */
#include "kernels/checksum.h"
#include "kernels/pages.h"

KERNEL(page_copy)
{
    const struct page_batch *batch = &args->batch;

    KERNEL_UNITS(u, index, page_units(batch->count, batch->page_bytes))
    {
        const struct page_unit unit = page_unit(u, batch->page_bytes, sizeof(kernel_pair));
        const struct page_move move = page_move(batch, unit.page);
        const kernel_pair *src = KERNEL_PTR(const kernel_pair, move.src) + unit.first;
        kernel_pair *dst = KERNEL_PTR(kernel_pair, move.dst) + unit.first;
        kernel_pair key = checksum_key(unit.first + kernel_lane(index));
        const kernel_pair step = checksum_key_step(kernel_lanes(index));
        struct checksum sum = {0};

        KERNEL_LANES(i, index, unit.count)
        {
            const kernel_pair words = src[i];

            kernel_store_away(dst + i, words);
            checksum_add(&sum, words, key);
            key = checksum_key_add(key, step);
        }
        checksum_join(batch->checksums, unit.page, &sum);
    }
    kernel_stores_end();
}
