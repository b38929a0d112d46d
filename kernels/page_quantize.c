/*
 * Gather with quantization. A thread takes four blocks of 64 elements, so that their scales make
 * one 16-byte word; it reads each block twice, for the scale and for the codes, the second time
 * from the nearest cache. See quantize.h.
 */
#include "kernels/checksum.h"
#include "kernels/quantize_code.h"

/* Two words of elements, or one and nothing, become one word of codes. */
KERNEL_FUNCTION kernel_pair codes_pack(kernel_pair low, kernel_pair high,
    const struct quantize_scale *scale, enum page_element element, enum page_format format)
{
    uint16_t elements[16];
    uint8_t codes[16];

    elements_from_word(elements, low);
    elements_from_word(elements + 8, high);
    KERNEL_UNROLL
    for (int i = 0; i < 16; i++)
        codes[i] = code_from_element(elements[i], scale, element, format);
    return word_from_codes(codes);
}

/* Codes of the block at `src`, `count` words long, to `dst`, where pair number `at` of the
 * quantized page lies. */
KERNEL_FUNCTION void block_quantize(kernel_pair *dst, const kernel_pair *src, uint64_t count,
    uint64_t at, const struct quantize_scale *scale, enum page_element element,
    enum page_format format, struct checksum *sum)
{
    const kernel_pair zero = {0, 0};

    for (uint64_t w = 0; 2 * w < count; w++) {
        kernel_pair high = 2 * w + 1 < count ? src[2 * w + 1] : zero;
        kernel_pair codes = codes_pack(src[2 * w], high, scale, element, format);

        dst[w] = codes;
        checksum_add(sum, codes, checksum_key(at + w));
    }
}

/* Quad number `quad` of a page. */
KERNEL_FUNCTION void quad_quantize(const struct page_move *move, uint64_t page_bytes, uint64_t quad,
    enum page_element element, enum page_format format, struct checksum *sum)
{
    const kernel_pair *src = KERNEL_PTR(const kernel_pair, move->src);
    kernel_pair *dst = KERNEL_PTR(kernel_pair, move->dst);
    const uint64_t words = page_bytes / sizeof(kernel_pair);
    uint64_t scales_low = 0, scales_high = 0;

    for (uint64_t b = 0; b < QUANTIZE_QUAD_BLOCKS; b++) {
        uint64_t first = (quad * QUANTIZE_QUAD_BLOCKS + b) * QUANTIZE_BLOCK_WORDS;
        uint64_t at = quantized_scale_words(page_bytes) + first / 2;
        struct quantize_scale scale;
        uint64_t count, bits;

        if (first >= words)
            break;
        count = words - first < QUANTIZE_BLOCK_WORDS ? words - first : QUANTIZE_BLOCK_WORDS;
        scale = quantize_scale(words_top(src + first, count, element), element, format);
        bits = kernel_bits(scale.scale);
        if (b < 2)
            scales_low |= bits << (32 * b);
        else
            scales_high |= bits << (32 * (b - 2));
        block_quantize(dst + at, src + first, count, at, &scale, element, format, sum);
    }

    const kernel_pair scales = {scales_low, scales_high};

    dst[quad] = scales;
    checksum_add(sum, scales, checksum_key(quad));
}

KERNEL_FUNCTION void pages_quantize(const struct kernel_index *index,
    const struct page_batch *batch, enum page_element element, enum page_format format)
{
    KERNEL_UNITS(u, index, page_units(batch->count, batch->page_bytes))
    {
        const struct page_unit unit = page_unit(u, batch->page_bytes, QUANTIZE_QUAD_BYTES);
        const struct page_move move = page_move(batch, unit.page);
        struct checksum sum = {0};

        KERNEL_LANES(i, index, unit.count)
        quad_quantize(&move, batch->page_bytes, unit.first + i, element, format, &sum);
        checksum_join(batch->checksums, unit.page, &sum);
    }
}

KERNEL(page_quantize)
{
    const struct page_batch *batch = &args->batch;

    if (args->element == PAGE_ELEMENT_FP16 && args->format == PAGE_FORMAT_INT8)
        pages_quantize(index, batch, PAGE_ELEMENT_FP16, PAGE_FORMAT_INT8);
    else if (args->element == PAGE_ELEMENT_FP16 && args->format == PAGE_FORMAT_FP8)
        pages_quantize(index, batch, PAGE_ELEMENT_FP16, PAGE_FORMAT_FP8);
    else if (args->element == PAGE_ELEMENT_BF16 && args->format == PAGE_FORMAT_INT8)
        pages_quantize(index, batch, PAGE_ELEMENT_BF16, PAGE_FORMAT_INT8);
    else if (args->element == PAGE_ELEMENT_BF16 && args->format == PAGE_FORMAT_FP8)
        pages_quantize(index, batch, PAGE_ELEMENT_BF16, PAGE_FORMAT_FP8);
}
