/*
 * Slabs: memory of cuMemAlloc that other processes open by a 64-byte token. The owner's chunk is
 * the allocation, an importer's the token: the driver is asked when it is mapped.
 *
 * Unlike those of virtual memory these calls need a current context. It is the device's primary
 * one, pushed for the call alone, so that the caller's thread keeps what it has.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/list.h"
#include "gpu/backend.h"

struct slab {
    CUdeviceptr address; /* of the owner; 0: imported */
    CUipcMemHandle token;
};
_Static_assert(sizeof(CUipcMemHandle) == GPU_IPC_TOKEN_SIZE, "a token is a handle's bytes");

/* A slab that this process has mapped, and how often: closing needs the context of its device. */
struct open {
    struct list link;
    CUdeviceptr address;
    const struct vmm_device *device;
    unsigned count;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct list opens = {&opens, &opens}; /* under lock */

static struct open *open_find(CUdeviceptr address)
{
    list_for_each(open, &opens, struct open, link)
    {
        if (open->address == address)
            return open;
    }
    return NULL;
}

static struct slab *slab_of(const struct gpu_chunk *chunk)
{
    return (struct slab *) (uintptr_t) chunk->handle;
}

/* -EINVAL when nobody has retained the context. */
static int enter(
    const struct vmm_gpu *gpu, const struct vmm_device *device, struct gpu_error *error)
{
    CUcontext context = __atomic_load_n(&device->context, __ATOMIC_ACQUIRE);

    if (context == NULL) {
        gpu_error_set(error, 0, "slabs need a context on %s", device->base.uuid);
        return -EINVAL;
    }
    return cuda_result_check(
        &gpu->cuda, gpu->cuda.ctx_push_current(context), "cuCtxPushCurrent_v2", error);
}

static void leave(const struct vmm_gpu *gpu)
{
    CUcontext popped;

    /* It was pushed: a failure is the sticky error that the call in between has told of. */
    (void) gpu->cuda.ctx_pop_current(&popped);
}

/* cuMemAlloc promises nothing about the bytes, and recycles what was freed in this process. */
static int wipe(
    const struct cuda_api *cuda, CUdeviceptr address, uint64_t bytes, struct gpu_error *error)
{
    int r = cuda_result_check(cuda, cuda->memset_d8(address, 0, bytes), "cuMemsetD8_v2", error);

    return r < 0 ? r : cuda_result_check(cuda, cuda->ctx_synchronize(), "cuCtxSynchronize", error);
}

/* The context is current. */
static int alloc_wiped(
    const struct cuda_api *cuda, uint64_t bytes, CUdeviceptr *ret, struct gpu_error *error)
{
    CUresult result = cuda->mem_alloc(ret, bytes);
    int r = cuda_result_check(cuda, result, "cuMemAlloc_v2", error);

    if (result == CUDA_ERROR_OUT_OF_MEMORY)
        return GPU_NO_MEMORY;
    if (r < 0)
        return r;
    r = wipe(cuda, *ret, bytes, error);
    if (r < 0)
        (void) cuda->mem_free(*ret);
    return r;
}

static int ipc_chunk_create(struct gpu *base, const struct gpu_device *device, uint64_t bytes,
    struct gpu_chunk *ret, struct gpu_error *error)
{
    const struct vmm_gpu *gpu = vmm_from_gpu(base);
    _cleanup_free_ struct slab *slab = NULL;
    int r;

    if (bytes == 0 || bytes % GPU_SLAB_BYTES != 0) {
        gpu_error_set(error, 0, "a slab is a multiple of %llu bytes, not %llu",
            (unsigned long long) GPU_SLAB_BYTES, (unsigned long long) bytes);
        return -EINVAL;
    }
    slab = calloc(1, sizeof(*slab));
    if (slab == NULL)
        return -ENOMEM;
    r = enter(gpu, vmm_from_device(device), error);
    if (r < 0)
        return r;
    r = alloc_wiped(&gpu->cuda, bytes, &slab->address, error);
    leave(gpu);
    if (r != GPU_OK)
        return r;
    *ret =
        (struct gpu_chunk){.device = device, .handle = (uintptr_t) TAKE_PTR(slab), .bytes = bytes};
    return GPU_OK;
}

static int ipc_chunk_export(struct gpu *base, const struct gpu_chunk *chunk,
    struct gpu_shareable *ret, struct gpu_error *error)
{
    const struct vmm_gpu *gpu = vmm_from_gpu(base);
    const struct slab *slab = slab_of(chunk);
    struct gpu_shareable shareable = {.type = GPU_HANDLE_IPC, .fd = -1};
    CUipcMemHandle token = slab->token;
    int r = 0;

    if (slab->address != 0) {
        r = enter(gpu, vmm_from_device(chunk->device), error);
        if (r < 0)
            return r;
        r = cuda_result_check(&gpu->cuda, gpu->cuda.ipc_get_mem_handle(&token, slab->address),
            "cuIpcGetMemHandle", error);
        leave(gpu);
    }
    if (r < 0)
        return r;
    memcpy(shareable.ipc_token, token.reserved, sizeof(shareable.ipc_token));
    *ret = shareable;
    return 0;
}

static int ipc_chunk_import(struct gpu *base, const struct gpu_device *device,
    const struct gpu_shareable *shareable, uint64_t bytes, struct gpu_chunk *ret,
    struct gpu_error *error)
{
    struct slab *slab;

    (void) base;
    if (shareable->type != GPU_HANDLE_IPC) {
        gpu_error_set(error, 0, "slabs are imported by token");
        return -EINVAL;
    }
    slab = calloc(1, sizeof(*slab));
    if (slab == NULL)
        return -ENOMEM;
    memcpy(slab->token.reserved, shareable->ipc_token, sizeof(shareable->ipc_token));
    *ret = (struct gpu_chunk){.device = device, .handle = (uintptr_t) slab, .bytes = bytes};
    return 0;
}

static int ipc_chunk_release(struct gpu *base, struct gpu_chunk *chunk, struct gpu_error *error)
{
    const struct vmm_gpu *gpu = vmm_from_gpu(base);
    const struct slab *slab = slab_of(chunk);
    int r = 0;

    if (chunk->device == NULL)
        return 0;
    /* Freeing needs no context. */
    if (slab->address != 0)
        r = cuda_result_check(&gpu->cuda, gpu->cuda.mem_free(slab->address), "cuMemFree_v2", error);
    if (r < 0)
        return r;
    free(slab_of(chunk));
    *chunk = (struct gpu_chunk){0};
    return 0;
}

static int ipc_range_reserve(struct gpu *base, uint64_t bytes, uint64_t align,
    uint64_t *ret_address, struct gpu_error *error)
{
    (void) base;
    (void) bytes;
    (void) align;
    (void) ret_address;
    gpu_error_set(error, 0, "addresses of slabs can't be reserved: the driver places them");
    return -EOPNOTSUPP;
}

static int ipc_range_free(
    struct gpu *base, uint64_t address, uint64_t bytes, struct gpu_error *error)
{
    return ipc_range_reserve(base, bytes, 0, &address, error);
}

/* Opens the token and notes it: the entry is there or `spare` becomes it. The lock is held, so that
 * nobody closes what lies at that address meanwhile. */
static int slab_open(const struct vmm_gpu *gpu, const struct vmm_device *device,
    const struct slab *slab, struct open **spare, CUdeviceptr *ret, struct gpu_error *error)
{
    struct open *open;
    int r = enter(gpu, device, error);

    if (r < 0)
        return r;
    r = cuda_result_check(&gpu->cuda,
        gpu->cuda.ipc_open_mem_handle(ret, slab->token, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
        "cuIpcOpenMemHandle_v2", error);
    leave(gpu);
    if (r < 0)
        return r;
    open = open_find(*ret);
    if (open == NULL) {
        open = TAKE_PTR(*spare);
        *open = (struct open){.address = *ret, .device = device};
        list_init(&open->link);
        list_append(&opens, &open->link);
    }
    open->count++;
    return 0;
}

static int ipc_chunk_map(struct gpu *base, const struct gpu_chunk *chunk, uint64_t address,
    uint64_t *ret_address, struct gpu_error *error)
{
    const struct slab *slab = slab_of(chunk);
    _cleanup_free_ struct open *spare = NULL;
    CUdeviceptr opened;
    int r;

    if (address != 0 || slab->address != 0) {
        gpu_error_set(error, 0, "a slab is mapped where the driver likes, by those who import it");
        return -EINVAL;
    }
    spare = malloc(sizeof(*spare));
    if (spare == NULL)
        return -ENOMEM;
    (void) pthread_mutex_lock(&lock);
    r = slab_open(vmm_from_gpu(base), vmm_from_device(chunk->device), slab, &spare, &opened, error);
    (void) pthread_mutex_unlock(&lock);
    if (r == 0 && ret_address != NULL)
        *ret_address = opened;
    return r;
}

static int ipc_span_set_access(struct gpu *base, const struct gpu_device *device, uint64_t address,
    uint64_t bytes, enum gpu_access access, struct gpu_error *error)
{
    (void) base;
    (void) device;
    (void) address;
    (void) bytes;
    if (access == GPU_ACCESS_READ_WRITE)
        return 0;
    gpu_error_set(error, 0, "whoever has opened a slab reads and writes it");
    return -EOPNOTSUPP;
}

/* The lock is held. */
static int slab_close(const struct vmm_gpu *gpu, CUdeviceptr address, struct gpu_error *error)
{
    struct open *open = open_find(address);
    int r;

    if (open == NULL) {
        gpu_error_set(error, 0, "no slab is mapped there");
        return -EINVAL;
    }
    r = enter(gpu, open->device, error);
    if (r < 0)
        return r;
    r = cuda_result_check(
        &gpu->cuda, gpu->cuda.ipc_close_mem_handle(address), "cuIpcCloseMemHandle", error);
    leave(gpu);
    if (r == 0 && --open->count == 0) {
        list_remove(&open->link);
        free(open);
    }
    return r;
}

static int ipc_span_unmap(
    struct gpu *base, uint64_t address, uint64_t bytes, struct gpu_error *error)
{
    int r;

    (void) bytes;
    (void) pthread_mutex_lock(&lock);
    r = slab_close(vmm_from_gpu(base), address, error);
    (void) pthread_mutex_unlock(&lock);
    return r;
}

const struct gpu_ops ipc_ops = {
    .memory_info = vmm_memory_info,
    .processes = vmm_processes,
    .chunk_create = ipc_chunk_create,
    .chunk_export = ipc_chunk_export,
    .chunk_import_borrow = ipc_chunk_import,
    .chunk_release = ipc_chunk_release,
    .context_retain = vmm_context_retain,
    .context_release = vmm_context_release,
    .context_synchronize = vmm_context_synchronize,
    .range_reserve = ipc_range_reserve,
    .range_free = ipc_range_free,
    .chunk_map = ipc_chunk_map,
    .span_set_access = ipc_span_set_access,
    .span_unmap = ipc_span_unmap,
    .close = vmm_close,
};
