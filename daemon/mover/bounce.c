/* See bounce.h. Slots that lie side by side on the disk are read and written in one call. */
#include "daemon/mover/bounce.h"

int bounce_need(struct bounce *bounce, const struct device *device, const struct slabs *slabs,
    struct gpu_error *error)
{
    const struct cuda_api *cuda = device->cuda;
    uint64_t bytes = slabs_slab_bytes(slabs);
    void *host = NULL;
    CUdeviceptr address;
    int r;

    if (bounce->host != NULL)
        return 0;
    r = device_check(device,
        cuda->mem_host_alloc(&host, bytes, CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP),
        "cuMemHostAlloc", error);
    if (r < 0)
        return r;
    address = (uintptr_t) host;
    if (cuda->mem_host_get_device_pointer != NULL)
        r = device_check(device, cuda->mem_host_get_device_pointer(&address, host, 0),
            "cuMemHostGetDevicePointer_v2", error);
    if (r < 0) {
        (void) cuda->mem_free_host(host);
        return r;
    }
    *bounce = (struct bounce){.host = host, .address = address, .bytes = bytes};
    return 0;
}

void bounce_close(struct bounce *bounce, const struct device *device)
{
    if (bounce->host != NULL)
        (void) device->cuda->mem_free_host(bounce->host);
    *bounce = (struct bounce){0};
}

/* How many copies from `at` on lie side by side. */
static uint32_t run_length(const struct bounce_span *span, uint32_t at)
{
    const struct job_copy *copies = &span->job->copies[span->first];
    uint32_t n = 1;

    while (at + n < span->count &&
           copies[at + n].tier_offset == copies[at + n - 1].tier_offset + span->job->slot_bytes)
        n++;
    return n;
}

int bounce_write(const struct bounce *bounce, struct slabs *slabs, const struct bounce_span *span,
    struct gpu_error *error)
{
    uint64_t slot = span->job->slot_bytes;
    uint32_t n;
    int r = 0;

    for (uint32_t i = 0; r == 0 && i < span->count; i += n) {
        n = run_length(span, i);
        r = slabs_disk_write(slabs, span->job->copies[span->first + i].tier_offset,
            bounce->host + i * slot, n * slot, error);
    }
    return r;
}

int bounce_read(const struct bounce *bounce, struct slabs *slabs, const struct bounce_span *span,
    struct gpu_error *error)
{
    uint64_t slot = span->job->slot_bytes;
    uint32_t n;
    int r = 0;

    for (uint32_t i = 0; r == 0 && i < span->count; i += n) {
        n = run_length(span, i);
        r = slabs_disk_read(slabs, span->job->copies[span->first + i].tier_offset,
            bounce->host + i * slot, n * slot, error);
    }
    return r;
}
