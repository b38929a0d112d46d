/* What is chosen keeps the promises of sizing.h. */
#include "client/replay/sizing.h"

#include "base/clock.h"
#include "client/replay/generator.h"
#include "tests/unit/unit.h"

static const struct sizing_wish plain = {
    .kv_bytes_per_token = 131072,
    .prefill_rate = 20000,
    .decode_rate = 40,
    .shape = {.tenants = 3, .workers = 6},
};

static void generate(uint64_t count, struct trace *ret)
{
    struct generator_params params = generator_defaults;
    struct trace_reader *reader;
    struct trace_error error;

    params.requests = count;
    ck_assert_int_eq(generator_new(&params, &reader), 0);
    ck_assert_int_eq(trace_load(reader, 0, ret, &error), 0);
    ck_assert_ptr_null(trace_close(reader));
}

START_TEST(test_a_large_trace_is_scaled_to_a_small_device_and_a_minute)
{
    struct sizing sizing;
    struct trace trace;

    generate(20000, &trace);
    ck_assert_int_eq(sizing_choose(&trace, &plain, &sizing), 0);
    ck_assert_uint_gt(sizing.model.scale, 1);
    ck_assert_uint_eq(sizing.model.scale & (sizing.model.scale - 1), 0);
    ck_assert_uint_le(sizing.device_bytes, UINT64_C(512) << 20);
    ck_assert_double_le((double) (sizing.peaks.work_chunks * sizing.model.chunk_bytes),
        (double) (UINT64_C(300) << 20) * (double) sizing.peaks.service_ns / sizing.speed / 1e9);
    ck_assert_double_le((double) sizing.peaks.service_ns / sizing.speed, 55e9);
    ck_assert_double_ge((double) sizing.peaks.service_ns / sizing.speed, 50e9);
    /* 128 tokens of 128 KiB are 16 MiB. */
    ck_assert_uint_eq(sizing.model.chunk_bytes * sizing.model.scale, UINT64_C(16) << 20);
    ck_assert_uint_eq(sizing.model.chunk_bytes % sizing.granularity_bytes, 0);
    sizing_free(&sizing);
    trace_free(&trace);
}
END_TEST

START_TEST(test_nothing_that_could_ever_fit_is_beyond_the_limits)
{
    struct sizing sizing;
    struct trace trace;

    for (uint64_t count = 1; count <= 512; count *= 2) {
        generate(count, &trace);
        ck_assert_int_eq(sizing_choose(&trace, &plain, &sizing), 0);
        ck_assert_uint_ge(sizing.memory_max_bytes, sizing.peaks.largest_bytes);
        ck_assert_uint_le(sizing.memory_max_bytes, sizing.device_bytes);
        ck_assert_uint_ge(
            sizing.device_bytes - 2 * sizing.memory_min_bytes, sizing.peaks.largest_bytes);
        ck_assert_uint_le(sizing.device_bytes, sizing.peaks.pooled_bytes);
        ck_assert_uint_eq(sizing.device_bytes % sizing.model.chunk_bytes, 0);
        sizing_free(&sizing);
        trace_free(&trace);
    }
}
END_TEST

START_TEST(test_a_load_is_the_need_in_parts_of_the_device)
{
    struct sizing_wish wish = plain;
    struct sizing sizing;
    struct trace trace;

    generate(2000, &trace);
    for (wish.load_percent = 100; wish.load_percent <= 130; wish.load_percent += 30) {
        uint64_t chunk;

        ck_assert_int_eq(sizing_choose(&trace, &wish, &sizing), 0);
        chunk = sizing.model.chunk_bytes;
        ck_assert_uint_le(sizing.device_bytes * wish.load_percent, sizing.peaks.pooled_bytes * 100);
        ck_assert_uint_gt(
            (sizing.device_bytes + chunk) * wish.load_percent, sizing.peaks.pooled_bytes * 100);
        sizing_free(&sizing);
    }
    /* Never less than the largest request. */
    wish.load_percent = 1000000;
    ck_assert_int_eq(sizing_choose(&trace, &wish, &sizing), 0);
    ck_assert_uint_eq(sizing.device_bytes, sizing.peaks.largest_bytes);
    sizing_free(&sizing);
    trace_free(&trace);
}
END_TEST

START_TEST(test_weights_go_on_top_of_what_is_chosen_for_kv)
{
    struct sizing_wish wish = plain;
    struct sizing without, with;
    struct trace trace;
    uint64_t scaled;

    generate(2000, &trace);
    ck_assert_int_eq(sizing_choose(&trace, &wish, &without), 0);
    wish.weights_bytes = (UINT64_C(16) << 30) + 1;
    ck_assert_int_eq(sizing_choose(&trace, &wish, &with), 0);
    ck_assert_uint_eq(with.model.scale, without.model.scale);
    scaled = with.weights_bytes;
    ck_assert_uint_eq(scaled % with.granularity_bytes, 0);
    ck_assert_uint_ge(scaled, wish.weights_bytes / with.model.scale);
    ck_assert_uint_lt(scaled, wish.weights_bytes / with.model.scale + with.granularity_bytes);
    ck_assert_uint_eq(with.device_bytes, without.device_bytes + wish.shape.tenants * scaled);
    ck_assert_uint_eq(with.memory_min_bytes, without.memory_min_bytes + scaled);
    ck_assert_uint_eq(with.memory_max_bytes, without.memory_max_bytes + scaled);
    /* A mover that works beside it. */
    ck_assert_uint_gt(with.reserve_bytes, 0);
    sizing_free(&without);
    sizing_free(&with);
    trace_free(&trace);
}
END_TEST

START_TEST(test_what_is_asked_for_is_kept)
{
    struct sizing_wish wish = plain;
    struct sizing sizing;
    struct trace trace;

    wish.scale = 48;
    wish.speed = 0.5;
    wish.device_bytes = UINT64_C(100) << 20;
    generate(100, &trace);
    ck_assert_int_eq(sizing_choose(&trace, &wish, &sizing), 0);
    ck_assert_uint_eq(sizing.model.scale, 48);
    ck_assert_double_eq(sizing.speed, 0.5);
    ck_assert_uint_eq(sizing.device_bytes, UINT64_C(100) << 20);
    sizing_free(&sizing);

    /* A device that is there has its own granularity and size. */
    wish = plain;
    wish.granularity_bytes = UINT64_C(2) << 20;
    wish.capacity_bytes = UINT64_C(1) << 30;
    ck_assert_int_eq(sizing_choose(&trace, &wish, &sizing), 0);
    ck_assert_uint_eq(sizing.device_bytes, UINT64_C(1) << 30);
    ck_assert_uint_eq(sizing.model.chunk_bytes % (UINT64_C(2) << 20), 0);
    sizing_free(&sizing);
    trace_free(&trace);
}
END_TEST

UNIT_MAIN("replay_sizing", test_a_large_trace_is_scaled_to_a_small_device_and_a_minute,
    test_nothing_that_could_ever_fit_is_beyond_the_limits,
    test_weights_go_on_top_of_what_is_chosen_for_kv, test_what_is_asked_for_is_kept,
    test_a_load_is_the_need_in_parts_of_the_device)
