/* Numbers and times at their edges. */
#include "client/replay/text.h"

#include "tests/unit/unit.h"

START_TEST(test_unsigned_numbers_are_digits_up_to_the_bound)
{
    uint64_t value = 7;

    ck_assert(text_parse_uint("0", 0, &value) && value == 0);
    ck_assert(text_parse_uint("18446744073709551615", UINT64_MAX, &value) && value == UINT64_MAX);
    value = 7;
    ck_assert(!text_parse_uint("18446744073709551616", UINT64_MAX, &value));
    ck_assert(!text_parse_uint("11", 10, &value));
    ck_assert(!text_parse_uint("", 10, &value));
    ck_assert(!text_parse_uint(" 1", 10, &value));
    ck_assert(!text_parse_uint("-0", 10, &value));
    ck_assert(!text_parse_uint("1a", 10, &value));
    ck_assert_uint_eq(value, 7);
    ck_assert(text_parse_uint("10", 10, &value) && value == 10);
}
END_TEST

START_TEST(test_positive_numbers_are_finite_and_above_zero)
{
    static const char *const bad[] = {
        "0", "0.0", "-1", "inf", "nan", "1e999", "0x10", " 1", "1 ", "1s", ""};
    double value = 7;

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        ck_assert_msg(!text_parse_positive(bad[i], &value), "'%s'", bad[i]);
    ck_assert_double_eq(value, 7);
    ck_assert(text_parse_positive("2.5", &value));
    ck_assert_double_eq(value, 2.5);
    ck_assert(text_parse_positive(".5", &value));
    ck_assert(text_parse_positive("1e3", &value));
    ck_assert_double_eq(value, 1000);
}
END_TEST

START_TEST(test_times_count_from_1970_over_leap_years)
{
    uint64_t ns;

    ck_assert(text_parse_time("1970-01-01 00:00:00", &ns));
    ck_assert_uint_eq(ns, 0);
    /* date -u -d @951782400: 2000-02-29; 1077926400: 2004-02-28; 4107542400: 2100-03-01 */
    ck_assert(text_parse_time("2000-02-29 00:00:00", &ns));
    ck_assert_uint_eq(ns, UINT64_C(951782400000000000));
    ck_assert(text_parse_time("2100-03-01 00:00:00", &ns));
    ck_assert_uint_eq(ns, UINT64_C(4107542400000000000));
    ck_assert(!text_parse_time("2100-02-29 00:00:00", &ns));
    ck_assert(text_parse_time("2023-11-16 18:15:46.6805900", &ns));
    ck_assert_uint_eq(ns, UINT64_C(1700158546680590000));
    ck_assert(text_parse_time("2023-11-16 20:15:46.000000001+02:00", &ns));
    ck_assert_uint_eq(ns, UINT64_C(1700158546000000001));
    ck_assert(text_parse_time("1970-01-01 00:00:00-00:30", &ns));
    ck_assert_uint_eq(ns, UINT64_C(1800000000000));
    ck_assert(!text_parse_time("1970-01-01 00:00:00+00:30", &ns));
}
END_TEST

START_TEST(test_trimming_keeps_what_is_inside)
{
    char text[] = " \t a b\r\n", blank[] = " \r";

    ck_assert_str_eq(text_trim(text), "a b");
    ck_assert_str_eq(text_trim(blank), "");
    ck_assert_ptr_null(text_trim(NULL));
}
END_TEST

UNIT_MAIN("replay_text", test_unsigned_numbers_are_digits_up_to_the_bound,
    test_positive_numbers_are_finite_and_above_zero, test_times_count_from_1970_over_leap_years,
    test_trimming_keeps_what_is_inside)
