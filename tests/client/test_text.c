/* Text on its way out: labels, UUIDs, tables, terminals, spans of time. */
#include "client/text.h"

#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "client/ctl/duration.h"
#include "client/ctl/table.h"
#include "client/ctl/terminal.h"
#include "tests/unit/unit.h"

START_TEST(text_is_cut_at_whole_characters)
{
    char out[6];

    text_clean(out, sizeof(out), "abcdefg");
    ck_assert_str_eq(out, "abcde");
    text_clean(out, sizeof(out), "abc\xe2\x82\xac");
    ck_assert_str_eq(out, "abc");
    text_clean(out, sizeof(out), "ab\xe2\x82\xac");
    ck_assert_str_eq(out, "ab\xe2\x82\xac");
    text_clean(out, sizeof(out), "\x01\x7f\xff\xc2\x80");
    ck_assert_str_eq(out, "?????");
    text_clean(out, sizeof(out), NULL);
    ck_assert_str_eq(out, "");
    text_clean(out, 1, "abc");
    ck_assert_str_eq(out, "");
}
END_TEST

START_TEST(spans_have_their_two_largest_units)
{
    static const struct {
        uint64_t ns;
        const char *text;
    } rows[] = {
        {0, "0ms"},
        {999 * NSEC_PER_USEC, "0ms"},
        {999 * NSEC_PER_MSEC, "999ms"},
        {NSEC_PER_SEC, "1s"},
        {59 * NSEC_PER_SEC + 999 * NSEC_PER_MSEC, "59s"},
        {60 * NSEC_PER_SEC, "1min"},
        {61 * NSEC_PER_SEC, "1min 1s"},
        {3599 * NSEC_PER_SEC, "59min 59s"},
        {3600 * NSEC_PER_SEC, "1h"},
        {3660 * NSEC_PER_SEC, "1h 1min"},
        {86400 * NSEC_PER_SEC, "1d"},
        {90000 * NSEC_PER_SEC, "1d 1h"},
        {UINT64_MAX, "213503d 23h"},
    };
    char text[DURATION_TEXT_MAX];

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++)
        ck_assert_str_eq(duration_format(text, rows[i].ns), rows[i].text);
}
END_TEST

static void shows_as(const char *text, const char *expected, size_t width)
{
    char *copy = terminal_text(text);

    ck_assert_str_eq(copy, expected);
    ck_assert_uint_eq(terminal_width(copy), width);
    free(copy);
}

START_TEST(terminal_sees_no_controls_and_no_reversals)
{
    ck_assert_ptr_nonnull(setlocale(LC_CTYPE, "C.UTF-8"));
    shows_as("plain", "plain", 5);
    shows_as("a\x1b[31mb\n\r\t", "a?[31mb???", 10);
    shows_as("a\xe2\x80\xae"
             "b",
        "a?b", 3);
    shows_as("\xe2\x81\xa6\xef\xbb\xbf\xe2\x80\x8b", "???", 3);
    shows_as("\xff\xc3", "??", 2);
    shows_as("\xe4\xb8\xad\xe6\x96\x87", "\xe4\xb8\xad\xe6\x96\x87", 4);
    shows_as("\xc3\xa9t\xc3\xa9", "\xc3\xa9t\xc3\xa9", 3);
    shows_as("", "", 0);
    ck_assert_ptr_nonnull(setlocale(LC_CTYPE, "C"));
    shows_as("\xc3\xa9t\xc3\xa9", "??t??", 5);
}
END_TEST

static void table_is(struct table *table, bool colour, const char *expected)
{
    char *text = NULL;
    size_t size = 0;
    FILE *to = open_memstream(&text, &size);

    ck_assert_ptr_nonnull(to);
    ck_assert_int_eq(table_print(table, to, colour), 0);
    ck_assert_int_eq(fclose(to), 0);
    ck_assert_str_eq(text, expected);
    free(text);
}

START_TEST(a_column_is_left_out_only_while_all_of_it_is_empty)
{
    static const char *const headings[] = {"<NAME", "?LOST", "FREE"};
    struct table *table = table_new(headings, 3);

    table_is(table, false, "NAME  FREE\n");
    for (unsigned i = 0; i < 2; i++) {
        table_cell(table, STYLE_PLAIN, "row%u", i);
        table_size(table, STYLE_ALARM, 0);
        table_size(table, STYLE_PLAIN, 0);
    }
    table_is(table, false, "NAME  FREE\nrow0     -\nrow1     -\n");
    table_cell(table, STYLE_PLAIN, "row2");
    table_size(table, STYLE_ALARM, 1024);
    table_size(table, STYLE_PLAIN, 1024);
    table_is(
        table, false, "NAME  LOST  FREE\nrow0     -     -\nrow1     -     -\nrow2    1K    1K\n");
    ck_assert_ptr_null(table_free(table));
}
END_TEST

START_TEST(columns_are_aligned_and_nothing_trails)
{
    static const char *const headings[] = {"<NAME", "SIZE", "USE", "<STATE"};
    struct table *table = table_new(headings, 4);

    ck_assert_ptr_nonnull(setlocale(LC_CTYPE, "C.UTF-8"));
    table_is(table, false, "NAME  SIZE  USE  STATE\n");
    table_cell(table, STYLE_PLAIN, "%s", "\xe4\xb8\xad\xe6\x96\x87-long");
    table_size(table, STYLE_PLAIN, 1536);
    table_count(table, 3, 3);
    table_cell(table, STYLE_GOOD, "fine");
    table_cell(table, STYLE_PLAIN, "%s", "");
    table_size(table, STYLE_ALARM, 0);
    table_count(table, 12, UINT32_MAX);
    table_cell(table, STYLE_PLAIN, "no");
    table_is(table, false,
        "NAME       SIZE  USE  STATE\n"
        "\xe4\xb8\xad\xe6\x96\x87-long  1.5K  3/3  fine\n"
        "-             -   12  no\n");
    table_is(table, true,
        "\x1b[1mNAME\x1b[0m       \x1b[1mSIZE\x1b[0m  \x1b[1mUSE\x1b[0m  \x1b[1mSTATE\x1b[0m\n"
        "\xe4\xb8\xad\xe6\x96\x87-long  1.5K  \x1b[33m3/3\x1b[0m  \x1b[32mfine\x1b[0m\n"
        "-             \x1b[31m-\x1b[0m   12  no\n");
    ck_assert_ptr_null(table_free(table));
    ck_assert_ptr_null(table_new(headings, 25));
    ck_assert_int_eq(table_print(NULL, stdout, false), -ENOMEM);
}
END_TEST

START_TEST(files_get_no_colour)
{
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

    ck_assert_int_ge(null, 0);
    ck_assert_int_eq(setenv("TERM", "xterm", 1), 0);
    ck_assert_int_eq(unsetenv("NO_COLOR"), 0);
    ck_assert_int_ge(dup2(null, STDOUT_FILENO), 0);
    ck_assert(!terminal_colour());
    (void) close(null);
}
END_TEST

UNIT_MAIN("client text", text_is_cut_at_whole_characters, spans_have_their_two_largest_units,
    terminal_sees_no_controls_and_no_reversals, columns_are_aligned_and_nothing_trails,
    a_column_is_left_out_only_while_all_of_it_is_empty, files_get_no_colour)
