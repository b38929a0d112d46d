/* size_parse() and size_format() against values worked out by hand, at each edge of 63 bits. */
#include "base/size.h"

#include <errno.h>

#include "tests/unit/unit.h"

static void assert_bytes(const char *text, uint64_t expected_bytes)
{
    uint64_t bytes = 1;

    ck_assert_msg(size_parse(text, &bytes) == 0, "'%s' is refused", text);
    ck_assert_msg(bytes == expected_bytes, "'%s' is %llu", text, (unsigned long long) bytes);
}

/* A refused text must leave the output alone: a malformed limit is never "no limit". */
static void assert_refused(const char *text, int expected)
{
    uint64_t bytes = 4711;

    ck_assert_msg(size_parse(text, &bytes) == expected, "'%s' is not refused as expected", text);
    ck_assert_msg(bytes == 4711, "'%s' writes the output", text);
}

START_TEST(plain_digits_are_bytes)
{
    assert_bytes("0", 0);
    assert_bytes("1", 1);
    assert_bytes("0001", 1);
    assert_bytes("4096", 4096);
    assert_bytes("4096B", 4096);
    assert_bytes("4096b", 4096);
}
END_TEST

START_TEST(suffixes_are_powers_of_1024)
{
    assert_bytes("1K", UINT64_C(1024));
    assert_bytes("1M", UINT64_C(1048576));
    assert_bytes("1G", UINT64_C(1073741824));
    assert_bytes("1T", UINT64_C(1099511627776));
    assert_bytes("1P", UINT64_C(1125899906842624));
    assert_bytes("1E", UINT64_C(1152921504606846976));
    assert_bytes("3g", UINT64_C(3221225472));
    assert_bytes("3GiB", UINT64_C(3221225472));
    assert_bytes("3gib", UINT64_C(3221225472));
    assert_bytes("3GB", UINT64_C(3221225472));
}
END_TEST

START_TEST(fractions_round_down_to_a_byte)
{
    assert_bytes("1.5K", 1536);
    assert_bytes("0.5M", 524288);
    assert_bytes("1.5T", UINT64_C(1649267441664));
    assert_bytes("1.9", 1);
    assert_bytes("0.001K", 1); /* 1.024 */
    assert_bytes("0.0009K", 0);
    assert_bytes("1.000000000000000000000001K", 1024);
}
END_TEST

START_TEST(infinity_is_the_word_only)
{
    assert_bytes("infinity", SIZE_INFINITY);
    assert_refused("Infinity", -EINVAL);
    assert_refused("infinit", -EINVAL);
    assert_refused("infinityG", -EINVAL);
    assert_refused("inf", -EINVAL);
}
END_TEST

START_TEST(the_largest_size_is_63_bits)
{
    assert_bytes("9223372036854775807", INT64_MAX);
    assert_refused("9223372036854775808", -ERANGE);
    assert_refused("18446744073709551615", -ERANGE);
    assert_refused("18446744073709551616", -ERANGE);
    assert_refused("99999999999999999999999", -ERANGE);
}
END_TEST

START_TEST(a_suffix_may_not_carry_past_63_bits)
{
    assert_bytes("7E", UINT64_C(8070450532247928832));
    assert_bytes("7.5E", UINT64_C(8646911284551352320));
    assert_refused("8E", -ERANGE);
    assert_refused("16E", -ERANGE);
    assert_bytes("8191P", UINT64_C(9222246136947933184));
    assert_refused("8192P", -ERANGE);
    assert_bytes("8388607T", UINT64_C(9223370937343148032));
    assert_refused("8388608T", -ERANGE);
}
END_TEST

/* Each digit that is accepted must count: one that overflows an inner product is still a size. */
START_TEST(long_fractions_of_an_exabyte_are_exact)
{
    assert_bytes("1.25E", UINT64_C(1441151880758558720));
    assert_bytes("1.250000000E", UINT64_C(1441151880758558720));
    assert_bytes("1.2500000001E", UINT64_C(1441151880758558720));
    assert_bytes("1.999999999P", UINT64_C(2251799812559348));
}
END_TEST

START_TEST(anything_else_is_refused)
{
    static const char *const texts[] = {"", " ", "K", "-1", "+1", " 1", "1 ", "1 K", "1.", "1.K",
        ".5K", "1..5", "1.5.5", "1X", "1KK", "1Ki", "1KBB", "1BB", "1BiB", "0x10", "1e9", "1,5K",
        "1K\n", "١", "1%", "nan"};

    for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
        assert_refused(texts[i], -EINVAL);
}
END_TEST

START_TEST(format_shows_one_decimal_and_the_largest_unit)
{
    static const struct {
        uint64_t bytes;
        const char *text;
    } rows[] = {
        {0, "0B"},
        {1023, "1023B"},
        {1024, "1K"},
        {1025, "1K"},
        {1536, "1.5K"},
        {2047, "1.9K"},
        {1048575, "1023.9K"},
        {1048576, "1M"},
        {UINT64_C(42949672960), "40G"},
        {UINT64_C(1649267441664), "1.5T"},
        {INT64_MAX, "7.9E"},
        {UINT64_MAX - 1, "15.9E"},
        {SIZE_INFINITY, "infinity"},
    };
    char buffer[SIZE_TEXT_MAX];

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        ck_assert_str_eq(size_format(buffer, rows[i].bytes), rows[i].text);
}
END_TEST

/* What size_format() writes for whole units, size_parse() reads back. */
START_TEST(whole_units_survive_a_round_trip)
{
    char buffer[SIZE_TEXT_MAX];

    for (unsigned shift = 0; shift < 63; shift++)
        assert_bytes(size_format(buffer, UINT64_C(1) << shift), UINT64_C(1) << shift);
    assert_bytes(size_format(buffer, SIZE_INFINITY), SIZE_INFINITY);
}
END_TEST

UNIT_MAIN("base size", plain_digits_are_bytes, suffixes_are_powers_of_1024,
    fractions_round_down_to_a_byte, infinity_is_the_word_only, the_largest_size_is_63_bits,
    a_suffix_may_not_carry_past_63_bits, long_fractions_of_an_exabyte_are_exact,
    anything_else_is_refused, format_shows_one_decimal_and_the_largest_unit,
    whole_units_survive_a_round_trip)
