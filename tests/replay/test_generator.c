/* The same seed gives the same requests; their moments are those that are stated. */
#include "client/replay/generator.h"

#include <math.h>

#include "base/clock.h"
#include "tests/unit/unit.h"

static void generate(uint64_t seed, uint64_t count, struct trace *ret)
{
    struct generator_params params = generator_defaults;
    struct trace_reader *reader;
    struct trace_error error;

    params.seed = seed;
    params.requests = count;
    ck_assert_int_eq(generator_new(&params, &reader), 0);
    ck_assert_int_eq(trace_load(reader, 0, ret, &error), 0);
    ck_assert_ptr_null(trace_close(reader));
    ck_assert_uint_eq(ret->count, count);
}

START_TEST(test_a_seed_repeats_and_another_differs)
{
    struct trace first, again, other;
    size_t same = 0;

    generate(5, 500, &first);
    generate(5, 500, &again);
    generate(6, 500, &other);
    for (size_t i = 0; i < 500; i++) {
        ck_assert_uint_eq(first.requests[i].arrival_ns, again.requests[i].arrival_ns);
        ck_assert_uint_eq(first.requests[i].context_tokens, again.requests[i].context_tokens);
        ck_assert_uint_eq(first.requests[i].generated_tokens, again.requests[i].generated_tokens);
        same += first.requests[i].context_tokens == other.requests[i].context_tokens;
    }
    ck_assert_uint_lt(same, 50);
    trace_free(&first);
    trace_free(&again);
    trace_free(&other);
}
END_TEST

START_TEST(test_medians_rate_and_bounds_are_the_stated_ones)
{
    const size_t count = 50000;
    size_t short_prompts = 0, short_answers = 0;
    double seconds, rate;
    struct trace trace;

    generate(1, count, &trace);
    for (size_t i = 0; i < count; i++) {
        const struct trace_request *request = &trace.requests[i];

        ck_assert_uint_ge(request->context_tokens, 1);
        ck_assert_uint_le(request->context_tokens, generator_defaults.prompt_max);
        ck_assert_uint_ge(request->generated_tokens, 1);
        ck_assert_uint_le(request->generated_tokens, generator_defaults.answer_max);
        short_prompts += request->context_tokens < 650;
        short_answers += request->generated_tokens < 140;
    }
    /* Half are below the median; the standard deviation of that share is 0.0022. */
    ck_assert_double_lt(fabs((double) short_prompts / (double) count - 0.5), 0.015);
    ck_assert_double_lt(fabs((double) short_answers / (double) count - 0.5), 0.015);
    /* (30 s × 4.5/s + 5 s × 13.5/s) / 35 s = 5.79/s, over some 250 cycles of calm and burst. */
    seconds = (double) trace.duration_ns / (double) NSEC_PER_SEC;
    rate = (double) count / seconds;
    ck_assert_double_gt(rate, 5.2);
    ck_assert_double_lt(rate, 6.4);
    trace_free(&trace);
}
END_TEST

UNIT_MAIN("replay_generator", test_a_seed_repeats_and_another_differs,
    test_medians_rate_and_bounds_are_the_stated_ones)
