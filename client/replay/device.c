/*
 * Kernels go to one stream in the order of the calls, so that a chunk's fill is done before its
 * check begins without anyone waiting. Counters lie in pinned host memory, which the kernels add
 * to only when they find something; they are read and reset when the stream is idle.
 */
#include "client/replay/device.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "gpu/driver_text.h"
#include "gpu/loader.h"
#include "kernels/kernels.h"
#include "kernels/pattern.h"

#define BLOCK_THREADS 128
/* One block for each 16 KiB: on a GPU 8 stores of 16 bytes a thread, on a CPU little overhead. */
#define BLOCK_BYTES UINT64_C(16384)
#define GRID_MAX UINT64_C(4096)

enum kernel { KERNEL_FILL, KERNEL_CHECK, KERNEL_FOREIGN, KERNEL_MAX };

static const char *const kernel_names[] = {
    [KERNEL_FILL] = "pattern_fill",
    [KERNEL_CHECK] = "pattern_check",
    [KERNEL_FOREIGN] = "pattern_foreign",
};
static_assert(ARRAY_SIZE(kernel_names) == KERNEL_MAX, "a kernel without a name");

struct counters {
    uint64_t foreign, differing;
};

struct device {
    struct gpu *gpu;
    const struct gpu_device *info;
    struct CUctx_st *context; /* retained */
    CUstream stream;
    CUmodule module;
    CUfunction kernels[KERNEL_MAX];
    struct counters *counters; /* pinned; its host address is its device address too */
};

struct device *device_close(struct device *device)
{
    if (!device)
        return NULL;
    if (device->stream) {
        (void) device->gpu->cuda->stream_synchronize(device->stream);
        (void) device->gpu->cuda->stream_destroy(device->stream);
    }
    if (device->module)
        (void) device->gpu->cuda->module_unload(device->module);
    if (device->counters)
        (void) device->gpu->cuda->mem_free_host(device->counters);
    if (device->context) {
        (void) device->gpu->cuda->ctx_set_current(NULL);
        (void) device->gpu->ops->context_release(device->gpu, device->info, NULL);
    }
    (void) gpu_close(device->gpu);
    free(device);
    return NULL;
}

static int load_kernels(struct device *device, struct gpu_error *error)
{
    const struct cuda_api *cuda = device->gpu->cuda;
    int r;

    r = cuda_result_check(
        cuda, cuda->module_load_data(&device->module, kernels_ptx), "cuModuleLoadData", error);
    for (size_t k = 0; r == 0 && k < KERNEL_MAX; k++)
        r = cuda_result_check(cuda,
            cuda->module_get_function(&device->kernels[k], device->module, kernel_names[k]),
            "cuModuleGetFunction", error);
    return r;
}

static int prepare(struct device *device, struct gpu_error *error)
{
    const struct cuda_api *cuda = device->gpu->cuda;
    void *counters;
    int r;

    r = device->gpu->ops->context_retain(device->gpu, device->info, &device->context, error);
    if (r < 0)
        return r;
    r = cuda_result_check(cuda, cuda->ctx_set_current(device->context), "cuCtxSetCurrent", error);
    if (r < 0)
        return r;
    r = cuda_result_check(cuda, cuda->stream_create(&device->stream, CU_STREAM_NON_BLOCKING),
        "cuStreamCreate", error);
    if (r < 0)
        return r;
    r = cuda_result_check(
        cuda, cuda->mem_host_alloc(&counters, sizeof(struct counters), 0), "cuMemHostAlloc", error);
    if (r < 0)
        return r;
    device->counters = counters;
    *device->counters = (struct counters){0};
    return load_kernels(device, error);
}

int device_open(
    enum gpu_driver driver, const char *uuid, struct device **ret, struct gpu_error *error)
{
    _cleanup_(device_close_ptr) struct device *device = calloc(1, sizeof(*device));
    int r;

    if (!device) {
        gpu_error_set(error, 0, "no memory");
        return -ENOMEM;
    }
    r = gpu_open(driver, GPU_ROLE_CLIENT, &device->gpu, error);
    if (r < 0)
        return r;
    device->info = gpu_device_find(device->gpu, uuid);
    if (!device->info) {
        gpu_error_set(error, 0, "this process doesn't see the device %s", uuid);
        return -ENODEV;
    }
    r = prepare(device, error);
    if (r < 0)
        return r;
    *ret = TAKE_PTR(device);
    return 0;
}

int device_enter(struct device *device, struct gpu_error *error)
{
    return cuda_result_check(device->gpu->cuda, device->gpu->cuda->ctx_set_current(device->context),
        "cuCtxSetCurrent", error);
}

static int launch(
    struct device *device, enum kernel kernel, uint64_t bytes, void *args, struct gpu_error *error)
{
    const struct cuda_api *cuda = device->gpu->cuda;
    uint64_t blocks = MIN((bytes + BLOCK_BYTES - 1) / BLOCK_BYTES, GRID_MAX);
    void *parameters[] = {args};

    return cuda_result_check(cuda,
        cuda->launch_kernel(device->kernels[kernel], (unsigned) blocks, 1, 1, BLOCK_THREADS, 1, 1,
            0, device->stream, parameters, NULL),
        "cuLaunchKernel", error);
}

int device_receive(struct device *device, const struct device_span *span, struct gpu_error *error)
{
    int r = 0;

    for (uint64_t i = 0; r == 0 && i < span->count; i++) {
        uint64_t address = span->address + i * span->chunk_bytes;
        uint64_t seed = pattern_owner_seed(span->owner, span->first + i);
        struct pattern_foreign_args foreign = {
            .src = address,
            .bytes = span->chunk_bytes,
            .seed = seed,
            .kin_mask = PATTERN_KIN_MASK,
            .owner_mask = PATTERN_OWNER_MASK,
            .foreign = (uintptr_t) &device->counters->foreign,
        };
        struct pattern_fill_args fill = {.dst = address, .bytes = span->chunk_bytes, .seed = seed};

        r = launch(device, KERNEL_FOREIGN, span->chunk_bytes, &foreign, error);
        if (r == 0)
            r = launch(device, KERNEL_FILL, span->chunk_bytes, &fill, error);
    }
    return r;
}

int device_check(struct device *device, const struct device_span *span, struct gpu_error *error)
{
    int r = 0;

    for (uint64_t i = 0; r == 0 && i < span->count; i++) {
        struct pattern_check_args check = {
            .src = span->address + i * span->chunk_bytes,
            .bytes = span->chunk_bytes,
            .seed = pattern_owner_seed(span->owner, span->first + i),
            .differing = (uintptr_t) &device->counters->differing,
        };

        r = launch(device, KERNEL_CHECK, span->chunk_bytes, &check, error);
    }
    return r;
}

int device_settle(
    struct device *device, uint64_t *ret_foreign, uint64_t *ret_differing, struct gpu_error *error)
{
    const struct cuda_api *cuda = device->gpu->cuda;
    int r;

    r = cuda_result_check(
        cuda, cuda->stream_synchronize(device->stream), "cuStreamSynchronize", error);
    if (r < 0)
        return r;
    *ret_foreign = device->counters->foreign;
    *ret_differing = device->counters->differing;
    *device->counters = (struct counters){0};
    return 0;
}
