/*
 * Kernels over many pages at once. A launch is told a table in memory that the device can read: for
 * each page where it lies and where it goes. Either end is device memory or page-locked host memory
 * by its device pointer. All addresses are 16-byte aligned, a page has a multiple of 16 bytes, no
 * destination overlaps another or a source.
 *
 *   page_copy        gathers pages into slots of a tier and scatters them back: dst becomes src
 *   page_checksum    reads src
 *   page_scrub       dst becomes zero; src is not looked at
 *   page_quantize    quantize.h
 *   page_dequantize  quantize.h
 *
 * Where `checksums` isn't 0 (page_scrub leaves it alone) it is the device address of one uint64_t
 * for each page, to which the kernel adds the page's checksum (checksum.h), computed in the same
 * pass: the caller sets them to zero before, in the same stream. They lie in device memory: atomics
 * don't cross every bus.
 *
 * Any launch shape gives the same result. Blocks share the pages in units of at most 64 KiB, so
 * that more than page_units() blocks find no work; 128 threads a block suit every size.
 */
#pragma once

#include "kernels/kernel.h"

struct page_move {
    uint64_t src;
    uint64_t dst;
};

struct page_batch {
    uint64_t table; /* device address of `count` page_moves */
    uint64_t count;
    uint64_t page_bytes;
    uint64_t checksums;
};

struct page_copy_args {
    struct page_batch batch;
};

struct page_checksum_args {
    struct page_batch batch;
};

struct page_scrub_args {
    struct page_batch batch;
};

#define PAGE_UNIT_BYTES UINT64_C(65536)

/* Units of `count` pages of `page_bytes` bytes each. */
KERNEL_FUNCTION uint64_t page_units(uint64_t count, uint64_t page_bytes)
{
    return count * ((page_bytes + PAGE_UNIT_BYTES - 1) / PAGE_UNIT_BYTES);
}

/* A unit: a range of one page, in elements of some size of which a whole number makes a unit. */
struct page_unit {
    uint64_t page;
    uint64_t first;
    uint64_t count;
};

/* Unit number `unit`, in elements of `element_bytes`; the last one of a page may be cut off. */
KERNEL_FUNCTION struct page_unit page_unit(
    uint64_t unit, uint64_t page_bytes, uint64_t element_bytes)
{
    uint64_t elements = (page_bytes + element_bytes - 1) / element_bytes;
    uint64_t units = (page_bytes + PAGE_UNIT_BYTES - 1) / PAGE_UNIT_BYTES;
    struct page_unit result;

    result.page = unit / units;
    result.first = unit % units * (PAGE_UNIT_BYTES / element_bytes);
    result.count = elements - result.first < PAGE_UNIT_BYTES / element_bytes
                       ? elements - result.first
                       : PAGE_UNIT_BYTES / element_bytes;
    return result;
}

KERNEL_FUNCTION struct page_move page_move(const struct page_batch *batch, uint64_t page)
{
    return KERNEL_PTR(const struct page_move, batch->table)[page];
}
