/*
 * EVICT is one launch over the whole job: each page is read once, written into its slot and summed.
 *
 * RESTORE must not write what isn't intact, and must not read the bus twice. So slots go to the
 * stage and are summed on the way; a small kernel takes the damaged ones out of the second table;
 * what is left goes on to its page, within the device. A job goes through the stage in groups that
 * fit, all in one stream, with nothing for the host to wait for in between. A slot larger than the
 * stage is summed where it is and read again.
 */
#include "daemon/mover/lane.h"

#include <errno.h>
#include <string.h>

#include "kernels/page_admit.h"
#include "kernels/pages.h"

/* Both tables of a job, and the numbers that belong to them: the same on device and host. */
struct tables {
    struct page_move first[JOB_COPIES_MAX];
    struct page_move second[JOB_COPIES_MAX];
    uint64_t expected[JOB_COPIES_MAX];
    uint64_t sums[JOB_COPIES_MAX];
};

#define STAGE_OFFSET (UINT64_C(64) << 10)
#define STAGE_BYTES (LANE_BYTES - STAGE_OFFSET)

_Static_assert(sizeof(struct tables) <= STAGE_OFFSET, "the stage begins behind the tables");

/* More blocks than this add nothing once the bus is busy; on the CPU they cost. */
#define BLOCKS_MAX 128
#define THREADS 128

struct lane {
    const struct device *device;
    struct slabs *slabs;
    CUstream stream;
    CUevent done;
    struct tables *host; /* page-locked */
    uint64_t memory;     /* struct tables, then the stage */
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

static int tables_send(struct lane *lane, const struct job *job, struct gpu_error *error)
{
    const struct cuda_api *cuda = lane->device->cuda;
    size_t bytes = job->kind == GMB__MOVER_JOB_KIND__MOVER_JOB_EVICT
                       ? job->copy_count * sizeof(struct page_move)
                       : offsetof(struct tables, sums);
    int r = device_check(lane->device,
        cuda->memcpy_htod_async(lane->memory, lane->host, bytes, lane->stream),
        "cuMemcpyHtoDAsync_v2", error);

    if (r == 0)
        r = device_check(lane->device,
            cuda->memset_d8_async(lane->memory + offsetof(struct tables, sums), 0,
                job->copy_count * sizeof(uint64_t), lane->stream),
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

/* Pages first … first + count of the job, by the first or the second table. */
static struct page_batch batch_make(const struct lane *lane, size_t table, uint64_t first,
    uint64_t count, uint64_t page_bytes, bool summed)
{
    return (struct page_batch){
        .table = lane->memory + table + first * sizeof(struct page_move),
        .count = count,
        .page_bytes = page_bytes,
        .checksums =
            summed ? lane->memory + offsetof(struct tables, sums) + first * sizeof(uint64_t) : 0,
    };
}

static int pack_launch(struct lane *lane, const struct job *job, struct gpu_error *error)
{
    struct page_batch batch =
        batch_make(lane, offsetof(struct tables, first), 0, job->copy_count, job->page_bytes, true);
    struct page_copy_args copy = {batch};
    struct page_quantize_args quantize = {batch, job->element, job->format};
    uint64_t blocks = page_units(job->copy_count, job->page_bytes);

    if (job->format == PAGE_FORMAT_RAW)
        return launch(lane, lane->device->copy, blocks, &copy, "page_copy", error);
    return launch(lane, lane->device->quantize, blocks, &quantize, "page_quantize", error);
}

static int unpack_launch(struct lane *lane, const struct job *job, uint64_t first, uint64_t count,
    struct gpu_error *error)
{
    struct page_batch batch =
        batch_make(lane, offsetof(struct tables, second), first, count, job->page_bytes, false);
    struct page_copy_args copy = {batch};
    struct page_dequantize_args dequantize = {batch, job->element, job->format};
    uint64_t blocks = page_units(count, job->page_bytes);

    if (job->format == PAGE_FORMAT_RAW)
        return launch(lane, lane->device->copy, blocks, &copy, "page_copy", error);
    return launch(lane, lane->device->dequantize, blocks, &dequantize, "page_dequantize", error);
}

/* Sums a group of slots, to the stage if it is `staged`, and lets the intact ones go on. */
static int group_restore(struct lane *lane, const struct job *job, uint64_t first, uint64_t count,
    bool staged, struct gpu_error *error)
{
    struct page_batch batch =
        batch_make(lane, offsetof(struct tables, first), first, count, job->slot_bytes, true);
    struct page_copy_args copy = {batch};
    struct page_checksum_args checksum = {batch};
    struct page_admit_args admit = {
        .table = lane->memory + offsetof(struct tables, second) + first * sizeof(struct page_move),
        .count = count,
        .checksums = batch.checksums,
        .expected = lane->memory + offsetof(struct tables, expected) + first * sizeof(uint64_t),
    };
    uint64_t blocks = page_units(count, job->slot_bytes);
    int r;

    if (staged)
        r = launch(lane, lane->device->copy, blocks, &copy, "page_copy", error);
    else
        r = launch(lane, lane->device->checksum, blocks, &checksum, "page_checksum", error);
    if (r == 0)
        r = launch(lane, lane->device->admit, (count + THREADS - 1) / THREADS, &admit, "page_admit",
            error);
    if (r == 0)
        r = unpack_launch(lane, job, first, count, error);
    return r;
}

/* ------------------------------------------------------------------ jobs */

static int evict(
    struct lane *lane, const struct job *job, const uint64_t *addresses, struct gpu_error *error)
{
    int r = 0;

    for (uint32_t i = 0; r == 0 && i < job->copy_count; i++) {
        const struct job_copy *copy = &job->copies[i];
        struct page_move *move = &lane->host->first[i];

        move->src = addresses[copy->chunk] + copy->chunk_offset;
        r = slabs_address(lane->slabs, copy->tier_offset, &move->dst, error);
    }
    if (r == 0)
        r = tables_send(lane, job, error);
    if (r == 0)
        r = pack_launch(lane, job, error);
    return r;
}

static int restore(
    struct lane *lane, const struct job *job, const uint64_t *addresses, struct gpu_error *error)
{
    uint64_t stage = lane->memory + STAGE_OFFSET, group = STAGE_BYTES / job->slot_bytes;
    bool staged = group > 0;
    int r = 0;

    if (!staged)
        group = job->copy_count;
    for (uint32_t i = 0; r == 0 && i < job->copy_count; i++) {
        const struct job_copy *copy = &job->copies[i];
        struct tables *host = lane->host;

        r = slabs_address(lane->slabs, copy->tier_offset, &host->first[i].src, error);
        host->first[i].dst = staged ? stage + i % group * job->slot_bytes : 0;
        host->second[i].src = staged ? host->first[i].dst : host->first[i].src;
        host->second[i].dst = addresses[copy->chunk] + copy->chunk_offset;
        host->expected[i] = copy->checksum;
    }
    if (r == 0)
        r = tables_send(lane, job, error);
    for (uint64_t first = 0; r == 0 && first < job->copy_count; first += group)
        r = group_restore(lane, job, first, MIN(group, job->copy_count - first), staged, error);
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

    if (job->kind == GMB__MOVER_JOB_KIND__MOVER_JOB_EVICT)
        r = evict(lane, job, addresses, error);
    else if (job->kind == GMB__MOVER_JOB_KIND__MOVER_JOB_RESTORE)
        r = restore(lane, job, addresses, error);
    else
        r = scrub(lane, job, addresses, error);
    /* Also after a failure: what was launched before it still uses chunks and tables. */
    end = lane_finish(lane, r == 0 ? job->copy_count : 0, r == 0 ? error : NULL);
    if (r == 0)
        r = end;
    if (r == 0 && job->copy_count > 0)
        memcpy(ret_sums, lane->host->sums, job->copy_count * sizeof(uint64_t));
    return r;
}
