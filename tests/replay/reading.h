/* Traces from texts. */
#pragma once

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "client/replay/trace_lines.h"
#include "tests/unit/unit.h"

typedef int (*new_reader)(
    struct trace_lines *lines, struct trace_reader **ret, struct trace_error *error);

/* A reader over `size` bytes that must outlive it. */
static inline int reading_open(new_reader open, const char *text, size_t size,
    struct trace_reader **ret, struct trace_error *error)
{
    struct trace_lines *lines;
    FILE *file = fmemopen((void *) (uintptr_t) text, size, "r");

    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(trace_lines_new_consume(file, &lines), 0);
    return open(lines, ret, error);
}

/* Loads all of it, or gives the error. */
static inline int reading_load(
    new_reader open, const char *text, struct trace *ret, struct trace_error *error)
{
    struct trace_reader *reader;
    int r = reading_open(open, text, strlen(text), &reader, error);

    if (r < 0)
        return r;
    r = trace_load(reader, 0, ret, error);
    ck_assert_ptr_null(trace_close(reader));
    return r;
}

/* It must be refused at that line, with a text that holds `what`. */
static inline void reading_refused(
    new_reader open, const char *text, int code, uint64_t line, const char *what)
{
    struct trace_error error = {.line = 12345};
    struct trace trace;

    ck_assert_int_eq(reading_load(open, text, &trace, &error), code);
    ck_assert_msg(error.line == line, "line %llu instead of %llu: %s",
        (unsigned long long) error.line, (unsigned long long) line, error.text);
    ck_assert_msg(strstr(error.text, what) != NULL, "'%s' is not in '%s'", what, error.text);
}

static inline void reading_is(
    const struct trace_request *request, uint64_t arrival_ns, uint64_t context, uint64_t generated)
{
    ck_assert_uint_eq(request->arrival_ns, arrival_ns);
    ck_assert_uint_eq(request->context_tokens, context);
    ck_assert_uint_eq(request->generated_tokens, generated);
}
