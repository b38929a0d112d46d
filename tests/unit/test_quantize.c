/*
 * Quantized pages against the statement in quantize.h, worked out in double precision from the
 * definitions of the formats; both sides of each kernel. Every bit pattern of both element types
 * goes through: in order, shuffled so that blocks mix all magnitudes, and in blocks of its own.
 */
#include "kernels/quantize.h"
#include "kernels/quantize_code.h"
#include "tests/unit/kernel_sides.h"

#include <math.h>

#define PATTERNS 65536u
#define GUARD 0xa5

static const struct mode {
    enum page_element element;
    enum page_format format;
} modes[] = {
    {PAGE_ELEMENT_FP16, PAGE_FORMAT_INT8},
    {PAGE_ELEMENT_FP16, PAGE_FORMAT_FP8},
    {PAGE_ELEMENT_BF16, PAGE_FORMAT_INT8},
    {PAGE_ELEMENT_BF16, PAGE_FORMAT_FP8},
};

/* ---- the formats, from their definitions ---- */

/* What `bits` stands for, with this many fraction and exponent bits and infinity on top. */
static double reference_decode(unsigned bits, int fraction_bits, int exponent_bits)
{
    int bias = (1 << (exponent_bits - 1)) - 1;
    unsigned magnitude = bits & ((1u << (fraction_bits + exponent_bits)) - 1);
    int exponent = (int) (magnitude >> fraction_bits);
    double fraction = magnitude & ((1u << fraction_bits) - 1);
    double value;

    if (exponent == (1 << exponent_bits) - 1)
        value = fraction > 0 ? (double) NAN : (double) INFINITY;
    else if (exponent == 0)
        value = ldexp(fraction, 1 - bias - fraction_bits);
    else
        value = ldexp(ldexp(1, fraction_bits) + fraction, exponent - bias - fraction_bits);
    return magnitude != bits ? -value : value;
}

static double element_value(uint16_t bits, enum page_element element)
{
    return element == PAGE_ELEMENT_FP16 ? reference_decode(bits, 10, 5)
                                        : reference_decode(bits, 7, 8);
}

/* Where e4m3 differs: the topmost exponent is a number like others, but for its last code. */
static double code_value(uint8_t code, enum page_format format)
{
    double magnitude;

    if (format == PAGE_FORMAT_INT8)
        return code == 0x80 ? (double) NAN : (int8_t) code;
    magnitude = (code & 0x7f) == 0x7f   ? (double) NAN
                : (code & 0x78) == 0x78 ? (8 + (code & 7)) * 32
                                        : reference_decode(code & 0x7f, 3, 4);
    return code & 0x80 ? -magnitude : magnitude;
}

/* `value` rounded to nearest even with this many fraction bits, the last place never below that of
 * 2^exponent_min; infinity from where rounding would pass `largest`. */
static double reference_round(double value, int fraction_bits, int exponent_min, double largest)
{
    int exponent = value == 0 || !isfinite(value) ? exponent_min : ilogb(value);
    double place = ldexp(1, (exponent < exponent_min ? exponent_min : exponent) - fraction_bits);
    double rounded = isfinite(value) ? nearbyint(value / place) * place : value;

    return fabs(rounded) > largest ? copysign((double) INFINITY, value) : rounded;
}

static double element_round(double value, enum page_element element)
{
    return element == PAGE_ELEMENT_FP16 ? reference_round(value, 10, -14, 65504)
                                        : reference_round(value, 7, -126, 0x1.fep127);
}

static bool is_nan(double value)
{
    return isnan(value) != 0;
}

static bool same(double a, double b)
{
    return (is_nan(a) && is_nan(b)) || (a == b && signbit(a) == signbit(b));
}

/* ---- conversions ---- */

START_TEST(test_every_pattern_is_read_and_written_as_the_formats_define)
{
    for (unsigned i = 0; i < PATTERNS; i++) {
        uint16_t bits = (uint16_t) i;

        for (enum page_element e = PAGE_ELEMENT_FP16; e < PAGE_ELEMENT_MAX; e++) {
            float value = element_to_float(bits, e);

            assert_each(same((double) value, element_value(bits, e)));
            if (!is_nan((double) value))
                assert_each(element_from_float(value, e) == bits);
            else
                assert_each(is_nan(element_value(element_from_float(value, e), e)));
        }
    }
    for (unsigned code = 0; code < 256; code++)
        assert_each(same(
            (double) float_from_e4m3((uint8_t) code), code_value((uint8_t) code, PAGE_FORMAT_FP8)));
}
END_TEST

/* Floats by their bits, with all ties of fp16 and bf16 among them and their neighbours. */
START_TEST(test_floats_are_rounded_to_nearest_even)
{
    for (uint64_t high = 0; high < PATTERNS; high++)
        for (unsigned low = 0; low < 13; low++) {
            static const uint32_t lows[] = {0, 1, 0xfff, 0x1000, 0x1001, 0x2fff, 0x3000, 0x3001,
                0x7fff, 0x8000, 0x8001, 0xf000, 0xffff};
            float value = kernel_float((uint32_t) high << 16 | lows[low]);

            for (enum page_element e = PAGE_ELEMENT_FP16; e < PAGE_ELEMENT_MAX; e++)
                assert_each(same(element_value(element_from_float(value, e), e),
                    element_round((double) value, e)));
        }
    /* The subnormals of fp16, their ties included: eighths of 2^-24. */
    for (int i = 0; i < 1024 * 8; i++)
        assert_each(same(element_value(fp16_from_float((float) ldexp(i, -27)), PAGE_ELEMENT_FP16),
            element_round(ldexp(i, -27), PAGE_ELEMENT_FP16)));
}
END_TEST

START_TEST(test_fp8_is_rounded_to_nearest_even_and_saturates)
{
    for (int i = 0; i <= 448 * 16 * 64; i++) { /* sixteenths of the smallest step */
        double value = ldexp(i, -13);
        double want = reference_round(value, 3, -6, 1e9);
        double got = code_value((uint8_t) e4m3_from_magnitude((float) value), PAGE_FORMAT_FP8);

        assert_each(same(got, want > 448 ? 448 : want));
    }
    ck_assert_uint_eq(e4m3_from_magnitude(464), 0x7e);
    ck_assert_uint_eq(e4m3_from_magnitude(512), 0x7e);
    ck_assert_uint_eq(e4m3_from_magnitude(3e38f), 0x7e);
    ck_assert_uint_eq(e4m3_from_magnitude(kernel_float(FLOAT_INFINITY)), 0x7e);
}
END_TEST

/* ---- a page there and back ---- */

struct trip {
    uint64_t page_bytes, elements;
    struct mode mode;
    uint16_t *page, *back;
    unsigned char *quantized;
    uint64_t checksum, checksum_back;
};

static void *guarded_new(uint64_t bytes)
{
    unsigned char *memory = aligned_alloc(16, bytes + 16);

    ck_assert_ptr_nonnull(memory);
    memset(memory, GUARD, bytes + 16);
    return memory;
}

static void assert_guard(const void *memory, uint64_t bytes)
{
    for (unsigned i = 0; i < 16; i++)
        assert_each(((const unsigned char *) memory)[bytes + i] == GUARD);
}

static struct trip trip_new(uint64_t page_bytes, struct mode mode)
{
    struct trip trip = {.page_bytes = page_bytes, .elements = page_bytes / 2, .mode = mode};

    trip.page = guarded_new(page_bytes);
    trip.back = guarded_new(page_bytes);
    trip.quantized = guarded_new(quantized_bytes(page_bytes));
    return trip;
}

static void trip_free(struct trip *trip)
{
    free(trip->page);
    free(trip->back);
    free(trip->quantized);
}

static void trip_run(struct trip *trip, enum side side, const struct shape *shape)
{
    const struct page_move there = {(uintptr_t) trip->page, (uintptr_t) trip->quantized};
    const struct page_move back = {(uintptr_t) trip->quantized, (uintptr_t) trip->back};
    struct page_quantize_args quantize = {
        {(uintptr_t) &there, 1, trip->page_bytes, (uintptr_t) &trip->checksum}, trip->mode.element,
        trip->mode.format};
    struct page_dequantize_args dequantize = {
        {(uintptr_t) &back, 1, trip->page_bytes, (uintptr_t) &trip->checksum_back},
        trip->mode.element, trip->mode.format};

    trip->checksum = trip->checksum_back = 0;
    side_run(side, "page_quantize", shape, &quantize);
    side_run(side, "page_dequantize", shape, &dequantize);
}

static double largest_finite(enum page_element element)
{
    return element == PAGE_ELEMENT_FP16 ? 65504 : 0x1.fep127;
}

/* The m of quantize.h, and the scale that it gives. */
static double block_top(const struct trip *trip, uint64_t block, double *ret_scale)
{
    double limit = trip->mode.format == PAGE_FORMAT_INT8 ? 127 : 448;
    double top = 0;

    for (uint64_t i = block * 64; i < block * 64 + 64 && i < trip->elements; i++) {
        double magnitude = fabs(element_value(trip->page[i], trip->mode.element));

        if (isfinite(magnitude) && magnitude > top)
            top = magnitude;
    }
    if (top == 0)
        top = largest_finite(trip->mode.element);
    *ret_scale = fmax(top / limit, 0x1p-100);
    return top;
}

/* How far `got` may be from `x`, by the table and by the rounding to the element type. */
static double error_bound(const struct trip *trip, double x, double scale)
{
    double step = trip->mode.element == PAGE_ELEMENT_FP16 ? 0x1p-11 : 0x1p-8;
    double least = trip->mode.element == PAGE_ELEMENT_FP16 ? 0x1p-25 : 0x1p-134;
    double error =
        trip->mode.format == PAGE_FORMAT_INT8 ? scale / 2 : fmax(fabs(x) / 16, scale / 1024);

    error *= 1.001;
    return error + fmax((fabs(x) + error) * step, least);
}

static void assert_element(const struct trip *trip, uint64_t i, double top, double scale)
{
    double x = element_value(trip->page[i], trip->mode.element);
    double got = element_value(trip->back[i], trip->mode.element);

    if (is_nan(x)) {
        assert_each(is_nan(got));
        return;
    }
    assert_each(!is_nan(got));
    if (isinf(x))
        x = copysign(top, x);
    if (x == 0)
        assert_each(same(got, trip->mode.format == PAGE_FORMAT_FP8 ? x : 0.0));
    else if (fabs(x) == top && scale > 0x1p-100)
        assert_each(same(got, x));
    else
        assert_each(fabs(got - x) <= error_bound(trip, x, scale));
}

/* Everything that quantize.h says of one page. */
static void assert_trip(const struct trip *trip)
{
    const uint64_t bytes = quantized_bytes(trip->page_bytes);
    const uint64_t blocks = (trip->elements + 63) / 64;
    const uint64_t codes = (blocks + 3) / 4 * 16;

    for (uint64_t b = 0; b < blocks; b++) {
        double want, top = block_top(trip, b, &want);
        float scale;

        memcpy(&scale, trip->quantized + 4 * b, sizeof(scale));
        assert_each(fabs((double) scale - want) <= want * 0x1p-24);
        for (uint64_t i = b * 64; i < b * 64 + 64 && i < trip->elements; i++) {
            double code = code_value(trip->quantized[codes + i], trip->mode.format);

            assert_element(trip, i, top, want);
            assert_each(same(element_value(trip->back[i], trip->mode.element),
                element_round((double) (float) (code * (double) scale), trip->mode.element)));
        }
    }
    for (uint64_t i = 4 * blocks; i < codes; i++)
        assert_each(trip->quantized[i] == 0);
    for (uint64_t i = codes + trip->elements; i < bytes; i++)
        assert_each(trip->quantized[i] == 0);
    ck_assert_uint_eq(trip->checksum, reference_checksum(trip->quantized, bytes));
    ck_assert_uint_eq(trip->checksum_back, trip->checksum);
    assert_guard(trip->quantized, bytes);
    assert_guard(trip->back, trip->page_bytes);
}

/* Runs the CPU's side, checks it, and compares the GPU's with it byte for byte. */
static void check_both_sides(struct trip *trip, const struct shape *shape)
{
    uint64_t bytes = quantized_bytes(trip->page_bytes);
    unsigned char *quantized = guarded_new(bytes);
    uint16_t *back = guarded_new(trip->page_bytes);

    trip_run(trip, SIDE_CPU, shape);
    assert_trip(trip);
    memcpy(quantized, trip->quantized, bytes);
    memcpy(back, trip->back, trip->page_bytes);
    memset(trip->quantized, GUARD, bytes);
    memset(trip->back, GUARD, trip->page_bytes);
    trip_run(trip, SIDE_GPU, shape);
    ck_assert_int_eq(memcmp(trip->quantized, quantized, bytes), 0);
    ck_assert_int_eq(memcmp(trip->back, back, trip->page_bytes), 0);
    ck_assert_uint_eq(trip->checksum, trip->checksum_back);
    assert_guard(trip->quantized, bytes);
    assert_guard(trip->back, trip->page_bytes);
    free(quantized);
    free(back);
}

START_TEST(test_every_pattern_keeps_the_bound_in_any_company)
{
    /* i × odd mod 2^16 visits all patterns: neighbours, all magnitudes mixed, strides between. */
    static const unsigned strides[] = {1, 40503, 4097};

    for (size_t m = 0; m < ARRAY_SIZE(modes); m++)
        for (size_t s = 0; s < ARRAY_SIZE(strides); s++) {
            struct trip trip = trip_new(2 * PATTERNS, modes[m]);

            for (unsigned i = 0; i < PATTERNS; i++)
                trip.page[i] = (uint16_t) (i * strides[s]);
            check_both_sides(&trip, &shapes[2]);
            trip_free(&trip);
        }
}
END_TEST

START_TEST(test_equal_elements_come_back_as_they_were)
{
    for (size_t m = 0; m < ARRAY_SIZE(modes); m++) {
        struct trip trip = trip_new(128 * 1024, modes[m]);
        uint64_t blocks = trip.elements / 64;

        for (unsigned first = 0; first < PATTERNS; first += (unsigned) blocks) {
            for (uint64_t i = 0; i < trip.elements; i++)
                trip.page[i] = (uint16_t) (first + i / 64);
            trip_run(&trip, SIDE_CPU, &shapes[0]);
            for (uint64_t b = 0; b < blocks; b++) {
                double scale, top = block_top(&trip, b, &scale);

                assert_element(&trip, 64 * b, top, scale);
                for (uint64_t i = 1; i < 64; i++)
                    assert_each(trip.back[64 * b + i] == trip.back[64 * b]);
            }
        }
        trip_free(&trip);
    }
}
END_TEST

START_TEST(test_pages_of_any_size_have_the_stated_layout)
{
    static const uint64_t sizes[] = {16, 32, 48, 112, 128, 144, 496, 512, 528, 4096, 65536 + 16};
    uint64_t state = 1;

    for (size_t b = 0; b < ARRAY_SIZE(sizes); b++)
        for (size_t m = 0; m < ARRAY_SIZE(modes); m++)
            for (size_t s = 0; s < ARRAY_SIZE(shapes); s++) {
                struct trip trip = trip_new(sizes[b], modes[m]);

                for (uint64_t i = 0; i < trip.elements;
                     i++) { /* any pattern, as xorshift64 has it */
                    state ^= state << 13;
                    state ^= state >> 7;
                    state ^= state << 17;
                    trip.page[i] = (uint16_t) (state >> 40);
                }
                check_both_sides(&trip, &shapes[s]);
                trip_free(&trip);
            }
}
END_TEST

START_TEST(test_sizes_are_the_stated_ones)
{
    ck_assert_uint_eq(quantized_bytes(16), 16 + 16);
    ck_assert_uint_eq(quantized_bytes(48), 16 + 32);
    ck_assert_uint_eq(quantized_bytes(512), 16 + 256);
    ck_assert_uint_eq(quantized_bytes(528), 32 + 272);
    ck_assert_uint_eq(quantized_bytes(65536), 2048 + 32768);
    ck_assert_uint_eq(
        quantized_bytes(UINT64_C(1) << 63), (UINT64_C(1) << 58) + (UINT64_C(1) << 62));
}
END_TEST

/* ---- single blocks whose codes are worked out by hand ---- */

static void assert_codes(
    struct mode mode, const uint16_t elements[8], float scale, const uint8_t codes[8])
{
    for (enum side side = 0; side < SIDE_MAX; side++) {
        struct trip trip = trip_new(16, mode);
        float got;

        memcpy(trip.page, elements, 16);
        trip_run(&trip, side, &shapes[0]);
        memcpy(&got, trip.quantized, sizeof(got));
        assert_each(same((double) got, (double) scale));
        ck_assert_int_eq(memcmp(trip.quantized + 16, codes, 8), 0);
        trip_free(&trip);
    }
}

START_TEST(test_int8_rounds_ties_to_even_and_spares_a_code_for_nan)
{
    /* 127, 0.5, 1.5, 2.5, -2.5, NaN, -infinity, -0 */
    static const uint16_t fp16[8] = {
        0x57f0, 0x3800, 0x3e00, 0x4100, 0xc100, 0x7e00, 0xfc00, 0x8000};
    static const uint16_t bf16[8] = {
        0x42fe, 0x3f00, 0x3fc0, 0x4020, 0xc020, 0xffc0, 0xff80, 0x8000};
    static const uint8_t codes[8] = {127, 0, 2, 2, 0xfe, 0x80, 0x81, 0};

    assert_codes(modes[0], fp16, 1, codes);
    assert_codes(modes[2], bf16, 1, codes);
}
END_TEST

START_TEST(test_fp8_rounds_ties_to_even_and_keeps_nan_and_signs)
{
    /* 448, 17 (between 16 and 18), 19 (between 18 and 20), 2^-10, -2^-9, -NaN, infinity, -0 */
    static const uint16_t fp16[8] = {
        0x5f00, 0x4c40, 0x4cc0, 0x1400, 0x9800, 0xfe01, 0x7c00, 0x8000};
    static const uint8_t codes[8] = {0x7e, 0x58, 0x5a, 0, 0x81, 0xff, 0x7e, 0x80};

    assert_codes(modes[1], fp16, 1, codes);
}
END_TEST

START_TEST(test_blocks_without_a_number_have_the_scale_of_the_largest)
{
    static const uint16_t fp16[8] = {0, 0x8000, 0x7c00, 0xfc00, 0x7c01, 0, 0, 0};
    static const uint8_t int8[8] = {0, 0, 127, 0x81, 0x80, 0, 0, 0};
    static const uint8_t fp8[8] = {0, 0x80, 0x7e, 0xfe, 0x7f, 0, 0, 0};
    static const uint16_t zeros[8] = {0};
    static const uint8_t no_codes[8] = {0};

    assert_codes(modes[0], fp16, 65504.0f / 127, int8);
    assert_codes(modes[1], fp16, 65504.0f / 448, fp8);
    assert_codes(modes[0], zeros, 65504.0f / 127, no_codes);
}
END_TEST

START_TEST(test_smallest_scale_makes_zero_of_what_is_below_it)
{
    /* bf16: 2^-100, 2^-101 (a tie), 1.5 × 2^-101, 2^-133 (the smallest), 127 × 2^-100, 0, 0, 0 */
    static const uint16_t bf16[8] = {0x0d80, 0x0d00, 0x0d40, 1, 0x10fe, 0, 0, 0};
    static const uint8_t codes[8] = {1, 0, 1, 0, 127, 0, 0, 0};

    assert_codes(modes[2], bf16, 0x1p-100f, codes);
}
END_TEST

START_TEST(test_unknown_element_or_format_touches_nothing)
{
    static const struct mode unknown[] = {
        {PAGE_ELEMENT_NONE, PAGE_FORMAT_INT8},
        {PAGE_ELEMENT_MAX, PAGE_FORMAT_INT8},
        {PAGE_ELEMENT_FP16, PAGE_FORMAT_RAW},
        {PAGE_ELEMENT_FP16, PAGE_FORMAT_MAX},
    };

    for (size_t i = 0; i < ARRAY_SIZE(unknown); i++)
        for (enum side side = 0; side < SIDE_MAX; side++) {
            struct trip trip = trip_new(512, unknown[i]);

            trip_run(&trip, side, &shapes[1]);
            ck_assert_uint_eq(trip.quantized[0], GUARD);
            ck_assert_int_eq(memcmp(trip.quantized, trip.quantized + 1, 271), 0);
            ck_assert_uint_eq(trip.checksum, 0);
            trip_free(&trip);
        }
}
END_TEST

START_TEST(test_names_are_those_of_the_configuration)
{
    ck_assert_str_eq(page_element_name(PAGE_ELEMENT_FP16), "fp16");
    ck_assert_str_eq(page_element_name(PAGE_ELEMENT_BF16), "bf16");
    ck_assert_str_eq(page_format_name(PAGE_FORMAT_INT8), "int8");
    ck_assert_str_eq(page_format_name(PAGE_FORMAT_FP8), "fp8");
    ck_assert_ptr_null(page_format_name(PAGE_FORMAT_MAX));
    ck_assert_ptr_null(page_element_name(PAGE_ELEMENT_MAX));
}
END_TEST

UNIT_MAIN("quantize", test_every_pattern_is_read_and_written_as_the_formats_define,
    test_floats_are_rounded_to_nearest_even, test_fp8_is_rounded_to_nearest_even_and_saturates,
    test_every_pattern_keeps_the_bound_in_any_company, test_equal_elements_come_back_as_they_were,
    test_pages_of_any_size_have_the_stated_layout, test_sizes_are_the_stated_ones,
    test_int8_rounds_ties_to_even_and_spares_a_code_for_nan,
    test_fp8_rounds_ties_to_even_and_keeps_nan_and_signs,
    test_blocks_without_a_number_have_the_scale_of_the_largest,
    test_smallest_scale_makes_zero_of_what_is_below_it,
    test_unknown_element_or_format_touches_nothing, test_names_are_those_of_the_configuration)
