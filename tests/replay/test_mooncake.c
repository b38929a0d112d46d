/* Mooncake's JSON lines as they are published, and as they aren't. */
#include "tests/replay/reading.h"

START_TEST(test_repeating_times_and_hash_ids_are_kept)
{
    struct trace_error error;
    struct trace trace;

    ck_assert_int_eq(
        reading_load(trace_mooncake_new_consume,
            "{\"timestamp\": 3000, \"input_length\": 1025, \"output_length\": 6, "
            "\"hash_ids\": [0, 1, 7]}\n"
            "{\"timestamp\": 3000, \"input_length\": 512, \"output_length\": 4, "
            "\"hash_ids\": [0]}\r\n"
            "{\"timestamp\": 3000.5, \"input_length\": 2, \"output_length\": 0, \"x\": null}",
            &trace, &error),
        0);
    ck_assert_uint_eq(trace.count, 3);
    reading_is(&trace.requests[0], 0, 1025, 6);
    reading_is(&trace.requests[1], 0, 512, 4);
    reading_is(&trace.requests[2], 500000, 2, 0);
    ck_assert_uint_eq(trace.requests[0].hash_count, 3);
    ck_assert_uint_eq(trace.requests[0].hash_ids[2], 7);
    ck_assert_uint_eq(trace.requests[1].hash_count, 1);
    ck_assert_uint_eq(trace.requests[1].hash_ids[0], 0);
    ck_assert_uint_eq(trace.requests[2].hash_count, 0);
    trace_free(&trace);
}
END_TEST

START_TEST(test_blocks_of_any_size_are_taken_but_not_more_than_tokens)
{
    struct trace_error error;
    struct trace trace;

    ck_assert_int_eq(reading_load(trace_mooncake_new_consume,
                         "{\"timestamp\":0,\"input_length\":2,\"output_length\":1,"
                         "\"hash_ids\":[5,6]}",
                         &trace, &error),
        0);
    ck_assert_uint_eq(trace.requests[0].hash_count, 2);
    trace_free(&trace);
    reading_refused(trace_mooncake_new_consume,
        "{\"timestamp\":0,\"input_length\":2,\"output_length\":1,\"hash_ids\":[5,6,7]}", -EBADMSG,
        1, "3 hash_ids for 2 tokens");
}
END_TEST

START_TEST(test_the_hash_ids_of_many_requests_stay_each_ones_own)
{
    _cleanup_free_ char *text = NULL;
    struct trace_error error;
    struct trace trace;
    size_t size = 0;
    FILE *file = open_memstream(&text, &size);

    ck_assert_ptr_nonnull(file);
    for (unsigned i = 0; i < 3000; i++)
        fprintf(file,
            "{\"timestamp\":%u,\"input_length\":9,\"output_length\":1,\"hash_ids\":[%u,%u]}\n",
            3000 - i, i, i + 1);
    ck_assert_int_eq(fclose(file), 0);
    ck_assert_int_eq(reading_load(trace_mooncake_new_consume, text, &trace, &error), 0);
    ck_assert_uint_eq(trace.count, 3000);
    for (unsigned i = 0; i < 3000; i++) {
        ck_assert_uint_eq(trace.requests[i].row, 2999 - i);
        ck_assert_uint_eq(trace.requests[i].hash_ids[0], 2999 - i);
        ck_assert_uint_eq(trace.requests[i].hash_ids[1], 3000 - i);
    }
    trace_free(&trace);
}
END_TEST

START_TEST(test_an_empty_file_holds_no_request)
{
    reading_refused(trace_mooncake_new_consume, "\n\n", -ENODATA, 0, "no request");
}
END_TEST

START_TEST(test_malformed_lines_are_refused_with_their_number)
{
    static const struct {
        const char *line, *what;
    } cases[] = {
        {"{\"timestamp\": 1, \"input_length\": 1, \"output_length\": 1", "column"},
        {"{\"timestamp\": 1, \"input_length\": 1, \"output_length\": 1} x", "column"},
        {"{\"timestamp\": 1, \"timestamp\": 2, \"input_length\": 1, \"output_length\": 1}",
            "duplicate"},
        {"[1]", "object"},
        {"{\"input_length\": 1, \"output_length\": 1}", "no timestamp"},
        {"{\"timestamp\": -1, \"input_length\": 1, \"output_length\": 1}", "timestamp"},
        {"{\"timestamp\": \"1\", \"input_length\": 1, \"output_length\": 1}", "timestamp"},
        {"{\"timestamp\": 1e300, \"input_length\": 1, \"output_length\": 1}", "timestamp"},
        {"{\"timestamp\": 10000000000001, \"input_length\": 1, \"output_length\": 1}", "timestamp"},
        {"{\"timestamp\": 1, \"output_length\": 1}", "no input_length"},
        {"{\"timestamp\": 1, \"input_length\": 1}", "no output_length"},
        {"{\"timestamp\": 1, \"input_length\": 1.5, \"output_length\": 1}", "input_length"},
        {"{\"timestamp\": 1, \"input_length\": -1, \"output_length\": 1}", "input_length"},
        {"{\"timestamp\": 1, \"input_length\": 1, \"output_length\": 100000001}", "output_length"},
        {"{\"timestamp\": 1, \"input_length\": 9223372036854775808, \"output_length\": 1}",
            "column"},
        {"{\"timestamp\": 1, \"input_length\": 1, \"output_length\": 1, \"hash_ids\": 5}",
            "hash_ids"},
        {"{\"timestamp\": 1, \"input_length\": 9, \"output_length\": 1, \"hash_ids\": [1, -2]}",
            "hash_ids[1]"},
        {"{\"timestamp\": 1, \"input_length\": 9, \"output_length\": 1, \"hash_ids\": [null]}",
            "hash_ids[0]"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        char text[512];

        (void) snprintf(text, sizeof(text),
            "\n{\"timestamp\": 1, \"input_length\": 1, \"output_length\": 1}\n%s\n", cases[i].line);
        reading_refused(trace_mooncake_new_consume, text, -EBADMSG, 3, cases[i].what);
    }
}
END_TEST

UNIT_MAIN("replay_mooncake", test_repeating_times_and_hash_ids_are_kept,
    test_blocks_of_any_size_are_taken_but_not_more_than_tokens,
    test_the_hash_ids_of_many_requests_stay_each_ones_own, test_an_empty_file_holds_no_request,
    test_malformed_lines_are_refused_with_their_number)
