/*
 * EVICT is one launch over the whole job: each page is read once, written into its slot and summed.
 *
 * CHECKSUM reads each page where it is.
 *
 * RESTORE is one launch too: slots are summed on their way to their pages, so that the bus is
 * crossed once. Nobody may look at a page until the job is answered; what turns out not to be what
 * was evicted is wiped before that.
 *
 * What lies on the disk goes by way of page-locked memory, a slab's worth at a time.
 *
 * PREPARE touches no page: the slab is there when a job needs it.
 */
#include "daemon/mover/lane.h"

#include <errno.h>
#include <string.h>

#include "daemon/mover/bounce.h"
#include "kernels/pages.h"

/* What a launch is told and what it answers: the same on device and host. */
struct tables {
    struct page_move moves[JOB_COPIES_MAX];
    uint64_t sums[JOB_COPIES_MAX];
};

_Static_assert(sizeof(struct tables) <= LANE_BYTES, "a lane's memory is its tables");

/* More blocks than this add nothing once the bus is busy; on the CPU they cost. */
#define BLOCKS_MAX 128
#define THREADS 128

struct lane {
    const struct device *device;
    struct slabs *slabs;
    CUstream stream;
    CUevent done;
    struct tables *host; /* page-locked */
    uint64_t memory;     /* struct tables on the device */
    struct bounce bounce;
};

/* Copies of a job that are done at once: all in memory, or all on the disk. */
struct batch {
    struct bounce_span span;
    const uint64_t *addresses; /* of the job's chunks */
    bool disk;
};

int lane_new(const struct device *device, struct slabs *slabs, uint64_t memory, struct lane **ret,
    struct gpu_error *error)
{
    const struct cuda_api *cuda = device->cuda;
    struct lane *lane = calloc(1, sizeof(*lane));
    void *host = NULL;
    int r;

    if (lane == NULL)
        return -ENOMEM;
    lane->device = device;
    lane->slabs = slabs;
    lane->memory = memory;
    r = device_check(device, cuda->stream_create(&lane->stream, CU_STREAM_NON_BLOCKING),
        "cuStreamCreate", error);
    if (r == 0)
        r = device_check(device,
            cuda->event_create(&lane->done, CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING),
            "cuEventCreate", error);
    if (r == 0)
        r = device_check(device,
            cuda->mem_host_alloc(&host, sizeof(struct tables), CU_MEMHOSTALLOC_PORTABLE),
            "cuMemHostAlloc", error);
    lane->host = host;
    if (r < 0) {
        lane_free(lane);
        return r;
    }
    *ret = lane;
    return 0;
}

struct lane *lane_free(struct lane *lane)
{
    if (lane == NULL)
        return NULL;
    bounce_close(&lane->bounce, lane->device);
    if (lane->host != NULL)
        (void) lane->device->cuda->mem_free_host(lane->host);
    if (lane->done != NULL)
        (void) lane->device->cuda->event_destroy(lane->done);
    if (lane->stream != NULL)
        (void) lane->device->cuda->stream_destroy(lane->stream);
    free(lane);
    return NULL;
}

/* ------------------------------------------------------------------ steps in the stream */

static int launch(struct lane *lane, CUfunction function, uint64_t blocks, void *arguments,
    const char *what, struct gpu_error *error)
{
    void *parameters[] = {arguments};

    return device_check(lane->device,
        lane->device->cuda->launch_kernel(function, (unsigned) MIN(blocks, (uint64_t) BLOCKS_MAX),
            1, 1, THREADS, 1, 1, 0, lane->stream, parameters, NULL),
        what, error);
}

/* Sends the first `count` moves and clears their sums. */
static int tables_send(struct lane *lane, size_t count, struct gpu_error *error)
{
    const struct cuda_api *cuda = lane->device->cuda;
    int r = device_check(lane->device,
        cuda->memcpy_htod_async(
            lane->memory, lane->host->moves, count * sizeof(struct page_move), lane->stream),
        "cuMemcpyHtoDAsync_v2", error);

    if (r == 0)
        r = device_check(lane->device,
            cuda->memset_d8_async(lane->memory + offsetof(struct tables, sums), 0,
                count * sizeof(uint64_t), lane->stream),
            "cuMemsetD8Async", error);
    return r;
}

/* Brings the sums back and waits for everything in the stream. */
static int lane_finish(struct lane *lane, size_t sums, struct gpu_error *error)
{
    const struct cuda_api *cuda = lane->device->cuda;
    int r = 0;

    if (sums > 0)
        r = device_check(lane->device,
            cuda->memcpy_dtoh_async(lane->host->sums, lane->memory + offsetof(struct tables, sums),
                sums * sizeof(uint64_t), lane->stream),
            "cuMemcpyDtoHAsync_v2", error);
    if (r == 0)
        r = device_check(
            lane->device, cuda->event_record(lane->done, lane->stream), "cuEventRecord", error);
    if (r == 0)
        r = device_check(
            lane->device, cuda->event_synchronize(lane->done), "cuEventSynchronize", error);
    return r;
}

static struct page_batch table_batch(const struct lane *lane, uint64_t count, uint64_t page_bytes)
{
    return (struct page_batch){
        .table = lane->memory + offsetof(struct tables, moves),
        .count = count,
        .page_bytes = page_bytes,
        .checksums = lane->memory + offsetof(struct tables, sums),
    };
}

static bool is_evict(const struct job *job)
{
    return job->kind == GMB__MOVER_JOB_KIND__MOVER_JOB_EVICT;
}

/* Its pages stay where they are: the tier has no part in it. */
static bool is_checksum(const struct job *job)
{
    return job->kind == GMB__MOVER_JOB_KIND__MOVER_JOB_CHECKSUM;
}

/* The launch that does `count` copies: gather or scatter, as the bytes are or quantized. */
static int batch_launch(
    struct lane *lane, const struct job *job, uint32_t count, struct gpu_error *error)
{
    const struct device *device = lane->device;
    struct page_batch batch = table_batch(lane, count, job->page_bytes);
    struct page_copy_args copy = {batch};
    struct page_checksum_args checksum = {batch};
    struct page_quantize_args quantize = {batch, job->element, job->format};
    struct page_dequantize_args dequantize = {batch, job->element, job->format};
    uint64_t blocks = page_units(count, job->page_bytes);

    if (is_checksum(job))
        return launch(lane, device->checksum, blocks, &checksum, "page_checksum", error);
    if (job->format == PAGE_FORMAT_RAW)
        return launch(lane, device->copy, blocks, &copy, "page_copy", error);
    if (job->kind == GMB__MOVER_JOB_KIND__MOVER_JOB_EVICT)
        return launch(lane, device->quantize, blocks, &quantize, "page_quantize", error);
    return launch(lane, device->dequantize, blocks, &dequantize, "page_dequantize", error);
}

/* ------------------------------------------------------------------ jobs */

/* The next ones from `first` on. */
static struct batch batch_next(
    const struct lane *lane, const struct job *job, const uint64_t *addresses, uint32_t first)
{
    bool disk = !is_checksum(job) && slabs_on_disk(lane->slabs, job->copies[first].tier_offset);
    uint64_t most = disk ? slabs_slab_bytes(lane->slabs) / job->slot_bytes : JOB_COPIES_MAX;
    uint32_t count = 1;

    while (count < most && first + count < job->copy_count &&
           (is_checksum(job) ||
               slabs_on_disk(lane->slabs, job->copies[first + count].tier_offset) == disk))
        count++;
    return (struct batch){
        .span = {.job = job, .first = first, .count = count},
        .addresses = addresses,
        .disk = disk,
    };
}

static int batch_copy(struct lane *lane, const struct batch *batch, struct gpu_error *error)
{
    const struct job *job = batch->span.job;
    bool restore = job->kind == GMB__MOVER_JOB_KIND__MOVER_JOB_RESTORE;
    int r = 0;

    for (uint32_t i = 0; r == 0 && i < batch->span.count; i++) {
        const struct job_copy *copy = &job->copies[batch->span.first + i];
        uint64_t page = batch->addresses[copy->chunk] + copy->chunk_offset;
        uint64_t slot = lane->bounce.address + i * job->slot_bytes;

        if (!batch->disk && !is_checksum(job))
            r = slabs_address(lane->slabs, copy->tier_offset, &slot, error);
        lane->host->moves[i] = (struct page_move){
            .src = restore ? slot : page,
            .dst = restore ? page : slot,
        };
    }
    if (r == 0)
        r = tables_send(lane, batch->span.count, error);
    if (r == 0)
        r = batch_launch(lane, job, batch->span.count, error);
    return r;
}

/* Zeroes the pages whose slots weren't intact. */
static int damaged_wipe(struct lane *lane, const struct batch *batch, struct gpu_error *error)
{
    const struct job *job = batch->span.job;
    struct page_scrub_args arguments;
    struct page_move *moves = lane->host->moves;
    size_t count = 0;
    int r;

    for (uint32_t i = 0; i < batch->span.count; i++) {
        if (lane->host->sums[i] != job->copies[batch->span.first + i].checksum)
            moves[count++] = moves[i];
    }
    if (count == 0)
        return 0;
    r = tables_send(lane, count, error);
    arguments.batch = table_batch(lane, count, job->page_bytes);
    if (r == 0)
        r = launch(lane, lane->device->scrub, page_units(count, job->page_bytes), &arguments,
            "page_scrub", error);
    return r == 0 ? lane_finish(lane, 0, error) : r;
}

static int batch_run(
    struct lane *lane, const struct batch *batch, uint64_t *ret_sums, struct gpu_error *error)
{
    bool evict = is_evict(batch->span.job);
    int r = 0, end;

    if (batch->disk)
        r = bounce_need(&lane->bounce, lane->device, lane->slabs, error);
    if (r == 0 && batch->disk && !evict)
        r = bounce_read(&lane->bounce, lane->slabs, &batch->span, error);
    if (r == 0)
        r = batch_copy(lane, batch, error);
    /* Also after a failure: what was launched before it still uses chunks and tables. */
    end = lane_finish(lane, r == 0 ? batch->span.count : 0, r == 0 ? error : NULL);
    if (r == 0)
        r = end;
    if (r < 0)
        return r;
    memcpy(ret_sums, lane->host->sums, batch->span.count * sizeof(uint64_t));
    if (is_checksum(batch->span.job))
        return 0;
    if (!evict)
        return damaged_wipe(lane, batch, error);
    return batch->disk ? bounce_write(&lane->bounce, lane->slabs, &batch->span, error) : 0;
}

static int copy(struct lane *lane, const struct job *job, const uint64_t *addresses,
    uint64_t *ret_sums, struct gpu_error *error)
{
    int r = 0;

    for (uint32_t first = 0; r == 0 && first < job->copy_count;) {
        struct batch batch = batch_next(lane, job, addresses, first);

        r = batch_run(lane, &batch, ret_sums + first, error);
        first += batch.span.count;
    }
    return r;
}

static int scrub(
    struct lane *lane, const struct job *job, const uint64_t *addresses, struct gpu_error *error)
{
    int r = 0;

    for (uint32_t i = 0; r == 0 && i < job->chunk_count; i++)
        r = device_check(lane->device,
            lane->device->cuda->memset_d8_async(
                addresses[i], 0, job->chunks[i].bytes, lane->stream),
            "cuMemsetD8Async", error);
    return r;
}

int lane_run(struct lane *lane, const struct job *job, const uint64_t *addresses,
    uint64_t *ret_sums, struct gpu_error *error)
{
    int r, end;

    if (job->kind == GMB__MOVER_JOB_KIND__MOVER_JOB_PREPARE)
        return slabs_prepare(lane->slabs, job->slab_offset, error);
    if (job->kind != GMB__MOVER_JOB_KIND__MOVER_JOB_SCRUB)
        return copy(lane, job, addresses, ret_sums, error);
    r = scrub(lane, job, addresses, error);
    end = lane_finish(lane, 0, r == 0 ? error : NULL);
    return r == 0 ? end : r;
}
