/* What a worker makes of advice: each step, at its boundary, and what is taken back. */
#include "client/replay/ladder.h"

#include "tests/unit/unit.h"

static void apply(
    struct ladder *ladder, const struct gmb_advice_step *steps, uint32_t count, uint32_t running)
{
    const struct gmb_advice advice = {.id = 1, .rung = 1, .step_count = count, .steps = steps};

    ladder_apply(ladder, &advice, running);
}

START_TEST(every_step_sets_what_it_names_and_its_end_takes_that_back)
{
    static const struct gmb_advice_step all[] = {
        {GMB_DEGRADE_REDUCE_BATCH, 0.5, 0},
        {GMB_DEGRADE_QUANTIZE_KV, 0, GMB_KV_INT8},
        {GMB_DEGRADE_SHRINK_CONTEXT, 0, 8192},
        {GMB_DEGRADE_DROP_PREFIX_CACHE, 0.25, 0},
        {GMB_DEGRADE_REJECT_BELOW_PRIORITY, 0, 50},
        {GMB_DEGRADE_PAUSE_NEW, 0, 0},
    };
    struct ladder ladder;

    ladder_init(&ladder, UINT32_MAX);
    ck_assert_uint_eq(ladder.batch, UINT32_MAX);
    apply(&ladder, all, ARRAY_SIZE(all), 10);
    ck_assert_uint_eq(ladder.batch, 5);
    ck_assert_uint_eq(ladder.density, 2);
    ck_assert_uint_eq(ladder.context_tokens, 8192);
    ck_assert_double_eq(ladder.drop_share, 0.25);
    ck_assert(ladder.paused);
    for (unsigned i = 1; i < LADDER_STEPS; i++)
        ck_assert(ladder.in_force[i]);
    apply(&ladder, all + 1, 1, 10);
    ck_assert_uint_eq(ladder.batch, UINT32_MAX);
    ck_assert_uint_eq(ladder.density, 2);
    ck_assert_uint_eq(ladder.context_tokens, UINT64_MAX);
    ck_assert_double_eq(ladder.drop_share, 0);
    ck_assert(!ladder.paused);
    ck_assert(!ladder.in_force[GMB_DEGRADE_REDUCE_BATCH]);
    apply(&ladder, NULL, 0, 10);
    ck_assert_uint_eq(ladder.density, 1);
}
END_TEST

START_TEST(batch_is_reduced_from_what_runs_or_from_its_limit_and_never_to_nothing)
{
    const struct gmb_advice_step half = {GMB_DEGRADE_REDUCE_BATCH, 0.5, 0};
    const struct gmb_advice_step quarter = {GMB_DEGRADE_REDUCE_BATCH, 0.25, 0};
    struct ladder ladder;

    ladder_init(&ladder, 8);
    apply(&ladder, &half, 1, 100);
    ck_assert_uint_eq(ladder.batch, 4);
    /* Said again, when fewer run: nothing new. */
    apply(&ladder, &half, 1, 2);
    ck_assert_uint_eq(ladder.batch, 4);
    /* More: from what runs now. */
    apply(&ladder, &quarter, 1, 4);
    ck_assert_uint_eq(ladder.batch, 1);
    /* Less: as much as the factor grew. */
    apply(&ladder, &half, 1, 1);
    ck_assert_uint_eq(ladder.batch, 2);
    apply(&ladder, NULL, 0, 1);
    ck_assert_uint_eq(ladder.batch, 8);
    apply(&ladder, &half, 1, 0);
    ck_assert_uint_eq(ladder.batch, 1);
}
END_TEST

START_TEST(share_of_the_cache_goes_at_once_and_of_what_comes)
{
    const struct gmb_advice_step half = {GMB_DEGRADE_DROP_PREFIX_CACHE, 0.5, 0};
    const struct gmb_advice_step third = {GMB_DEGRADE_DROP_PREFIX_CACHE, 1.0 / 3, 0};
    const struct gmb_advice_step whole = {GMB_DEGRADE_DROP_PREFIX_CACHE, 1, 0};
    unsigned dropped = 0;
    struct ladder ladder;

    ladder_init(&ladder, UINT32_MAX);
    ck_assert_uint_eq(ladder_drop_now(&ladder, 10), 0);
    ck_assert(!ladder_drop_next(&ladder));
    apply(&ladder, &half, 1, 0);
    ck_assert_uint_eq(ladder_drop_now(&ladder, 10), 5);
    ck_assert_uint_eq(ladder_drop_now(&ladder, 1), 1);
    ck_assert_uint_eq(ladder_drop_now(&ladder, 0), 0);
    ck_assert(!ladder_drop_next(&ladder));
    ck_assert(ladder_drop_next(&ladder));
    ck_assert(!ladder_drop_next(&ladder));
    ck_assert(ladder_drop_next(&ladder));
    apply(&ladder, &third, 1, 0);
    for (unsigned i = 0; i < 30; i++)
        dropped += ladder_drop_next(&ladder);
    ck_assert_uint_eq(dropped, 10);
    apply(&ladder, &whole, 1, 0);
    ck_assert_uint_eq(ladder_drop_now(&ladder, 7), 7);
    ck_assert(ladder_drop_next(&ladder));
    ck_assert(ladder_drop_next(&ladder));
}
END_TEST

/* The library hands out none; a worker that was built for fewer steps must not trip over one. */
START_TEST(step_that_is_unknown_changes_nothing)
{
    const struct gmb_advice_step later = {LADDER_STEPS, 0.5, 1};
    struct ladder ladder;

    ladder_init(&ladder, 8);
    apply(&ladder, &later, 1, 8);
    ck_assert_uint_eq(ladder.batch, 8);
    ck_assert_uint_eq(ladder.density, 1);
}
END_TEST

UNIT_MAIN("replay_ladder", every_step_sets_what_it_names_and_its_end_takes_that_back,
    batch_is_reduced_from_what_runs_or_from_its_limit_and_never_to_nothing,
    share_of_the_cache_goes_at_once_and_of_what_comes, step_that_is_unknown_changes_nothing)
