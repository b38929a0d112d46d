/* What holds for every trace reader: bounds are kept, a refused line has a number, and loading
 * sorts and starts at 0. */
#pragma once

#include <errno.h>

#include "client/replay/trace_lines.h"
#include "tests/fuzz/fuzz.h"

/* Enough to be past every growth of an array. */
#define FUZZ_REQUESTS 5000

static inline void fuzz_trace_check(const struct trace *trace)
{
    FUZZ_CHECK(trace->count > 0 && trace->count <= FUZZ_REQUESTS);
    FUZZ_CHECK(trace->requests[0].arrival_ns == 0);
    for (size_t i = 0; i < trace->count; i++) {
        const struct trace_request *request = &trace->requests[i];

        FUZZ_CHECK(i == 0 || request->arrival_ns >= request[-1].arrival_ns);
        FUZZ_CHECK(request->context_tokens <= TRACE_TOKENS_MAX);
        FUZZ_CHECK(request->generated_tokens <= TRACE_TOKENS_MAX);
        FUZZ_CHECK(request->hash_count <= request->context_tokens);
        for (size_t h = 0; h < request->hash_count; h++)
            FUZZ_CHECK(request->hash_ids[h] <= INT64_MAX);
    }
}

static inline int fuzz_trace(const uint8_t *data, size_t size,
    int (*open)(struct trace_lines *, struct trace_reader **, struct trace_error *))
{
    struct trace_error error = {.line = 0};
    struct trace_reader *reader;
    struct trace_lines *lines;
    struct trace trace;
    FILE *file;
    int r;

    if (size == 0)
        return 0;
    file = fmemopen((void *) (uintptr_t) data, size, "r");
    if (file == NULL || trace_lines_new_consume(file, &lines) < 0)
        return 0;
    r = open(lines, &reader, &error);
    if (r == 0) {
        r = trace_load(reader, FUZZ_REQUESTS, &trace, &error);
        (void) trace_close(reader);
        if (r == 0) {
            fuzz_trace_check(&trace);
            trace_free(&trace);
        }
    }
    FUZZ_CHECK(r <= 0);
    FUZZ_CHECK(r == 0 || error.text[0] != '\0');
    FUZZ_CHECK((r == -EBADMSG) == (error.line > 0));
    return 0;
}
