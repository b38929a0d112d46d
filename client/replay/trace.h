/*
 * Request traces: one reader interface over the formats in the field and over our own generator.
 *
 * A reader is an iterator: it holds one line at a time, so that a trace may be larger than memory.
 * `trace_load()` drains one into an array, in the order of arrival, with the first arrival at 0.
 *
 * Formats, recognised by the first byte that isn't white space:
 *   azure     CSV with a header that names TIMESTAMP, ContextTokens and GeneratedTokens, in any
 *             order, among any others (Azure LLM inference traces of 2023 and 2024)
 *   mooncake  one JSON object a line with `timestamp` (ms), `input_length`, `output_length` and,
 *             optionally, `hash_ids` (Mooncake FAST'25 and the tools that write its format)
 *
 * A trace is input from outside: every bound is below, and whatever is malformed is refused with
 * its line number, never skipped.
 */
#pragma once

#include "base/macro.h"

/* Tokens in one prompt or one answer: ten times the longest context window on the market. */
#define TRACE_TOKENS_MAX UINT64_C(100000000)
/* A line: the block ids of 10 million tokens in blocks of 16 come to 6 MiB. */
#define TRACE_LINE_BYTES_MAX (8u * 1024u * 1024u)
/* Requests that are loaded at once: 64 bytes each with the pool's place, so at most 1 GiB. */
#define TRACE_REQUESTS_MAX (UINT64_C(1) << 24)

enum trace_outcome {
    TRACE_OK = 0,
    TRACE_END = 1, /* no further request */
};

enum trace_format {
    TRACE_FORMAT_AZURE,
    TRACE_FORMAT_MOONCAKE,
    TRACE_FORMAT_GENERATED,
    TRACE_FORMAT_MAX
};

struct trace_request {
    uint64_t row;        /* its place in the trace, from 0; filled by trace_load() */
    uint64_t arrival_ns; /* on the trace's own clock; after trace_load() since the first arrival */
    uint64_t context_tokens;
    uint64_t generated_tokens;
    /* Names of the prompt's blocks, equal ids standing for equal prefixes up to and including that
     * block; none where the trace has no such thing. How many tokens a block holds is the trace's
     * own affair (512 in Mooncake's), and the last one may be part full. */
    const uint64_t *hash_ids;
    size_t hash_count;
};

struct trace_error {
    uint64_t line; /* from 1; 0 when it isn't about a line */
    char text[160];
};

struct trace_reader;

/*
 * What a format implements. `next` writes a request whose hash_ids are valid until the next call:
 * TRACE_OK, TRACE_END, -EBADMSG (malformed; `error` says where and what) or another -errno.
 */
struct trace_ops {
    int (*next)(struct trace_reader *reader, struct trace_request *ret, struct trace_error *error);
    void (*close)(struct trace_reader *reader);
};

struct trace_reader {
    const struct trace_ops *ops;
    enum trace_format format;
};

const char *trace_format_name(enum trace_format format);

/* Opens the file, looks at its first byte and picks the format. -errno with `error` filled. */
int trace_open(const char *path, struct trace_reader **ret, struct trace_error *error) _must_check_;

/* Accepts NULL, returns NULL. */
struct trace_reader *trace_close(struct trace_reader *reader);

static inline void trace_close_ptr(struct trace_reader **reader)
{
    *reader = trace_close(*reader);
}

static inline int trace_next(
    struct trace_reader *reader, struct trace_request *ret, struct trace_error *error)
{
    return reader->ops->next(reader, ret, error);
}

/* A whole trace. `requests` and what their hash_ids point at are owned. */
struct trace {
    enum trace_format format;
    size_t count;
    struct trace_request *requests;
    uint64_t *hash_pool;
    uint64_t duration_ns; /* of the last arrival */
};

/*
 * Reads the first `limit` requests (0: all of them). Sorts by arrival, keeping the order of equal
 * times. -ENODATA for a trace without a request, -EBADMSG, -E2BIG, -ENOMEM or what reading met,
 * with `error` filled. `ret` is to be freed with trace_free().
 */
int trace_load(struct trace_reader *reader, uint64_t limit, struct trace *ret,
    struct trace_error *error) _must_check_;
void trace_free(struct trace *trace);

/* ---- for the formats ---- */

struct trace_lines;

/* Each takes ownership of the lines, on failure too. */
int trace_azure_new_consume(
    struct trace_lines *lines, struct trace_reader **ret, struct trace_error *error) _must_check_;
int trace_mooncake_new_consume(
    struct trace_lines *lines, struct trace_reader **ret, struct trace_error *error) _must_check_;

/* Fills `error` and returns `code`, so that a failure is one statement. */
int trace_fail(struct trace_error *error, int code, uint64_t line, const char *format, ...)
    _printf_(4, 5);
