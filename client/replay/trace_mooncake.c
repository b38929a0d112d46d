/*
 * Mooncake's traces: one JSON object a line. Times repeat (they are rounded to batches of the
 * collector) and that is kept. `hash_ids` is optional, and the size of a block is not assumed to
 * be Mooncake's 512 tokens, since other tools write the format with other sizes; only more blocks
 * than tokens are refused. Keys that we don't know are passed over.
 */
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "client/replay/trace_lines.h"

struct mooncake {
    struct trace_reader reader;
    struct trace_lines *lines;
    uint64_t *hash_ids;
    size_t hash_capacity;
};

static void json_decref_ptr(json_t **json)
{
    json_decref(*json);
}

static int read_tokens(
    const json_t *object, const char *key, uint64_t line, uint64_t *ret, struct trace_error *error)
{
    const json_t *value = json_object_get(object, key);

    if (!value)
        return trace_fail(error, -EBADMSG, line, "no %s", key);
    if (!json_is_integer(value) || json_integer_value(value) < 0 ||
        (uint64_t) json_integer_value(value) > TRACE_TOKENS_MAX)
        return trace_fail(error, -EBADMSG, line, "%s is no number of tokens", key);
    *ret = (uint64_t) json_integer_value(value);
    return 0;
}

/* Milliseconds, whole or not, up to three hundred years. */
static int read_time(
    const json_t *object, uint64_t line, uint64_t *ret_ns, struct trace_error *error)
{
    const json_t *value = json_object_get(object, "timestamp");
    const double max_ms = 1e13;

    if (!value)
        return trace_fail(error, -EBADMSG, line, "no timestamp");
    if (!json_is_number(value) || !(json_number_value(value) >= 0) ||
        json_number_value(value) > max_ms)
        return trace_fail(error, -EBADMSG, line, "timestamp is no time in milliseconds");
    if (json_is_integer(value))
        *ret_ns = (uint64_t) json_integer_value(value) * NSEC_PER_MSEC;
    else
        *ret_ns = (uint64_t) llround(json_real_value(value) * 1e6);
    return 0;
}

static int read_hashes(struct mooncake *mooncake, const json_t *object, uint64_t line,
    struct trace_request *request, struct trace_error *error)
{
    const json_t *array = json_object_get(object, "hash_ids");
    size_t count = json_array_size(array);

    if (!array || json_is_null(array))
        return 0;
    if (!json_is_array(array))
        return trace_fail(error, -EBADMSG, line, "hash_ids is no list");
    if (count > request->context_tokens)
        return trace_fail(error, -EBADMSG, line, "%zu hash_ids for %llu tokens of input", count,
            (unsigned long long) request->context_tokens);
    if (count > mooncake->hash_capacity) {
        uint64_t *grown = reallocarray(mooncake->hash_ids, count, sizeof(*grown));

        if (!grown)
            return trace_fail(error, -ENOMEM, line, "no memory for hash_ids");
        mooncake->hash_ids = grown;
        mooncake->hash_capacity = count;
    }
    for (size_t i = 0; i < count; i++) {
        const json_t *id = json_array_get(array, i);

        if (!json_is_integer(id) || json_integer_value(id) < 0)
            return trace_fail(error, -EBADMSG, line, "hash_ids[%zu] is no block's name", i);
        mooncake->hash_ids[i] = (uint64_t) json_integer_value(id);
    }
    request->hash_ids = mooncake->hash_ids;
    request->hash_count = count;
    return 0;
}

static int mooncake_next(
    struct trace_reader *reader, struct trace_request *ret, struct trace_error *error)
{
    struct mooncake *mooncake = container_of(reader, struct mooncake, reader);
    _cleanup_(json_decref_ptr) json_t *object = NULL;
    struct trace_request request = {0};
    json_error_t json_error;
    uint64_t line;
    char *text;
    size_t size;
    int r;

    r = trace_lines_next(mooncake->lines, &text, &size, error);
    if (r != TRACE_OK)
        return r;
    line = trace_lines_number(mooncake->lines);
    object = json_loadb(text, size, JSON_REJECT_DUPLICATES, &json_error);
    if (!object)
        return trace_fail(
            error, -EBADMSG, line, "column %d: %s", json_error.column, json_error.text);
    if (!json_is_object(object))
        return trace_fail(error, -EBADMSG, line, "no JSON object");
    r = read_time(object, line, &request.arrival_ns, error);
    if (r < 0)
        return r;
    r = read_tokens(object, "input_length", line, &request.context_tokens, error);
    if (r < 0)
        return r;
    r = read_tokens(object, "output_length", line, &request.generated_tokens, error);
    if (r < 0)
        return r;
    r = read_hashes(mooncake, object, line, &request, error);
    if (r < 0)
        return r;
    *ret = request;
    return TRACE_OK;
}

static void mooncake_close(struct trace_reader *reader)
{
    struct mooncake *mooncake = container_of(reader, struct mooncake, reader);

    (void) trace_lines_free(mooncake->lines);
    free(mooncake->hash_ids);
    free(mooncake);
}

static const struct trace_ops mooncake_ops = {.next = mooncake_next, .close = mooncake_close};

int trace_mooncake_new_consume(
    struct trace_lines *lines, struct trace_reader **ret, struct trace_error *error)
{
    struct mooncake *mooncake = calloc(1, sizeof(*mooncake));

    if (!mooncake) {
        (void) trace_lines_free(lines);
        return trace_fail(error, -ENOMEM, 0, "no memory");
    }
    mooncake->reader = (struct trace_reader){.ops = &mooncake_ops, .format = TRACE_FORMAT_MOONCAKE};
    mooncake->lines = lines;
    *ret = &mooncake->reader;
    return 0;
}
