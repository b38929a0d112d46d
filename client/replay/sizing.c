/* Scales are tried from 1 upwards, since a chunk can't become smaller than the granularity: from
 * there on a larger scale saves less than it says. */
#include "client/replay/sizing.h"

#include <errno.h>
#include <math.h>

#include "base/clock.h"

#define CHUNK_TOKENS UINT64_C(128)
#define CHUNKS_PER_REQUEST UINT64_C(32)
#define PEAK_BYTES_MAX (UINT64_C(512) << 20)
/* What two cores write, check and fault in with room to spare. */
#define WORK_BYTES_PER_SECOND (UINT64_C(300) << 20)
#define SCALE_MAX (UINT64_C(1) << 20)
#define RUN_SECONDS 55
#define DEVICE_PERCENT 95
/* The driver's own granularity; the page of this machine, below which the simulator can't map. */
#define GRANULARITY_REAL (UINT64_C(2) << 20)
#define GRANULARITY_MIN (UINT64_C(4) << 10)

/* gmbd gives out its host tier by slabs of this size, each to one arena. */
#define HOST_SLAB_BYTES (UINT64_C(32) << 20)
#define HOST_PEAKS 4
/* The mover works with some 100 KiB on the device; a multiple of every granularity. */
#define RESERVE_BYTES GRANULARITY_REAL

static uint64_t choose_chunk_tokens(const struct trace *trace)
{
    uint64_t tokens = 0, chunk = CHUNK_TOKENS;

    for (size_t i = 0; i < trace->count; i++)
        tokens += trace->requests[i].context_tokens + trace->requests[i].generated_tokens;
    while (tokens / trace->count / chunk > CHUNKS_PER_REQUEST)
        chunk *= 2;
    return chunk;
}

static uint64_t choose_granularity(const struct sizing_wish *wish, uint64_t scale)
{
    uint64_t bytes = GRANULARITY_REAL;

    if (wish->granularity_bytes > 0)
        return wish->granularity_bytes;
    while (scale > 1 && bytes > GRANULARITY_MIN) {
        bytes /= 2;
        scale /= 2;
    }
    return bytes;
}

/* Model, granularity and peaks for one scale. False when the chunk can't shrink any more. */
static int try_scale(const struct trace *trace, const struct sizing_wish *wish, uint64_t tokens,
    uint64_t scale, struct sizing *sizing, bool *ret_shrinks)
{
    unsigned __int128 wanted =
        ((unsigned __int128) tokens * wish->kv_bytes_per_token + scale - 1) / scale;
    uint64_t granularity = choose_granularity(wish, scale);
    struct model model = {
        .kv_bytes_per_token = wish->kv_bytes_per_token,
        .scale = scale,
        .prefill_rate = wish->prefill_rate,
        .decode_rate = wish->decode_rate,
    };

    if (wanted > UINT64_MAX || !round_up((uint64_t) wanted, granularity, &model.chunk_bytes))
        return -EOVERFLOW;
    sizing->model = model;
    sizing->granularity_bytes = granularity;
    *ret_shrinks = wanted > granularity;
    plan_peaks_free(&sizing->peaks);
    return plan_peaks(trace, &sizing->model, &wish->shape, &sizing->peaks);
}

static double choose_speed(const struct sizing_wish *wish, const struct sizing *sizing)
{
    double seconds = (double) sizing->peaks.service_ns / (double) NSEC_PER_SEC;

    return wish->speed > 0 ? wish->speed : MAX(ceil(seconds / RUN_SECONDS), 1.0);
}

/* How long the run would take; a second at least, which starting and ending take anyway. */
static double run_seconds(const struct sizing_wish *wish, const struct sizing *sizing)
{
    double seconds = (double) sizing->peaks.service_ns / (double) NSEC_PER_SEC;

    return MAX(seconds / choose_speed(wish, sizing), 1.0);
}

static bool fits(const struct sizing_wish *wish, const struct sizing *sizing)
{
    uint64_t peak_max = wish->capacity_bytes > 0 ? wish->capacity_bytes : PEAK_BYTES_MAX;

    if (sizing->peaks.pooled_bytes / 100 * DEVICE_PERCENT > peak_max ||
        sizing->peaks.largest_bytes > peak_max)
        return false;
    return wish->bytes_are_cheap ||
           (double) sizing->peaks.work_chunks * (double) sizing->model.chunk_bytes <=
               (double) WORK_BYTES_PER_SECOND * run_seconds(wish, sizing);
}

static int choose_scale(
    const struct trace *trace, const struct sizing_wish *wish, struct sizing *sizing)
{
    uint64_t tokens = choose_chunk_tokens(trace), scale = wish->scale > 0 ? wish->scale : 1;
    bool shrinks;
    int r;

    for (;; scale *= 2) {
        r = try_scale(trace, wish, tokens, scale, sizing, &shrinks);
        if (r == -EOVERFLOW && wish->scale == 0 && scale < SCALE_MAX)
            continue;
        if (r < 0)
            return r;
        if (wish->scale > 0 || !shrinks || scale >= SCALE_MAX || fits(wish, sizing))
            return 0;
    }
}

/* A device of a size that was given has room for KV beside the weights. */
static void choose_device(const struct sizing_wish *wish, struct sizing *sizing)
{
    const uint64_t weights = sizing->weights_bytes * wish->shape.tenants;
    const uint64_t chunk = sizing->model.chunk_bytes;
    const uint64_t others = wish->shape.tenants - 1, largest = sizing->peaks.largest_bytes;
    uint64_t given = wish->capacity_bytes > 0 ? wish->capacity_bytes : wish->device_bytes;
    uint64_t device = given > 0 ? MAX(sub_saturate(given, weights), chunk) : 0, min, max;

    if (device == 0 && wish->load_percent > 0) {
        device = sizing->peaks.pooled_bytes / chunk * 100 / wish->load_percent * chunk;
        device = MAX(device, largest);
    } else if (device == 0) {
        uint32_t percent = wish->device_percent > 0 ? wish->device_percent : DEVICE_PERCENT;

        device = sizing->peaks.pooled_bytes / chunk * percent / 100 * chunk;
        device = MAX(device, largest);
    }
    min = device / (wish->arenas ? 2 : 4) / wish->shape.tenants;
    if (others > 0)
        min = MIN(min, sub_saturate(device, largest) / others);
    max = others > 0 ? MAX(device / 4 * 3, largest) : device;
    sizing->device_bytes = device + weights;
    sizing->memory_min_bytes = min / chunk * chunk + sizing->weights_bytes;
    sizing->memory_max_bytes =
        MIN(max / chunk * chunk, device / chunk * chunk) + sizing->weights_bytes;
}

int sizing_choose(const struct trace *trace, const struct sizing_wish *wish, struct sizing *ret)
{
    _cleanup_(sizing_free) struct sizing sizing = {0};
    int r;

    r = choose_scale(trace, wish, &sizing);
    if (r < 0)
        return r;
    if (!round_up(wish->weights_bytes / sizing.model.scale, sizing.granularity_bytes,
            &sizing.weights_bytes))
        return -EOVERFLOW;
    choose_device(wish, &sizing);
    sizing.speed = choose_speed(wish, &sizing);
    if (wish->arenas) {
        sizing.host_tier_bytes =
            HOST_PEAKS * sizing.peaks.pooled_bytes + wish->shape.workers * HOST_SLAB_BYTES;
        sizing.reserve_bytes = RESERVE_BYTES;
    } else if (sizing.weights_bytes > 0) {
        /* A mover sums them up, and works beside the device's memory as with arenas. */
        sizing.host_tier_bytes = HOST_SLAB_BYTES;
        sizing.reserve_bytes = RESERVE_BYTES;
    }
    *ret = sizing;
    sizing = (struct sizing){0};
    return 0;
}

void sizing_free(struct sizing *sizing)
{
    plan_peaks_free(&sizing->peaks);
}
