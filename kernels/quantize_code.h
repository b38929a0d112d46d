/*
 * The arithmetic of quantize.h for one block: scales, codes and the sixteen elements that a word of
 * codes stands for. `element` and `format` are constants wherever these are called, so that the
 * compiler makes straight code for each of the four pairs.
 */
#pragma once

#include "kernels/float16.h"
#include "kernels/quantize.h"

#ifndef KERNEL_GPU
#include <string.h>
#endif

#define QUANTIZE_SCALE_MIN FLOAT_EXPONENT(-100)
#define INT8_NAN (-128)
#define INT8_LIMIT 127.0f
#define E4M3_NAN 0x7fu
#define E4M3_LIMIT 448.0f

/* The eight elements of a word, and back. */
KERNEL_FUNCTION void elements_from_word(uint16_t elements[8], kernel_pair word)
{
#ifdef KERNEL_GPU
    KERNEL_UNROLL
    for (int i = 0; i < 8; i++)
        elements[i] = (uint16_t) (word[i / 4] >> (16 * (i % 4)));
#else
    memcpy(elements, &word, sizeof(word));
#endif
}

KERNEL_FUNCTION kernel_pair word_from_elements(const uint16_t elements[8])
{
#ifdef KERNEL_GPU
    uint64_t low = 0, high = 0;

    KERNEL_UNROLL
    for (int i = 0; i < 4; i++) {
        low |= (uint64_t) elements[i] << (16 * i);
        high |= (uint64_t) elements[4 + i] << (16 * i);
    }

    kernel_pair word = {low, high};
#else
    kernel_pair word;

    memcpy(&word, elements, sizeof(word));
#endif
    return word;
}

KERNEL_FUNCTION void codes_from_word(uint8_t codes[16], kernel_pair word)
{
#ifdef KERNEL_GPU
    KERNEL_UNROLL
    for (int i = 0; i < 16; i++)
        codes[i] = (uint8_t) (word[i / 8] >> (8 * (i % 8)));
#else
    memcpy(codes, &word, sizeof(word));
#endif
}

KERNEL_FUNCTION kernel_pair word_from_codes(const uint8_t codes[16])
{
#ifdef KERNEL_GPU
    uint64_t low = 0, high = 0;

    KERNEL_UNROLL
    for (int i = 0; i < 8; i++) {
        low |= (uint64_t) codes[i] << (8 * i);
        high |= (uint64_t) codes[8 + i] << (8 * i);
    }

    kernel_pair word = {low, high};
#else
    kernel_pair word;

    memcpy(&word, codes, sizeof(word));
#endif
    return word;
}

KERNEL_FUNCTION uint16_t element_infinity(enum page_element element)
{
    return element == PAGE_ELEMENT_BF16 ? 0x7f80 : 0x7c00;
}

KERNEL_FUNCTION float element_to_float(uint16_t bits, enum page_element element)
{
    return element == PAGE_ELEMENT_BF16 ? float_from_bf16(bits) : float_from_fp16(bits);
}

KERNEL_FUNCTION uint16_t element_from_float(float value, enum page_element element)
{
    return element == PAGE_ELEMENT_BF16 ? bf16_from_float(value) : fp16_from_float(value);
}

KERNEL_FUNCTION float format_limit(enum page_format format)
{
    return format == PAGE_FORMAT_FP8 ? E4M3_LIMIT : INT8_LIMIT;
}

/* Of a block: bits of its largest finite magnitude, its scale, and what elements are multiplied
 * with. */
struct quantize_scale {
    uint16_t top;
    float scale;
    float inverse;
};

/* The largest finite magnitude of `count` words; 0 when there is none but zero. */
KERNEL_FUNCTION uint16_t words_top(
    const kernel_pair *src, uint64_t count, enum page_element element)
{
    int16_t tops[8] = {0}, top = 0;
    const int16_t infinity = (int16_t) element_infinity(element);

    for (uint64_t w = 0; w < count; w++) {
        uint16_t elements[8];

        elements_from_word(elements, src[w]);
        KERNEL_UNROLL
        for (int i = 0; i < 8; i++) {
            int16_t magnitude = (int16_t) (elements[i] & 0x7fff);

            /* Signed: 16-bit vectors have no other comparison on every machine. */
            magnitude = magnitude < infinity ? magnitude : (int16_t) 0;
            tops[i] = magnitude > tops[i] ? magnitude : tops[i];
        }
    }
    KERNEL_UNROLL
    for (int i = 0; i < 8; i++)
        top = tops[i] > top ? tops[i] : top;
    return (uint16_t) top;
}

KERNEL_FUNCTION struct quantize_scale quantize_scale(
    uint16_t top, enum page_element element, enum page_format format)
{
    struct quantize_scale result;
    float limit = format_limit(format);
    float magnitude;

    if (top == 0)
        top = (uint16_t) (element_infinity(element) - 1);
    magnitude = element_to_float(top, element);
    result.top = top;
    result.scale = magnitude / limit;
    result.inverse = limit / magnitude;
    if (!(result.scale > kernel_float(QUANTIZE_SCALE_MIN))) {
        result.scale = kernel_float(QUANTIZE_SCALE_MIN);
        result.inverse = kernel_float(FLOAT_EXPONENT(100));
    }
    return result;
}

KERNEL_FUNCTION uint8_t code_from_element(uint16_t bits, const struct quantize_scale *scale,
    enum page_element element, enum page_format format)
{
    uint32_t magnitude = bits & 0x7fff;
    uint32_t nan = magnitude > element_infinity(element);
    uint32_t negative = bits >> 15;
    float scaled;

    /* Above the top there are infinity and NaN alone. */
    magnitude = magnitude < scale->top ? magnitude : scale->top;
    scaled = element_to_float((uint16_t) magnitude, element) * scale->inverse;
    if (format == PAGE_FORMAT_FP8)
        return (uint8_t) ((nan ? E4M3_NAN : e4m3_from_magnitude(scaled)) | negative << 7);

    /* 2^23 has its last place at 1: the sum is rounded there. */
    int32_t rounded =
        (int32_t) (kernel_bits(scaled + kernel_float(FLOAT_EXPONENT(23))) - FLOAT_EXPONENT(23));

    rounded = negative ? -rounded : rounded;
    return (uint8_t) (nan ? INT8_NAN : rounded);
}

KERNEL_FUNCTION uint16_t element_from_code(
    uint8_t code, float scale, enum page_element element, enum page_format format)
{
    float value;

    if (format == PAGE_FORMAT_FP8)
        return element_from_float(float_from_e4m3(code) * scale, element);
    value = (float) (int32_t) (int8_t) code * scale;
    value = (int8_t) code == INT8_NAN ? kernel_float(FLOAT_NAN) : value;
    return element_from_float(value, element);
}
