/* The traces as they were published, where they are: what their own description says of them. */
#include <stdio.h>

#include "client/replay/trace.h"
#include "tests/unit/unit.h"

#define BLOCK_TOKENS 512

static const char *directory;

static void load(const char *name, struct trace *ret)
{
    struct trace_error error = {0};
    struct trace_reader *reader;
    char path[4096];

    (void) snprintf(path, sizeof(path), "%s/%s", directory, name);
    ck_assert_msg(trace_open(path, &reader, &error) == 0, "%s: %s", path, error.text);
    ck_assert_msg(trace_load(reader, 0, ret, &error) == 0, "%s:%llu: %s", path,
        (unsigned long long) error.line, error.text);
    ck_assert_ptr_null(trace_close(reader));
}

START_TEST(test_azure_conv_has_its_requests_and_its_duration)
{
    struct trace trace;

    load("azure_conv.csv", &trace);
    ck_assert_int_eq(trace.format, TRACE_FORMAT_AZURE);
    ck_assert_uint_eq(trace.count, 19366);
    ck_assert_uint_eq(trace.duration_ns / 1000000000, 3501); /* 3501.72 s */
    ck_assert_uint_eq(trace.requests[0].context_tokens, 374);
    ck_assert_uint_eq(trace.requests[19365].context_tokens, 197);
    ck_assert_uint_eq(trace.requests[19365].generated_tokens, 183);
    trace_free(&trace);
}
END_TEST

START_TEST(test_mooncake_synthetic_has_one_block_for_each_512_tokens)
{
    struct trace trace;
    uint64_t blocks = 0;

    load("mooncake_synthetic.jsonl", &trace);
    ck_assert_int_eq(trace.format, TRACE_FORMAT_MOONCAKE);
    ck_assert_uint_eq(trace.count, 3993);
    ck_assert_uint_eq(trace.duration_ns / 1000000, 1022025);
    for (size_t i = 0; i < trace.count; i++) {
        const struct trace_request *request = &trace.requests[i];

        ck_assert_uint_eq(
            request->hash_count, (request->context_tokens + BLOCK_TOKENS - 1) / BLOCK_TOKENS);
        blocks += request->hash_count;
    }
    ck_assert_uint_gt(blocks, 100000);
    trace_free(&trace);
}
END_TEST

int main(int argc, char *argv[])
{
    const TTest *const tests[] = {test_azure_conv_has_its_requests_and_its_duration,
        test_mooncake_synthetic_has_one_block_for_each_512_tokens};

    directory = argc > 1 ? argv[1] : "";
    if (access(directory, R_OK) != 0) {
        printf("1..0 # SKIP there is no %s\n", directory);
        return EXIT_SUCCESS;
    }
    return unit_run("replay_published", tests, ARRAY_SIZE(tests));
}
