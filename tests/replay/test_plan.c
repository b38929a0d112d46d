/*
 * Timelines worked out by hand. The model: 10 bytes a token, chunks of 100 bytes, so 10 tokens a
 * chunk; prefill 1000 tokens/s, decode 10 tokens/s.
 */
#include "client/replay/plan.h"

#include <errno.h>

#include "base/clock.h"
#include "tests/unit/unit.h"

static const struct model model = {
    .kv_bytes_per_token = 10,
    .scale = 1,
    .chunk_bytes = 100,
    .prefill_rate = 1000,
    .decode_rate = 10,
};

static struct trace trace_of(struct trace_request *requests, size_t count)
{
    return (struct trace){.requests = requests, .count = count};
}

START_TEST(test_bytes_are_rounded_up_to_chunks)
{
    struct model scaled = model;

    ck_assert_uint_eq(model_chunks(&model, 0), 1);
    ck_assert_uint_eq(model_chunks(&model, 1), 1);
    ck_assert_uint_eq(model_chunks(&model, 10), 1);
    ck_assert_uint_eq(model_chunks(&model, 11), 2);
    ck_assert_uint_eq(model_tokens_past(&model, 1), 11);
    ck_assert_uint_eq(model_tokens_past(&model, 2), 21);
    /* 10/3 bytes a token: 30 tokens are 100 bytes, 31 are 104. */
    scaled.scale = 3;
    ck_assert_uint_eq(model_chunks(&scaled, 30), 1);
    ck_assert_uint_eq(model_chunks(&scaled, 31), 2);
    ck_assert_uint_eq(model_tokens_past(&scaled, 1), 31);
    /* 10/7: 70 tokens are 100 bytes. */
    scaled.scale = 7;
    ck_assert_uint_eq(model_chunks(&scaled, 70), 1);
    ck_assert_uint_eq(model_chunks(&scaled, 71), 2);
    ck_assert_uint_eq(model_tokens_past(&scaled, 1), 71);
}
END_TEST

START_TEST(test_the_largest_request_does_not_wrap)
{
    struct model huge = model;

    huge.kv_bytes_per_token = UINT64_MAX;
    ck_assert_uint_eq(model_chunks(&huge, 2 * TRACE_TOKENS_MAX), UINT64_MAX);
    huge.scale = UINT64_MAX;
    ck_assert_uint_eq(model_chunks(&huge, 2 * TRACE_TOKENS_MAX), 2000000);
}
END_TEST

START_TEST(test_one_request_takes_prompt_growth_and_end)
{
    /* 15 tokens of prompt: 2 chunks at 0. Prefill ends at 15 ms. The 6th token, at 15 + 500 ms, is
     * token 21 and needs a third chunk. The end: 15 + 1000 ms. */
    struct trace_request requests[] = {{.context_tokens = 15, .generated_tokens = 10}};
    const struct trace trace = trace_of(requests, 1);
    const struct plan_shape shape = {.tenants = 1, .workers = 1};
    struct plan_peaks peaks;

    ck_assert_int_eq(plan_peaks(&trace, &model, &shape, &peaks), 0);
    ck_assert_uint_eq(peaks.pooled_bytes, 300);
    ck_assert_uint_eq(peaks.static_bytes, 300);
    ck_assert_uint_eq(peaks.largest_bytes, 300);
    ck_assert_uint_eq(peaks.work_chunks, 3);
    ck_assert_uint_eq(peaks.service_ns, 1015 * NSEC_PER_MSEC);
    plan_peaks_free(&peaks);
}
END_TEST

START_TEST(test_private_pools_need_the_sum_of_peaks_that_never_meet)
{
    /* Each lasts 10 + 100 ms and holds 2 chunks from the 1st token on; they follow one another. */
    struct trace_request requests[] = {
        {.arrival_ns = 0, .context_tokens = 10, .generated_tokens = 1},
        {.arrival_ns = 110 * NSEC_PER_MSEC, .context_tokens = 10, .generated_tokens = 1},
        {.arrival_ns = 220 * NSEC_PER_MSEC, .context_tokens = 10, .generated_tokens = 1},
        {.arrival_ns = 330 * NSEC_PER_MSEC, .context_tokens = 20, .generated_tokens = 1},
    };
    const struct trace trace = trace_of(requests, 4);
    const struct plan_shape shape = {.tenants = 2, .workers = 4};
    struct plan_peaks peaks;

    ck_assert_int_eq(plan_peaks(&trace, &model, &shape, &peaks), 0);
    ck_assert_uint_eq(peaks.pooled_bytes, 300);
    ck_assert_uint_eq(peaks.static_bytes, 200 + 200 + 200 + 300);
    ck_assert_uint_eq(peaks.worker_bytes[0], 200);
    ck_assert_uint_eq(peaks.worker_bytes[3], 300);
    ck_assert_uint_eq(peaks.tenant_bytes[0], 200);
    ck_assert_uint_eq(peaks.tenant_bytes[1], 300);
    plan_peaks_free(&peaks);

    /* One nanosecond earlier, and two meet. */
    requests[1].arrival_ns -= 1;
    ck_assert_int_eq(plan_peaks(&trace, &model, &shape, &peaks), 0);
    ck_assert_uint_eq(peaks.pooled_bytes, 300);
    plan_peaks_free(&peaks);
    requests[3].arrival_ns -= 1;
    ck_assert_int_eq(plan_peaks(&trace, &model, &shape, &peaks), 0);
    ck_assert_uint_eq(peaks.pooled_bytes, 400);
    plan_peaks_free(&peaks);
}
END_TEST

START_TEST(test_a_request_without_duration_takes_before_it_gives)
{
    struct trace_request requests[] = {{.context_tokens = 0}, {.context_tokens = 0}};
    const struct trace trace = trace_of(requests, 2);
    const struct plan_shape shape = {.tenants = 1, .workers = 1};
    struct plan_peaks peaks;

    ck_assert_int_eq(plan_peaks(&trace, &model, &shape, &peaks), 0);
    ck_assert_uint_eq(peaks.pooled_bytes, 200);
    ck_assert_uint_eq(peaks.service_ns, 1);
    plan_peaks_free(&peaks);
}
END_TEST

START_TEST(test_a_split_refuses_what_its_part_has_no_room_for)
{
    /* Both on worker 0 of 2: 2 chunks at 0, 3 from 15 + 500 ms on; the second comes at 100 ms. */
    struct trace_request requests[] = {
        {.arrival_ns = 0, .context_tokens = 15, .generated_tokens = 10},
        {.arrival_ns = 0, .context_tokens = 1, .generated_tokens = 1},
        {.arrival_ns = 100 * NSEC_PER_MSEC, .context_tokens = 15, .generated_tokens = 10},
    };
    const struct trace trace = trace_of(requests, 3);
    const struct plan_shape shape = {.tenants = 1, .workers = 2};
    uint64_t refused;

    ck_assert_int_eq(plan_static_refused(&trace, &model, &shape, 2 * 600, &refused), 0);
    ck_assert_uint_eq(refused, 0);
    /* 5 chunks: the second one's growth has no room, since the first still holds 3. */
    ck_assert_int_eq(plan_static_refused(&trace, &model, &shape, 2 * 599, &refused), 0);
    ck_assert_uint_eq(refused, 1);
    /* 4: the first one's growth finds 2 + 2 taken and is refused; the second then has room. */
    ck_assert_int_eq(plan_static_refused(&trace, &model, &shape, 2 * 400, &refused), 0);
    ck_assert_uint_eq(refused, 1);
    /* 2: the second at arrival, the first at growth. */
    ck_assert_int_eq(plan_static_refused(&trace, &model, &shape, 2 * 200, &refused), 0);
    ck_assert_uint_eq(refused, 2);
    ck_assert_int_eq(plan_static_refused(&trace, &model, &shape, 2 * 99, &refused), 0);
    ck_assert_uint_eq(refused, 3);
}
END_TEST

START_TEST(test_denser_tokens_take_a_part_and_fit_beside_others)
{
    /* 10 bytes a token, chunks of 100: halved, 20 tokens a chunk. */
    const struct model denser = model_denser(&model, 2);
    struct model odd = model, huge = model;

    ck_assert_uint_eq(model_chunks(&denser, 20), 1);
    ck_assert_uint_eq(model_chunks(&denser, 21), 2);
    ck_assert_uint_eq(model_token_bytes(&model, 7), 70);
    ck_assert_uint_eq(model_token_bytes(&denser, 7), 35);
    ck_assert_uint_eq(model_tokens_within(&model, 1, 0), 10);
    ck_assert_uint_eq(model_tokens_within(&model, 2, 70), 13);
    ck_assert_uint_eq(model_tokens_within(&denser, 2, 70), 26);
    ck_assert_uint_eq(model_tokens_within(&model, 1, 91), 0);
    ck_assert_uint_eq(model_tokens_within(&model, 1, 101), 0);
    /* Half of an odd number of bytes is rounded up: nothing fits that doesn't. */
    odd.kv_bytes_per_token = 11;
    ck_assert_uint_eq(model_denser(&odd, 2).kv_bytes_per_token, 6);
    huge.kv_bytes_per_token = UINT64_MAX;
    ck_assert_uint_eq(model_token_bytes(&huge, 2), UINT64_MAX);
}
END_TEST

START_TEST(test_sums_that_leave_64_bits_are_refused)
{
    struct trace_request requests[] = {{.context_tokens = TRACE_TOKENS_MAX}};
    const struct trace trace = trace_of(requests, 1);
    const struct plan_shape shape = {.tenants = 1, .workers = 1};
    struct model huge = model;
    struct plan_peaks peaks;

    huge.kv_bytes_per_token = UINT64_MAX;
    ck_assert_int_eq(plan_peaks(&trace, &huge, &shape, &peaks), -EOVERFLOW);
    /* 10^8 tokens of 2^40 bytes: 2^66.6 bytes. */
    huge.kv_bytes_per_token = UINT64_C(1) << 40;
    ck_assert_int_eq(plan_peaks(&trace, &huge, &shape, &peaks), -EOVERFLOW);
}
END_TEST

UNIT_MAIN("replay_plan", test_bytes_are_rounded_up_to_chunks,
    test_the_largest_request_does_not_wrap, test_one_request_takes_prompt_growth_and_end,
    test_private_pools_need_the_sum_of_peaks_that_never_meet,
    test_a_request_without_duration_takes_before_it_gives,
    test_a_split_refuses_what_its_part_has_no_room_for,
    test_denser_tokens_take_a_part_and_fit_beside_others, test_sums_that_leave_64_bits_are_refused)
