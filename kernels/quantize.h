/*
 * Quantized pages: 16-bit floats become 8-bit codes, with one fp32 scale for each block of 64.
 *
 * Layout in the tier, for a page of E = page_bytes / 2 elements (all little-endian):
 *
 *   offset 0      fp32 scale of each block; the last block may be shorter than 64. Zeroes up to a
 *                 multiple of four scales
 *   scales end    one code for each element, in order. Zeroes up to a multiple of 16 codes
 *
 * quantized_bytes() long, 16-byte aligned. Its checksum (checksum.h) is that of these bytes.
 *
 * With m the largest finite magnitude of a block, scale = m / limit, code = element / scale rounded
 * to nearest even; an element comes back as code × scale rounded to its type.
 *
 *                   int8                          fp8 (e4m3)
 *   limit           127                           448
 *   error           m / 254                       of x: max(|x| / 16, m / (448 × 1024))
 *   m itself        exact, and so a block of equal elements
 *   NaN             code -128, comes back as NaN  comes back as NaN of its sign
 *   infinity        as m of its sign: saturates   the same
 *   -0              0                             -0
 *
 * (errors to within 1/1000 of themselves, and before the last rounding, which is at most half a
 * unit in the last place of the element type). Neither NaN nor infinity touches the scale or
 * another element. In a block without a finite element other than zero, m is the type's largest
 * finite number: zeros come back as zeros, infinity as that number. The scale is never below 2^-100
 * (bf16 alone gets there), so that no machine's way with subnormals matters: what is below half a
 * step of it becomes zero.
 */
#pragma once

#include "kernels/pages.h"

enum page_element {
    PAGE_ELEMENT_NONE = 0,
    PAGE_ELEMENT_FP16 = 1,
    PAGE_ELEMENT_BF16 = 2,
    PAGE_ELEMENT_MAX
};

enum page_format {
    PAGE_FORMAT_RAW = 0, /* page_copy */
    PAGE_FORMAT_INT8 = 1,
    PAGE_FORMAT_FP8 = 2,
    PAGE_FORMAT_MAX
};

/*
 * `page_quantize`: src of each pair is a page, dst a quantized one. `page_dequantize`: the other
 * way round. `page_bytes` is the size of the page, not of its quantized form. A launch with another
 * element or format than the kernels know does nothing.
 */
struct page_quantize_args {
    struct page_batch batch;
    uint32_t element; /* enum page_element */
    uint32_t format;  /* enum page_format */
};

struct page_dequantize_args {
    struct page_batch batch;
    uint32_t element;
    uint32_t format;
};

#define QUANTIZE_BLOCK 64u /* elements to a scale */
#define QUANTIZE_BLOCK_WORDS (QUANTIZE_BLOCK * 2 / 16)

/* Four blocks, whose scales fill one 16-byte word: what one thread works on. */
#define QUANTIZE_QUAD_BLOCKS 4u
#define QUANTIZE_QUAD_BYTES UINT64_C(512)

/* 16-byte words of scales, which is the number of quads, and of codes. */
KERNEL_FUNCTION uint64_t quantized_scale_words(uint64_t page_bytes)
{
    return page_bytes / QUANTIZE_QUAD_BYTES + (page_bytes % QUANTIZE_QUAD_BYTES != 0);
}

KERNEL_FUNCTION uint64_t quantized_code_words(uint64_t page_bytes)
{
    return page_bytes / 32 + (page_bytes % 32 != 0);
}

/* Size of the quantized form of a page of `page_bytes`, a multiple of 16. Never overflows. */
KERNEL_FUNCTION uint64_t quantized_bytes(uint64_t page_bytes)
{
    return (quantized_scale_words(page_bytes) + quantized_code_words(page_bytes)) * 16;
}

#ifndef KERNEL_GPU
/* Names for logs and configuration: "fp16", "int8", … */
const char *page_element_name(enum page_element element);
const char *page_format_name(enum page_format format);
#endif
