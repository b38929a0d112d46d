/*
 * Conversions between the number formats of KV pages, in integer and float arithmetic that every
 * machine rounds alike: round to nearest, ties to even. Branch-free, for vector units.
 *
 *                  sign exponent fraction  bias  largest   infinity  NaN
 *   fp16           1    5        10        15    65504     0x7c00    above it
 *   bf16           1    8        7         127   3.39e38   0x7f80    above it
 *   fp8 e4m3       1    4        3         7     448       none      0x7f
 *
 * fp16 is IEEE 754 binary16; fp8 is OFP8 (Open Compute Project, 2023), what GPUs call e4m3fn. No
 * float that is subnormal decides a result here but those that bf16 itself has: a machine that
 * flushes them to zero agrees otherwise.
 */
#pragma once

#include "kernels/kernel.h"

#define FLOAT_INFINITY UINT32_C(0x7f800000)
#define FLOAT_NAN UINT32_C(0x7fc00000)
#define FLOAT_EXPONENT(e) ((uint32_t) (127 + (e)) << 23) /* bits of 2^e */

KERNEL_FUNCTION float float_from_bf16(uint16_t bits)
{
    return kernel_float((uint32_t) bits << 16);
}

KERNEL_FUNCTION uint16_t bf16_from_float(float value)
{
    uint32_t bits = kernel_bits(value);
    uint32_t rounded = bits + 0x7fff + (bits >> 16 & 1);

    /* A NaN stays one: rounding could carry it into the sign, cutting could make it infinity. */
    return (uint16_t) (((bits & 0x7fffffff) > FLOAT_INFINITY ? bits | 0x400000 : rounded) >> 16);
}

KERNEL_FUNCTION float float_from_fp16(uint16_t bits)
{
    uint32_t sign = (uint32_t) (bits & 0x8000) << 16;
    uint32_t magnitude = (uint32_t) (bits & 0x7fff) << 13;
    uint32_t normal = magnitude + ((127 - 15) << 23);
    uint32_t special = magnitude + ((255 - 31) << 23);
    /* A subnormal is its fraction in units of 2^-24: below 2^-14 it is what 2^-14 lacks. */
    float subnormal =
        kernel_float(magnitude + FLOAT_EXPONENT(-14)) - kernel_float(FLOAT_EXPONENT(-14));
    uint32_t finite = magnitude < (UINT32_C(1) << 23) ? kernel_bits(subnormal) : normal;

    return kernel_float(sign | (magnitude >= (UINT32_C(31) << 23) ? special : finite));
}

/* What is too large becomes infinity, as IEEE 754 has it. */
KERNEL_FUNCTION uint16_t fp16_from_float(float value)
{
    uint32_t bits = kernel_bits(value) & 0x7fffffff;
    uint32_t sign = kernel_bits(value) >> 16 & 0x8000;
    uint32_t special = bits > FLOAT_INFINITY ? 0x7e00 : 0x7c00;
    /* 0.5 has its last fraction bit at 2^-24, where the subnormals of fp16 have theirs: the sum is
     * rounded there. */
    uint32_t subnormal =
        kernel_bits(kernel_float(bits) + kernel_float(FLOAT_EXPONENT(-1))) - FLOAT_EXPONENT(-1);
    uint32_t normal = (bits - ((127 - 15) << 23) + 0xfff + (bits >> 13 & 1)) >> 13;
    uint32_t finite = bits < FLOAT_EXPONENT(-14) ? subnormal : normal;

    return (uint16_t) (sign | (bits >= FLOAT_EXPONENT(16) ? special : finite));
}

/* The code of a magnitude: `value` is >= 0 and no NaN; above 448 it is 448. */
KERNEL_FUNCTION uint32_t e4m3_from_magnitude(float value)
{
    uint32_t bits = kernel_bits(value);
    /* As above, with the last place of the subnormals at 2^-9. */
    uint32_t subnormal = kernel_bits(value + kernel_float(FLOAT_EXPONENT(14))) - FLOAT_EXPONENT(14);
    uint32_t normal = (bits - ((127 - 7) << 23) + 0x7ffff + (bits >> 20 & 1)) >> 20;
    uint32_t code = bits < FLOAT_EXPONENT(-6) ? subnormal : normal;

    return bits > FLOAT_EXPONENT(9) || code > 0x7e ? 0x7e : code;
}

KERNEL_FUNCTION float float_from_e4m3(uint8_t code)
{
    uint32_t sign = (uint32_t) (code & 0x80) << 24;
    uint32_t magnitude = code & 0x7f;
    uint32_t normal = (magnitude << 20) + ((127 - 7) << 23);
    float subnormal = (float) (int32_t) magnitude * kernel_float(FLOAT_EXPONENT(-9));
    uint32_t finite = magnitude < 8 ? kernel_bits(subnormal) : normal;

    return kernel_float(sign | (magnitude == 0x7f ? FLOAT_NAN : finite));
}
