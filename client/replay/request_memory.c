/* Patterns go over chunks as they come, and are compared before they go. */
#include "client/replay/request_memory.h"

static struct device_span span_of(const struct request *request, uint64_t first, uint64_t count)
{
    uint64_t chunk_bytes = gmb_lease_chunk_bytes(request->lease);

    return (struct device_span){
        .address = gmb_lease_address(request->lease) + first * chunk_bytes,
        .chunk_bytes = chunk_bytes,
        .first = first,
        .count = count,
        .owner = &request->owner,
    };
}

bool request_receive(struct request *request)
{
    uint64_t chunks = gmb_lease_bytes(request->lease) / gmb_lease_chunk_bytes(request->lease);
    struct device_span span = span_of(request, request->chunks, chunks - request->chunks);
    struct gpu_error error;

    stats_take(request->worker->params->stats, request->worker->params->index,
        span.count * span.chunk_bytes);
    request->chunks = chunks;
    if (device_receive(request->worker->device, &span, &error) == 0)
        return true;
    worker_fail(request->worker, "cannot write received memory: %s", error.text);
    return false;
}

bool request_check(struct request *request)
{
    struct device_span span = span_of(request, 0, request->chunks);
    struct stats_worker *stats = request->worker->stats;
    uint64_t foreign = 0, differing = 0;
    struct gpu_error error;

    if (device_check(request->worker->device, &span, &error) < 0 ||
        device_settle(request->worker->device, &foreign, &differing, &error) < 0) {
        worker_fail(request->worker, "cannot check memory: %s", error.text);
        return false;
    }
    atomic_fetch_add(&stats->checked_bytes, span.count * span.chunk_bytes);
    atomic_fetch_add(&stats->foreign_bytes, foreign);
    atomic_fetch_add(&stats->corrupt_bytes, foreign + differing);
    return true;
}

bool request_give_back(struct request *request)
{
    uint64_t bytes = request->chunks * gmb_lease_chunk_bytes(request->lease);
    int r;

    request->chunks = 0;
    stats_give(request->worker->params->stats, request->worker->params->index, bytes);
    r = gmb_lease_release(TAKE_PTR(request->lease));
    if (r < 0)
        worker_fail(request->worker, "cannot give memory back: %s", gmb_error_text());
    return r == 0;
}
