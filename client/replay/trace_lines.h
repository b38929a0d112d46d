/*
 * Lines of a text file, with numbers, whatever ends them: LF, CRLF, or the end of the file.
 * Empty lines are passed over and counted. A byte order mark before the first line is dropped.
 */
#pragma once

#include <stdio.h>

#include "client/replay/trace.h"

/* Takes ownership of `file`, on failure too. -ENOMEM. */
int trace_lines_new_consume(FILE *file, struct trace_lines **ret) _must_check_;
struct trace_lines *trace_lines_free(struct trace_lines *lines);

static inline void trace_lines_free_ptr(struct trace_lines **lines)
{
    *lines = trace_lines_free(*lines);
}

/*
 * The next line that isn't empty, NUL-terminated, without its end, writable until the next call.
 * TRACE_OK, TRACE_END; -EBADMSG for a NUL byte within it or more than TRACE_LINE_BYTES_MAX;
 * -EIO and its like when reading fails.
 */
int trace_lines_next(
    struct trace_lines *lines, char **ret_text, size_t *ret_size, struct trace_error *error);

/* Number of the line that was returned last, from 1. */
uint64_t trace_lines_number(const struct trace_lines *lines);

/* The first byte of the file that isn't white space, or EOF. Nothing is consumed but white space
 * in front; to be called before the first line is read. */
int trace_lines_peek(struct trace_lines *lines);
