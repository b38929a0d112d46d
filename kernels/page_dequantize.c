/*
 * Scatter with dequantization: the way back of page_quantize.c, cut the same way. Scales that were
 * damaged give wrong numbers, which the checksum tells, and nothing worse. See quantize.h.
 */
#include "kernels/checksum.h"
#include "kernels/quantize_code.h"

/* Elements of a word of codes, as two words. */
KERNEL_FUNCTION void codes_unpack(kernel_pair *low, kernel_pair *high, kernel_pair word,
    float scale, enum page_element element, enum page_format format)
{
    uint16_t elements[16];
    uint8_t codes[16];

    codes_from_word(codes, word);
    KERNEL_UNROLL
    for (int i = 0; i < 16; i++)
        elements[i] = element_from_code(codes[i], scale, element, format);
    *low = word_from_elements(elements);
    *high = word_from_elements(elements + 8);
}

/* `count` words of elements from the codes at `src`, where pair number `at` of the quantized page
 * lies. */
KERNEL_FUNCTION void block_dequantize(kernel_pair *dst, const kernel_pair *src, uint64_t count,
    uint64_t at, float scale, enum page_element element, enum page_format format,
    struct checksum *sum)
{
    for (uint64_t w = 0; 2 * w < count; w++) {
        const kernel_pair codes = src[w];
        kernel_pair low, high;

        checksum_add(sum, codes, checksum_key(at + w));
        codes_unpack(&low, &high, codes, scale, element, format);
        dst[2 * w] = low;
        if (2 * w + 1 < count)
            dst[2 * w + 1] = high;
    }
}

/* Quad number `quad` of a page. */
KERNEL_FUNCTION void quad_dequantize(const struct page_move *move, uint64_t page_bytes,
    uint64_t quad, enum page_element element, enum page_format format, struct checksum *sum)
{
    const kernel_pair *src = KERNEL_PTR(const kernel_pair, move->src);
    kernel_pair *dst = KERNEL_PTR(kernel_pair, move->dst);
    const uint64_t words = page_bytes / sizeof(kernel_pair);
    const kernel_pair scales = src[quad];

    checksum_add(sum, scales, checksum_key(quad));
    for (uint64_t b = 0; b < QUANTIZE_QUAD_BLOCKS; b++) {
        uint64_t first = (quad * QUANTIZE_QUAD_BLOCKS + b) * QUANTIZE_BLOCK_WORDS;
        uint64_t at = quantized_scale_words(page_bytes) + first / 2;
        uint64_t bits = (b < 2 ? scales[0] : scales[1]) >> (32 * (b % 2));
        uint64_t count;

        if (first >= words)
            break;
        count = words - first < QUANTIZE_BLOCK_WORDS ? words - first : QUANTIZE_BLOCK_WORDS;
        block_dequantize(
            dst + first, src + at, count, at, kernel_float((uint32_t) bits), element, format, sum);
    }
}

KERNEL_FUNCTION void pages_dequantize(const struct kernel_index *index,
    const struct page_batch *batch, enum page_element element, enum page_format format)
{
    KERNEL_UNITS(u, index, page_units(batch->count, batch->page_bytes))
    {
        const struct page_unit unit = page_unit(u, batch->page_bytes, QUANTIZE_QUAD_BYTES);
        const struct page_move move = page_move(batch, unit.page);
        struct checksum sum = {0};

        KERNEL_LANES(i, index, unit.count)
        quad_dequantize(&move, batch->page_bytes, unit.first + i, element, format, &sum);
        checksum_join(batch->checksums, unit.page, &sum);
    }
}

KERNEL(page_dequantize)
{
    const struct page_batch *batch = &args->batch;

    if (args->element == PAGE_ELEMENT_FP16 && args->format == PAGE_FORMAT_INT8)
        pages_dequantize(index, batch, PAGE_ELEMENT_FP16, PAGE_FORMAT_INT8);
    else if (args->element == PAGE_ELEMENT_FP16 && args->format == PAGE_FORMAT_FP8)
        pages_dequantize(index, batch, PAGE_ELEMENT_FP16, PAGE_FORMAT_FP8);
    else if (args->element == PAGE_ELEMENT_BF16 && args->format == PAGE_FORMAT_INT8)
        pages_dequantize(index, batch, PAGE_ELEMENT_BF16, PAGE_FORMAT_INT8);
    else if (args->element == PAGE_ELEMENT_BF16 && args->format == PAGE_FORMAT_FP8)
        pages_dequantize(index, batch, PAGE_ELEMENT_BF16, PAGE_FORMAT_FP8);
}
