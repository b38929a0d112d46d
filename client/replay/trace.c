/*
 * Opening and loading. The loader keeps the hash ids of all requests in one pool: while it grows,
 * requests hold offsets in it; once all are read, the offsets become pointers.
 */
#include "client/replay/trace.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <string.h>

#include "client/replay/trace_lines.h"

const char *trace_format_name(enum trace_format format)
{
    static const char *const names[] = {
        [TRACE_FORMAT_AZURE] = "azure",
        [TRACE_FORMAT_MOONCAKE] = "mooncake",
        [TRACE_FORMAT_GENERATED] = "generated",
    };
    static_assert(ARRAY_SIZE(names) == TRACE_FORMAT_MAX, "a format without a name");

    return (unsigned) format < TRACE_FORMAT_MAX ? names[format] : "unknown";
}

int trace_fail(struct trace_error *error, int code, uint64_t line, const char *format, ...)
{
    va_list args;

    error->line = line;
    va_start(args, format);
    (void) vsnprintf(error->text, sizeof(error->text), format, args);
    va_end(args);
    return code;
}

int trace_open(const char *path, struct trace_reader **ret, struct trace_error *error)
{
    _cleanup_(trace_lines_free_ptr) struct trace_lines *lines = NULL;
    FILE *file = fopen(path, "re");
    int r;

    if (!file) {
        r = -errno;
        return trace_fail(error, r, 0, "%s", strerror(-r));
    }
    r = trace_lines_new_consume(file, &lines);
    if (r < 0)
        return trace_fail(error, r, 0, "%s", strerror(-r));
    if (trace_lines_peek(lines) == '{')
        return trace_mooncake_new_consume(TAKE_PTR(lines), ret, error);
    return trace_azure_new_consume(TAKE_PTR(lines), ret, error);
}

struct trace_reader *trace_close(struct trace_reader *reader)
{
    if (reader)
        reader->ops->close(reader);
    return NULL;
}

void trace_free(struct trace *trace)
{
    free(trace->requests);
    free(trace->hash_pool);
    *trace = (struct trace){0};
}

struct loading {
    struct trace trace;
    size_t capacity;
    size_t pool_count, pool_capacity;
    size_t *offsets; /* of each request in the pool */
};

/* Makes room for one more element; arrays double. */
static int reserve(void *array, size_t element, size_t needed, size_t *capacity)
{
    void **at = array;
    size_t wanted = MAX(*capacity, (size_t) 1024);
    void *grown;

    if (needed <= *capacity)
        return 0;
    while (wanted < needed)
        wanted *= 2;
    grown = reallocarray(*at, wanted, element);
    if (!grown)
        return -ENOMEM;
    *at = grown;
    *capacity = wanted;
    return 0;
}

static int add(struct loading *loading, const struct trace_request *request)
{
    struct trace *trace = &loading->trace;
    size_t capacity = loading->capacity;
    int r;

    r = reserve(&loading->offsets, sizeof(size_t), trace->count + 1, &capacity);
    if (r < 0)
        return r;
    r = reserve(&trace->requests, sizeof(*trace->requests), trace->count + 1, &loading->capacity);
    if (r < 0)
        return r;
    r = reserve(&trace->hash_pool, sizeof(uint64_t), loading->pool_count + request->hash_count,
        &loading->pool_capacity);
    if (r < 0)
        return r;
    if (request->hash_count > 0)
        memcpy(trace->hash_pool + loading->pool_count, request->hash_ids,
            request->hash_count * sizeof(uint64_t));
    loading->offsets[trace->count] = loading->pool_count;
    loading->pool_count += request->hash_count;
    trace->requests[trace->count++] = *request;
    return 0;
}

/* By arrival, equal ones in the order of the trace. */
static int by_arrival(const void *left, const void *right)
{
    const struct trace_request *a = left, *b = right;

    if (a->arrival_ns != b->arrival_ns)
        return a->arrival_ns > b->arrival_ns ? 1 : -1;
    return (a->row > b->row) - (a->row < b->row);
}

static void finish(struct loading *loading)
{
    struct trace *trace = &loading->trace;
    uint64_t first;

    for (size_t i = 0; i < trace->count; i++)
        trace->requests[i].hash_ids =
            trace->requests[i].hash_count > 0 ? trace->hash_pool + loading->offsets[i] : NULL;
    qsort(trace->requests, trace->count, sizeof(*trace->requests), by_arrival);
    first = trace->requests[0].arrival_ns;
    for (size_t i = 0; i < trace->count; i++)
        trace->requests[i].arrival_ns -= first;
    trace->duration_ns = trace->requests[trace->count - 1].arrival_ns;
}

static void loading_end(struct loading *loading)
{
    free(loading->offsets);
    trace_free(&loading->trace);
}

int trace_load(
    struct trace_reader *reader, uint64_t limit, struct trace *ret, struct trace_error *error)
{
    _cleanup_(loading_end) struct loading loading = {.trace.format = reader->format};
    struct trace_request request;
    int r;

    while (limit == 0 || loading.trace.count < limit) {
        r = trace_next(reader, &request, error);
        if (r == TRACE_END)
            break;
        if (r < 0)
            return r;
        if (loading.trace.count == TRACE_REQUESTS_MAX)
            return trace_fail(error, -E2BIG, 0, "more than %llu requests: use --limit",
                (unsigned long long) TRACE_REQUESTS_MAX);
        request.row = loading.trace.count;
        r = add(&loading, &request);
        if (r < 0)
            return trace_fail(error, r, 0, "no memory for the trace");
    }
    if (loading.trace.count == 0)
        return trace_fail(error, -ENODATA, 0, "no request in it");
    finish(&loading);
    *ret = loading.trace;
    loading.trace = (struct trace){0};
    return 0;
}
