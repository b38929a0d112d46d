/*
 * Chunks as CUDA virtual memory: one handle is one chunk, mapped whole and at offset 0, exported as
 * a POSIX fd. The driver holds all state; a chunk is one reference to it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/backend.h"

static const CUmemAccess_flags access_flags[] = {
    [GPU_ACCESS_NONE] = CU_MEM_ACCESS_FLAGS_PROT_NONE,
    [GPU_ACCESS_READ] = CU_MEM_ACCESS_FLAGS_PROT_READ,
    [GPU_ACCESS_READ_WRITE] = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
};
_Static_assert(ARRAY_SIZE(access_flags) == GPU_ACCESS_MAX, "a flag for each access");

CUmemAllocationProp vmm_chunk_properties(const struct vmm_device *device)
{
    /* RDMA capability can't be added later, and registration with a NIC fails without it. */
    return (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = device->base.posix_fd ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
                                                      : CU_MEM_HANDLE_TYPE_NONE,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device->ordinal},
        .allocFlags = {.gpuDirectRDMACapable = device->base.rdma},
    };
}

static int vmm_chunk_create(struct gpu *base, const struct gpu_device *device, uint64_t bytes,
    struct gpu_chunk *ret, struct gpu_error *error)
{
    const struct cuda_api *cuda = &vmm_from_gpu(base)->cuda;
    CUmemAllocationProp properties = vmm_chunk_properties(vmm_from_device(device));
    CUmemGenericAllocationHandle handle;
    CUresult result = cuda->mem_create(&handle, bytes, &properties, 0);
    int r = cuda_result_check(cuda, result, "cuMemCreate", error);

    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        return GPU_NO_MEMORY;
    if (r < 0)
        return r;
    *ret = (struct gpu_chunk){.device = device, .handle = handle, .bytes = bytes};
    return GPU_OK;
}

static int vmm_chunk_export(struct gpu *base, const struct gpu_chunk *chunk,
    struct gpu_shareable *ret, struct gpu_error *error)
{
    const struct cuda_api *cuda = &vmm_from_gpu(base)->cuda;
    _cleanup_close_ int fd = -1;
    int r = cuda_result_check(cuda,
        cuda->mem_export_to_shareable_handle(
            &fd, chunk->handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
        "cuMemExportToShareableHandle", error);

    if (r < 0)
        return r;
    /* The driver doesn't promise CLOEXEC. */
    if (fcntl(fd, F_SETFD, FD_CLOEXEC) < 0) {
        r = -errno;
        gpu_error_set(error, 0, "cuMemExportToShareableHandle gave fd %d, which is none", fd);
        return r;
    }
    *ret = (struct gpu_shareable){.type = GPU_HANDLE_POSIX_FD, .fd = TAKE_FD(fd)};
    return 0;
}

static int vmm_chunk_import(struct gpu *base, const struct gpu_device *device,
    const struct gpu_shareable *shareable, uint64_t bytes, struct gpu_chunk *ret,
    struct gpu_error *error)
{
    const struct cuda_api *cuda = &vmm_from_gpu(base)->cuda;
    CUmemGenericAllocationHandle handle;
    int r;

    if (shareable->type != GPU_HANDLE_POSIX_FD || shareable->fd < 0) {
        gpu_error_set(error, 0, "chunks of this driver are imported by fd");
        return -EINVAL;
    }
    /* The fd travels by value in the pointer. */
    r = cuda_result_check(cuda,
        cuda->mem_import_from_shareable_handle(
            &handle, (void *) (uintptr_t) shareable->fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
        "cuMemImportFromShareableHandle", error);
    if (r < 0)
        return r;
    *ret = (struct gpu_chunk){.device = device, .handle = handle, .bytes = bytes};
    return 0;
}

static int vmm_chunk_release(struct gpu *base, struct gpu_chunk *chunk, struct gpu_error *error)
{
    const struct cuda_api *cuda = &vmm_from_gpu(base)->cuda;
    int r;

    if (chunk->device == NULL)
        return 0;
    r = cuda_result_check(cuda, cuda->mem_release(chunk->handle), "cuMemRelease", error);
    if (r == 0)
        *chunk = (struct gpu_chunk){0};
    return r;
}

int vmm_context_retain(struct gpu *base, const struct gpu_device *device,
    struct CUctx_st **ret_context, struct gpu_error *error)
{
    struct vmm_gpu *gpu = vmm_from_gpu(base);
    struct vmm_device *owned = &gpu->devices[vmm_from_device(device) - gpu->devices];
    CUcontext context;
    int r = cuda_result_check(&gpu->cuda, gpu->cuda.primary_ctx_retain(&context, owned->ordinal),
        "cuDevicePrimaryCtxRetain", error);

    if (r < 0)
        return r;
    __atomic_store_n(&owned->context, context, __ATOMIC_RELEASE);
    *ret_context = context;
    return 0;
}

int vmm_context_release(struct gpu *base, const struct gpu_device *device, struct gpu_error *error)
{
    const struct cuda_api *cuda = &vmm_from_gpu(base)->cuda;

    return cuda_result_check(cuda, cuda->primary_ctx_release(vmm_from_device(device)->ordinal),
        "cuDevicePrimaryCtxRelease_v2", error);
}

int vmm_context_synchronize(struct gpu *base, struct CUctx_st *context, struct gpu_error *error)
{
    const struct cuda_api *cuda = &vmm_from_gpu(base)->cuda;
    CUcontext popped;
    int r = cuda_result_check(cuda, cuda->ctx_push_current(context), "cuCtxPushCurrent_v2", error);
    int popping;

    if (r < 0)
        return r;
    r = cuda_result_check(cuda, cuda->ctx_synchronize(), "cuCtxSynchronize", error);
    /* The first failure is the one to tell. */
    popping = cuda_result_check(
        cuda, cuda->ctx_pop_current(&popped), "cuCtxPopCurrent_v2", r < 0 ? NULL : error);
    return r < 0 ? r : popping;
}

static int vmm_range_reserve(struct gpu *base, uint64_t bytes, uint64_t align,
    uint64_t *ret_address, struct gpu_error *error)
{
    const struct cuda_api *cuda = &vmm_from_gpu(base)->cuda;
    CUdeviceptr address;
    int r = cuda_result_check(cuda, cuda->mem_address_reserve(&address, bytes, align, 0, 0),
        "cuMemAddressReserve", error);

    if (r < 0)
        return r;
    /* Some drivers hardly heed the alignment: a range that can't be mapped into is no range. */
    if (align != 0 && address % align != 0) {
        (void) cuda->mem_address_free(address, bytes);
        gpu_error_set(error, 0, "cuMemAddressReserve gave an address not aligned to %llu",
            (unsigned long long) align);
        return -EIO;
    }
    *ret_address = address;
    return 0;
}

static int vmm_range_free(
    struct gpu *base, uint64_t address, uint64_t bytes, struct gpu_error *error)
{
    const struct cuda_api *cuda = &vmm_from_gpu(base)->cuda;

    return cuda_result_check(
        cuda, cuda->mem_address_free(address, bytes), "cuMemAddressFree", error);
}

static int vmm_chunk_map(struct gpu *base, const struct gpu_chunk *chunk, uint64_t address,
    uint64_t *ret_address, struct gpu_error *error)
{
    const struct cuda_api *cuda = &vmm_from_gpu(base)->cuda;
    int r = cuda_result_check(
        cuda, cuda->mem_map(address, chunk->bytes, 0, chunk->handle, 0), "cuMemMap", error);

    if (r == 0 && ret_address != NULL)
        *ret_address = address;
    return r;
}

static int vmm_span_set_access(struct gpu *base, const struct gpu_device *device, uint64_t address,
    uint64_t bytes, enum gpu_access access, struct gpu_error *error)
{
    const struct cuda_api *cuda = &vmm_from_gpu(base)->cuda;
    CUmemAccessDesc descriptor = {
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = vmm_from_device(device)->ordinal},
        .flags = access_flags[access],
    };

    return cuda_result_check(
        cuda, cuda->mem_set_access(address, bytes, &descriptor, 1), "cuMemSetAccess", error);
}

static int vmm_span_unmap(
    struct gpu *base, uint64_t address, uint64_t bytes, struct gpu_error *error)
{
    const struct cuda_api *cuda = &vmm_from_gpu(base)->cuda;

    return cuda_result_check(cuda, cuda->mem_unmap(address, bytes), "cuMemUnmap", error);
}

void vmm_close(struct gpu *base)
{
    struct vmm_gpu *gpu = vmm_from_gpu(base);

    vmm_nvml_close(gpu);
    /* A driver that has run has threads and fork handlers: it stays loaded to the end. */
    if (!gpu->cuda_entered)
        cuda_unload(&gpu->cuda);
    free(gpu->devices);
    free(gpu->device_bases);
    free(gpu);
}

const struct gpu_ops vmm_ops = {
    .memory_info = vmm_memory_info,
    .processes = vmm_processes,
    .chunk_create = vmm_chunk_create,
    .chunk_export = vmm_chunk_export,
    .chunk_import_borrow = vmm_chunk_import,
    .chunk_release = vmm_chunk_release,
    .context_retain = vmm_context_retain,
    .context_release = vmm_context_release,
    .context_synchronize = vmm_context_synchronize,
    .range_reserve = vmm_range_reserve,
    .range_free = vmm_range_free,
    .chunk_map = vmm_chunk_map,
    .span_set_access = vmm_span_set_access,
    .span_unmap = vmm_span_unmap,
    .close = vmm_close,
};
