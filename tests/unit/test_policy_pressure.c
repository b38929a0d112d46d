/* What no scenario can write: largest values, thresholds that make no sense. */
#include "policies/pressure.h"

#include "base/clock.h"
#include "policies/stall.h"
#include "tests/unit/unit.h"

static const struct pressure_thresholds sane = {
    .share = {0, 800000, 900000, 970000},
    .stall = {0, 50000, 200000, 500000},
    .hysteresis = 50000,
};

START_TEST(thresholds_rise_and_can_be_left_again)
{
    struct pressure_thresholds thresholds = sane;

    ck_assert(pressure_thresholds_sane(&thresholds));
    thresholds.hysteresis = 799999;
    ck_assert(pressure_thresholds_sane(&thresholds));
    /* A level that is reached at its hysteresis would need less than nothing to fall. */
    thresholds.hysteresis = 800000;
    ck_assert(!pressure_thresholds_sane(&thresholds));
    thresholds = sane;
    thresholds.share[PRESSURE_MEDIUM] = 970000;
    ck_assert(!pressure_thresholds_sane(&thresholds));
    thresholds = sane;
    thresholds.share[PRESSURE_CRITICAL] = PRESSURE_WHOLE;
    ck_assert(pressure_thresholds_sane(&thresholds));
    thresholds.share[PRESSURE_CRITICAL] = PRESSURE_WHOLE + 1;
    ck_assert(!pressure_thresholds_sane(&thresholds));
    thresholds = sane;
    thresholds.stall[PRESSURE_LOW] = 0;
    ck_assert(!pressure_thresholds_sane(&thresholds));
    thresholds.stall[PRESSURE_LOW] = 200000;
    ck_assert(!pressure_thresholds_sane(&thresholds));
}
END_TEST

START_TEST(shares_of_the_largest_figures_do_not_wrap)
{
    ck_assert_uint_eq(pressure_share(0, 0), PRESSURE_WHOLE);
    ck_assert_uint_eq(pressure_share(0, 1), 0);
    ck_assert_uint_eq(pressure_share(1, 0), PRESSURE_WHOLE);
    ck_assert_uint_eq(pressure_share(UINT64_MAX, UINT64_MAX), 500000);
    ck_assert_uint_eq(pressure_share(UINT64_MAX, 0), PRESSURE_WHOLE);
    /* Rounded down: a level isn't reached by a byte less than its share. */
    ck_assert_uint_eq(pressure_share(799999, 200001), 799999);
    ck_assert_uint_eq(pressure_share(7999999, 2000001), 799999);
}
END_TEST

START_TEST(headroom_of_the_largest_figures_does_not_wrap)
{
    const struct pressure_view view = {
        .used = UINT64_MAX,
        .cached = UINT64_MAX,
        .min = UINT64_MAX,
        .max = UINT64_MAX,
        .ready = UINT64_MAX,
    };

    ck_assert_uint_eq(pressure_headroom(&view), UINT64_MAX);
    ck_assert_uint_eq(
        pressure_headroom(&(struct pressure_view){.max = UINT64_MAX, .ready = UINT64_MAX}),
        UINT64_MAX);
}
END_TEST

START_TEST(a_stall_that_never_ends_saturates_at_all_of_the_time)
{
    struct stall stall = {0};
    uint64_t now_ns = 0;

    stall_change(&stall, now_ns, 1, 1);
    for (int i = 0; i < 4000; i++) {
        now_ns += STALL_PERIOD_NS;
        ck_assert_uint_eq(stall_due(&stall), now_ns);
        stall_advance(&stall, now_ns);
    }
    ck_assert_uint_eq(stall_average(&stall, STALL_SOME, STALL_AVG10), PRESSURE_WHOLE);
    ck_assert_uint_eq(stall_average(&stall, STALL_FULL, STALL_AVG300), PRESSURE_WHOLE);
    ck_assert_uint_eq(stall.total_ns[STALL_FULL], now_ns);
    /* The end of all time: one advance, no overflow. */
    stall_advance(&stall, UINT64_MAX);
    ck_assert_uint_eq(stall.total_ns[STALL_SOME], UINT64_MAX);
    ck_assert_uint_eq(stall_due(&stall), UINT64_MAX);
}
END_TEST

START_TEST(nobody_has_to_look_where_nothing_is_left)
{
    struct stall stall = {0};

    ck_assert_uint_eq(stall_due(&stall), CLOCK_NEVER);
    stall_change(&stall, 0, 1, 1);
    stall_change(&stall, 1, 0, 1);
    /* A nanosecond of stall is a sample of none: nothing to show after the period. */
    ck_assert_uint_eq(stall_due(&stall), STALL_PERIOD_NS);
    stall_advance(&stall, STALL_PERIOD_NS);
    ck_assert_uint_eq(stall.total_ns[STALL_SOME], 1);
    ck_assert_uint_eq(stall_average(&stall, STALL_SOME, STALL_AVG10), 0);
    ck_assert_uint_eq(stall_due(&stall), CLOCK_NEVER);
}
END_TEST

UNIT_MAIN("policy_pressure", thresholds_rise_and_can_be_left_again,
    shares_of_the_largest_figures_do_not_wrap, headroom_of_the_largest_figures_does_not_wrap,
    a_stall_that_never_ends_saturates_at_all_of_the_time, nobody_has_to_look_where_nothing_is_left)
