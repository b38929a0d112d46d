/* Azure's CSV as it is published, and as it isn't. */
#include "tests/replay/reading.h"

#define HEADER "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"

START_TEST(test_crlf_and_a_last_line_without_end_are_read)
{
    struct trace_error error;
    struct trace trace;

    ck_assert_int_eq(reading_load(trace_azure_new_consume,
                         HEADER "2023-11-16 18:15:46.6805900,374,44\r\n"
                                "2023-11-16 18:15:50.9951690,396,109",
                         &trace, &error),
        0);
    ck_assert_uint_eq(trace.count, 2);
    reading_is(&trace.requests[0], 0, 374, 44);
    reading_is(&trace.requests[1], 4314579000, 396, 109);
    ck_assert_uint_eq(trace.duration_ns, 4314579000);
    ck_assert_ptr_null(trace.requests[0].hash_ids);
    trace_free(&trace);
}
END_TEST

START_TEST(test_other_orders_further_columns_quotes_and_zones_are_read)
{
    struct trace_error error;
    struct trace trace;

    ck_assert_int_eq(reading_load(trace_azure_new_consume,
                         "\xef\xbb\xbfModel,\"GeneratedTokens\", TIMESTAMP ,ContextTokens\n"
                         "\"a, \"\"big\"\" one\",10,2024-05-10 00:00:00.009930+00:00,20\n"
                         "\n"
                         "b,\"11\",\"2024-05-10 02:00:00.5+02:00\",21\n"
                         "c,12,2024-05-10T00:00:01Z,22\n\n",
                         &trace, &error),
        0);
    ck_assert_uint_eq(trace.count, 3);
    reading_is(&trace.requests[0], 0, 20, 10);
    reading_is(&trace.requests[1], 490070000, 21, 11);
    reading_is(&trace.requests[2], 990070000, 22, 12);
    trace_free(&trace);
}
END_TEST

START_TEST(test_rows_out_of_order_are_sorted_and_equal_times_keep_theirs)
{
    struct trace_error error;
    struct trace trace;

    ck_assert_int_eq(reading_load(trace_azure_new_consume,
                         HEADER "2023-12-31 23:59:59,3,1\n"
                                "2024-01-01 00:00:00,4,1\n"
                                "2023-12-31 23:59:58,1,1\n"
                                "2023-12-31 23:59:58,2,1\n",
                         &trace, &error),
        0);
    ck_assert_uint_eq(trace.count, 4);
    reading_is(&trace.requests[0], 0, 1, 1);
    reading_is(&trace.requests[1], 0, 2, 1);
    reading_is(&trace.requests[2], 1000000000, 3, 1);
    reading_is(&trace.requests[3], 2000000000, 4, 1);
    ck_assert_uint_eq(trace.requests[0].row, 2);
    ck_assert_uint_eq(trace.requests[1].row, 3);
    trace_free(&trace);
}
END_TEST

START_TEST(test_an_empty_file_and_a_header_alone_hold_no_request)
{
    reading_refused(trace_azure_new_consume, "\n", -ENODATA, 0, "empty");
    reading_refused(trace_azure_new_consume, HEADER, -ENODATA, 0, "no request");
}
END_TEST

START_TEST(test_a_header_without_a_column_or_with_it_twice_is_refused)
{
    reading_refused(trace_azure_new_consume, "TIMESTAMP,ContextTokens\n", -EBADMSG, 1,
        "no column GeneratedTokens");
    reading_refused(trace_azure_new_consume,
        "\nTIMESTAMP,ContextTokens,GeneratedTokens,TIMESTAMP\n", -EBADMSG, 2,
        "two columns TIMESTAMP");
}
END_TEST

START_TEST(test_malformed_rows_are_refused_with_their_line)
{
    static const struct {
        const char *row, *what;
    } cases[] = {
        {"2023-11-16 18:15:46,374", "2 fields"},
        {"2023-11-16 18:15:46,374,44,", "4 fields"},
        {"2023-11-16 18:15:46,-1,44", "ContextTokens"},
        {"2023-11-16 18:15:46,+1,44", "ContextTokens"},
        {"2023-11-16 18:15:46,,44", "ContextTokens"},
        {"2023-11-16 18:15:46,0x10,44", "ContextTokens"},
        {"2023-11-16 18:15:46,3.5,44", "ContextTokens"},
        {"2023-11-16 18:15:46,100000001,44", "ContextTokens"},
        {"2023-11-16 18:15:46,99999999999999999999,44", "ContextTokens"},
        {"2023-11-16 18:15:46,18446744073709551616,44", "ContextTokens"},
        {"2023-11-16 18:15:46,1,4 4", "GeneratedTokens"},
        {"2023-11-16,1,44", "TIMESTAMP"},
        {"2023-11-31 18:15:46,1,44", "TIMESTAMP"},
        {"2023-02-29 18:15:46,1,44", "TIMESTAMP"},
        {"2023-11-16 24:15:46,1,44", "TIMESTAMP"},
        {"2023-11-16 18:15:46.,1,44", "TIMESTAMP"},
        {"2023-11-16 18:15:46.1234567890,1,44", "TIMESTAMP"},
        {"1969-12-31 23:59:59,1,44", "TIMESTAMP"},
        {"2401-01-01 00:00:00,1,44", "TIMESTAMP"},
        {"\"2023-11-16 18:15:46,1,44", "quote"},
        {"2023-11-16 18:15:46,1,\"44\"x", "quote"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char text[512];

        (void) snprintf(
            text, sizeof(text), HEADER "2023-11-16 18:15:46.68,374,44\r\n%s\r\n", cases[i].row);
        reading_refused(trace_azure_new_consume, text, -EBADMSG, 3, cases[i].what);
    }
}
END_TEST

START_TEST(test_the_largest_number_of_tokens_is_read)
{
    struct trace_error error;
    struct trace trace;

    ck_assert_int_eq(reading_load(trace_azure_new_consume,
                         HEADER "2400-12-31 23:59:60.999999999,100000000,0\n", &trace, &error),
        0);
    reading_is(&trace.requests[0], 0, 100000000, 0);
    trace_free(&trace);
}
END_TEST

START_TEST(test_a_nul_byte_is_refused_with_its_line)
{
    static const char text[] = HEADER "2023-11-16 18:15:46,3\0,4\n";
    struct trace_request request;
    struct trace_reader *reader;
    struct trace_error error;

    ck_assert_int_eq(
        reading_open(trace_azure_new_consume, text, sizeof(text) - 1, &reader, &error), 0);
    ck_assert_int_eq(trace_next(reader, &request, &error), -EBADMSG);
    ck_assert_uint_eq(error.line, 2);
    ck_assert_ptr_null(trace_close(reader));
}
END_TEST

START_TEST(test_a_line_beyond_the_bound_is_refused)
{
    const size_t size = TRACE_LINE_BYTES_MAX + 1;
    _cleanup_free_ char *text = malloc(size);
    struct trace_reader *reader;
    struct trace_error error;

    ck_assert_ptr_nonnull(text);
    memset(text, 'x', size);
    ck_assert_int_eq(reading_open(trace_azure_new_consume, text, size, &reader, &error), -EBADMSG);
    ck_assert_uint_eq(error.line, 1);
    ck_assert_ptr_nonnull(strstr(error.text, "longer"));
    ck_assert_int_eq(
        reading_open(trace_azure_new_consume, text, size - 1, &reader, &error), -EBADMSG);
    ck_assert_ptr_nonnull(strstr(error.text, "no column"));
}
END_TEST

START_TEST(test_the_limit_ends_reading_before_what_is_malformed)
{
    static const char text[] = HEADER "2023-11-16 18:15:46,1,1\n2023-11-16 18:15:47,2,2\nbad\n";
    struct trace_reader *reader;
    struct trace_error error;
    struct trace trace;

    ck_assert_int_eq(
        reading_open(trace_azure_new_consume, text, sizeof(text) - 1, &reader, &error), 0);
    ck_assert_int_eq(trace_load(reader, 2, &trace, &error), 0);
    ck_assert_uint_eq(trace.count, 2);
    trace_free(&trace);
    ck_assert_int_eq(trace_load(reader, 0, &trace, &error), -EBADMSG);
    ck_assert_uint_eq(error.line, 4);
    ck_assert_ptr_null(trace_close(reader));
}
END_TEST

UNIT_MAIN("replay_azure", test_crlf_and_a_last_line_without_end_are_read,
    test_other_orders_further_columns_quotes_and_zones_are_read,
    test_rows_out_of_order_are_sorted_and_equal_times_keep_theirs,
    test_an_empty_file_and_a_header_alone_hold_no_request,
    test_a_header_without_a_column_or_with_it_twice_is_refused,
    test_malformed_rows_are_refused_with_their_line, test_the_largest_number_of_tokens_is_read,
    test_a_nul_byte_is_refused_with_its_line, test_a_line_beyond_the_bound_is_refused,
    test_the_limit_ends_reading_before_what_is_malformed)
