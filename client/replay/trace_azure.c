/*
 * Azure's LLM inference traces: CSV with a header. Columns are found by name, so that traces with
 * other orders or further columns work. Times are local, with up to nine decimals, and may carry a
 * zone (`2024-05-10 00:00:00.009930+00:00`); only their differences matter, so that a zone that is
 * the same in all rows is as good as none. Fields may be quoted as RFC 4180 has it, without line
 * ends inside.
 */
#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "client/replay/text.h"
#include "client/replay/trace_lines.h"

enum azure_column {
    AZURE_COLUMN_TIMESTAMP,
    AZURE_COLUMN_CONTEXT,
    AZURE_COLUMN_GENERATED,
    AZURE_COLUMN_MAX
};

static const char *const column_names[] = {
    [AZURE_COLUMN_TIMESTAMP] = "TIMESTAMP",
    [AZURE_COLUMN_CONTEXT] = "ContextTokens",
    [AZURE_COLUMN_GENERATED] = "GeneratedTokens",
};
static_assert(ARRAY_SIZE(column_names) == AZURE_COLUMN_MAX, "a column without a name");

struct azure {
    struct trace_reader reader;
    struct trace_lines *lines;
    size_t place[AZURE_COLUMN_MAX]; /* of each column in a row */
    size_t columns;                 /* in the header: each row must have as many */
};

/* Takes the next field out of a line, in place. False when there is none left (`*rest` is NULL)
 * or its quotes don't end (`*ret` is NULL). */
static bool field_next(char **rest, char **ret)
{
    char *read = *rest, *write = *rest;

    *ret = NULL;
    if (!read)
        return false;
    if (*read != '"') {
        *ret = strsep(rest, ",");
        return true;
    }
    for (read++; *read != '"' || read[1] == '"'; read++) {
        if (*read == '\0')
            return false;
        if (*read == '"')
            read++;
        *write++ = *read;
    }
    read++;
    if (*read != ',' && *read != '\0')
        return false;
    *ret = *rest;
    *rest = *read == ',' ? read + 1 : NULL;
    *write = '\0';
    return true;
}

static int read_header(struct azure *azure, struct trace_error *error)
{
    bool found[AZURE_COLUMN_MAX] = {false};
    char *rest, *field;
    size_t size;
    uint64_t line;
    int r;

    r = trace_lines_next(azure->lines, &rest, &size, error);
    if (r == TRACE_END)
        return trace_fail(error, -ENODATA, 0, "the file is empty");
    if (r < 0)
        return r;
    line = trace_lines_number(azure->lines);
    for (; field_next(&rest, &field); azure->columns++)
        for (size_t c = 0; c < AZURE_COLUMN_MAX; c++) {
            if (strcmp(text_trim(field), column_names[c]) != 0)
                continue;
            if (found[c])
                return trace_fail(error, -EBADMSG, line, "two columns %s", column_names[c]);
            found[c] = true;
            azure->place[c] = azure->columns;
        }
    if (rest)
        return trace_fail(error, -EBADMSG, line, "a quote that doesn't end");
    for (size_t c = 0; c < AZURE_COLUMN_MAX; c++)
        if (!found[c])
            return trace_fail(error, -EBADMSG, line,
                "no column %s in the header: neither an "
                "Azure trace nor JSON lines",
                column_names[c]);
    return 0;
}

static int read_value(struct azure *azure, enum azure_column column, char *field,
    struct trace_request *request, struct trace_error *error)
{
    const char *text = text_trim(field);
    bool good = false;

    switch (column) {
    case AZURE_COLUMN_TIMESTAMP:
        good = text_parse_time(text, &request->arrival_ns);
        break;
    case AZURE_COLUMN_CONTEXT:
        good = text_parse_uint(text, TRACE_TOKENS_MAX, &request->context_tokens);
        break;
    case AZURE_COLUMN_GENERATED:
        good = text_parse_uint(text, TRACE_TOKENS_MAX, &request->generated_tokens);
        break;
    case AZURE_COLUMN_MAX:
        break;
    }
    if (!good)
        return trace_fail(error, -EBADMSG, trace_lines_number(azure->lines), "%s is no %s: '%.40s'",
            column_names[column],
            column == AZURE_COLUMN_TIMESTAMP ? "date and time" : "number of tokens", text);
    return 0;
}

static int azure_next(
    struct trace_reader *reader, struct trace_request *ret, struct trace_error *error)
{
    struct azure *azure = container_of(reader, struct azure, reader);
    struct trace_request request = {0};
    char *rest, *field;
    size_t size, place = 0;
    int r;

    r = trace_lines_next(azure->lines, &rest, &size, error);
    if (r != TRACE_OK)
        return r;
    for (; field_next(&rest, &field); place++)
        for (size_t c = 0; c < AZURE_COLUMN_MAX; c++) {
            if (place != azure->place[c])
                continue;
            r = read_value(azure, (enum azure_column) c, field, &request, error);
            if (r < 0)
                return r;
        }
    if (rest)
        return trace_fail(
            error, -EBADMSG, trace_lines_number(azure->lines), "a quote that doesn't end");
    if (place != azure->columns)
        return trace_fail(error, -EBADMSG, trace_lines_number(azure->lines),
            "%zu fields under a header of %zu", place, azure->columns);
    *ret = request;
    return TRACE_OK;
}

static void azure_close(struct trace_reader *reader)
{
    struct azure *azure = container_of(reader, struct azure, reader);

    (void) trace_lines_free(azure->lines);
    free(azure);
}

static const struct trace_ops azure_ops = {.next = azure_next, .close = azure_close};

int trace_azure_new_consume(
    struct trace_lines *lines, struct trace_reader **ret, struct trace_error *error)
{
    struct azure *azure = calloc(1, sizeof(*azure));
    int r;

    if (!azure) {
        (void) trace_lines_free(lines);
        return trace_fail(error, -ENOMEM, 0, "no memory");
    }
    azure->reader = (struct trace_reader){.ops = &azure_ops, .format = TRACE_FORMAT_AZURE};
    azure->lines = lines;
    r = read_header(azure, error);
    if (r < 0) {
        azure_close(&azure->reader);
        return r;
    }
    *ret = &azure->reader;
    return 0;
}
