/* throttle_delay_ns() against 64 s x overage^2, worked out by hand. */
#include "policies/throttle.h"

#include "tests/unit/unit.h"

#define HIGH (UINT64_C(1) << 30)
#define MS UINT64_C(1000000)

START_TEST(at_the_limit_there_is_no_pause)
{
    ck_assert_uint_eq(throttle_delay_ns(HIGH - 10, 10, HIGH), 0);
    ck_assert_uint_eq(throttle_delay_ns(0, 0, 0), 0);
    ck_assert_uint_eq(throttle_delay_ns(UINT64_MAX, UINT64_MAX, UINT64_MAX), 0);
}
END_TEST

START_TEST(the_pause_grows_with_the_square_of_the_overage)
{
    /* 1/64 over: 64 / 4096 s. 1/32 over: four times as long. 1/8 over: 1 s, the bound. */
    ck_assert_uint_eq(throttle_delay_ns(HIGH, HIGH / 64, HIGH), 15625 * MS / 1000);
    ck_assert_uint_eq(throttle_delay_ns(HIGH, HIGH / 32, HIGH), 62500 * MS / 1000);
    ck_assert_uint_eq(throttle_delay_ns(HIGH, HIGH / 8, HIGH), THROTTLE_MAX_NS);
    ck_assert_uint_lt(throttle_delay_ns(HIGH, HIGH / 8 - HIGH / 1024, HIGH), THROTTLE_MAX_NS);
}
END_TEST

START_TEST(no_pause_is_longer_than_the_bound)
{
    ck_assert_uint_eq(throttle_delay_ns(HIGH, HIGH, HIGH), THROTTLE_MAX_NS);
    ck_assert_uint_eq(throttle_delay_ns(1, 0, 0), THROTTLE_MAX_NS);
    ck_assert_uint_eq(throttle_delay_ns(UINT64_MAX, UINT64_MAX, 1), THROTTLE_MAX_NS);
}
END_TEST

UNIT_MAIN("policy_throttle", at_the_limit_there_is_no_pause,
    the_pause_grows_with_the_square_of_the_overage, no_pause_is_longer_than_the_bound)
