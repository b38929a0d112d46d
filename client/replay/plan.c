/*
 * An event for each moment at which a request's memory changes, sorted by time; at equal times what
 * is given back comes first, as a pool would have it. Both questions walk the same events.
 */
#include "client/replay/plan.h"

#include <errno.h>

/* 2^27 events of 24 bytes are 3 GiB: a trace beyond that is to be cut with --limit. */
#define PLAN_EVENTS_MAX (UINT64_C(1) << 27)

struct event {
    uint64_t at_ns;
    uint32_t request;
    uint32_t serial; /* of the request's own events */
    int64_t chunks;  /* taken, or < 0: given back */
};

struct events {
    struct event *items;
    size_t count;
};

static void events_free(struct events *events)
{
    free(events->items);
}

/* Takes, growth by growth, and the end. */
static uint64_t events_of(const struct model *model, const struct trace_request *request)
{
    return model_request_chunks(model, request) - model_chunks(model, request->context_tokens) + 2;
}

static void events_add(struct events *events, const struct model *model,
    const struct trace_request *request, uint32_t index)
{
    uint64_t chunks = model_chunks(model, request->context_tokens);
    uint64_t last = model_request_chunks(model, request);
    uint64_t begin =
        add_saturate(request->arrival_ns, model_prefill_ns(model, request->context_tokens));
    struct event event = {
        .at_ns = request->arrival_ns, .request = index, .chunks = (int64_t) chunks};

    events->items[events->count++] = event;
    for (; chunks < last; chunks++) {
        uint64_t tokens = model_tokens_past(model, chunks) - request->context_tokens;

        event.serial++;
        event.at_ns = add_saturate(begin, model_decode_ns(model, tokens - 1));
        event.chunks = 1;
        events->items[events->count++] = event;
    }
    event.serial++;
    /* A request holds its memory for a moment at least, so that it takes before it gives. */
    event.at_ns = MAX(add_saturate(event.at_ns, 1),
        add_saturate(begin, model_decode_ns(model, request->generated_tokens)));
    event.chunks = -(int64_t) last;
    events->items[events->count++] = event;
}

static int by_time(const void *left, const void *right)
{
    const struct event *a = left, *b = right;

    if (a->at_ns != b->at_ns)
        return a->at_ns > b->at_ns ? 1 : -1;
    if ((a->chunks < 0) != (b->chunks < 0))
        return a->chunks < 0 ? -1 : 1;
    if (a->request != b->request)
        return a->request > b->request ? 1 : -1;
    return (a->serial > b->serial) - (a->serial < b->serial);
}

static int events_make(const struct trace *trace, const struct model *model, struct events *ret)
{
    uint64_t count = 0, chunks = 0;

    for (size_t i = 0; i < trace->count; i++) {
        uint64_t last = model_request_chunks(model, &trace->requests[i]);

        if (__builtin_add_overflow(chunks, last, &chunks) || chunks > INT64_MAX)
            return -EOVERFLOW;
        count += events_of(model, &trace->requests[i]);
        if (count > PLAN_EVENTS_MAX)
            return -EOVERFLOW;
    }
    if (__builtin_mul_overflow(chunks, model->chunk_bytes, &chunks))
        return -EOVERFLOW;
    ret->items = calloc(count, sizeof(*ret->items));
    if (!ret->items)
        return -ENOMEM;
    for (size_t i = 0; i < trace->count; i++)
        events_add(ret, model, &trace->requests[i], (uint32_t) i);
    qsort(ret->items, ret->count, sizeof(*ret->items), by_time);
    return 0;
}

/* A sum of chunks and the most that it ever was. */
struct level {
    int64_t now, peak;
};

static void level_add(struct level *level, int64_t chunks)
{
    level->now += chunks;
    level->peak = MAX(level->peak, level->now);
}

static void walk(const struct events *events, const struct plan_shape *shape, struct level *all,
    struct level *workers, struct level *tenants)
{
    for (size_t i = 0; i < events->count; i++) {
        const struct event *event = &events->items[i];

        level_add(all, event->chunks);
        level_add(&workers[event->request % shape->workers], event->chunks);
        level_add(&tenants[event->request % shape->tenants], event->chunks);
    }
}

void plan_peaks_free(struct plan_peaks *peaks)
{
    free(peaks->worker_bytes);
    free(peaks->tenant_bytes);
    *peaks = (struct plan_peaks){0};
}

int plan_peaks(const struct trace *trace, const struct model *model, const struct plan_shape *shape,
    struct plan_peaks *ret)
{
    _cleanup_(events_free) struct events events = {0};
    _cleanup_(plan_peaks_free) struct plan_peaks peaks = {0};
    _cleanup_free_ struct level *workers = calloc(shape->workers, sizeof(*workers));
    _cleanup_free_ struct level *tenants = calloc(shape->tenants, sizeof(*tenants));
    struct level all = {0};
    int r;

    peaks.worker_bytes = calloc(shape->workers, sizeof(*peaks.worker_bytes));
    peaks.tenant_bytes = calloc(shape->tenants, sizeof(*peaks.tenant_bytes));
    if (!workers || !tenants || !peaks.worker_bytes || !peaks.tenant_bytes)
        return -ENOMEM;
    r = events_make(trace, model, &events);
    if (r < 0)
        return r;
    walk(&events, shape, &all, workers, tenants);
    peaks.pooled_bytes = (uint64_t) all.peak * model->chunk_bytes;
    for (uint32_t w = 0; w < shape->workers; w++) {
        peaks.worker_bytes[w] = (uint64_t) workers[w].peak * model->chunk_bytes;
        peaks.static_bytes += peaks.worker_bytes[w];
    }
    for (uint32_t t = 0; t < shape->tenants; t++)
        peaks.tenant_bytes[t] = (uint64_t) tenants[t].peak * model->chunk_bytes;
    for (size_t i = 0; i < trace->count; i++) {
        uint64_t chunks = model_request_chunks(model, &trace->requests[i]);

        peaks.work_chunks += chunks;
        peaks.largest_bytes = MAX(peaks.largest_bytes, chunks * model->chunk_bytes);
    }
    peaks.service_ns = events.items[events.count - 1].at_ns;
    *ret = peaks;
    peaks = (struct plan_peaks){0};
    return 0;
}

int plan_static_refused(const struct trace *trace, const struct model *model,
    const struct plan_shape *shape, uint64_t device_bytes, uint64_t *ret_refused)
{
    _cleanup_(events_free) struct events events = {0};
    _cleanup_free_ int64_t *used = calloc(shape->workers, sizeof(*used));
    _cleanup_free_ int64_t *held = calloc(trace->count, sizeof(*held));
    int64_t room = (int64_t) (device_bytes / shape->workers / model->chunk_bytes);
    uint64_t refused = 0;
    int r;

    if (!used || !held)
        return -ENOMEM;
    r = events_make(trace, model, &events);
    if (r < 0)
        return r;
    for (size_t i = 0; i < events.count; i++) {
        const struct event *event = &events.items[i];
        int64_t *pool = &used[event->request % shape->workers];
        int64_t *mine = &held[event->request];

        if (*mine < 0) /* refused before */
            continue;
        if (event->chunks < 0) {
            *pool -= *mine;
        } else if (event->chunks > room - *pool) {
            *pool -= *mine;
            *mine = -1;
            refused++;
        } else {
            *pool += event->chunks;
            *mine += event->chunks;
        }
    }
    *ret_refused = refused;
    return 0;
}
