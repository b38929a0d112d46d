/*
 * Legacy IPC: a 64-byte handle that names a chunk on the ledger and an allocation in it. Opening
 * maps the whole chunk, as the real driver maps the whole block, and holds it by the mapping.
 */
#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "base/list.h"
#include "gpu/sim/chunk.h"
#include "gpu/sim/va.h"

#define IPC_MAGIC UINT64_C(0x6370692d6d6973) /* "sim-ipc" */

struct ipc_handle {
    uint64_t magic;
    uint32_t slot, generation;
    uint64_t offset, bytes;
    uint64_t unused[4];
};
_Static_assert(sizeof(struct ipc_handle) == CU_IPC_HANDLE_SIZE, "fills the opaque bytes");

/* What one context has opened. */
struct import {
    struct list in_all;
    CUcontext context;
    struct ipc_handle handle;
    CUdeviceptr base; /* of the mapping */
    uint64_t bytes;
    unsigned references;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct list imports = {&imports, &imports};

CUresult cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr address)
{
    CUcontext context;
    CUresult result = sim_enter_context(__func__, &context);
    struct sim_legacy_info info;
    struct ipc_handle made = {.magic = IPC_MAGIC};

    if (result != CUDA_SUCCESS)
        return result;
    if (handle == NULL || !sim_legacy_find(address, &info))
        return CUDA_ERROR_INVALID_VALUE;
    chunk_share(info.handle);
    made.slot = chunk_id(info.handle).slot;
    made.generation = chunk_id(info.handle).generation;
    made.offset = info.offset;
    made.bytes = info.bytes;
    memcpy(handle->reserved, &made, sizeof(made));
    return CUDA_SUCCESS;
}

static struct import *import_find(CUcontext context, const struct ipc_handle *handle)
{
    list_for_each(it, &imports, struct import, in_all)
    {
        if (it->context == context && memcmp(&it->handle, handle, sizeof(*handle)) == 0)
            return it;
    }
    return NULL;
}

/* Maps the chunk for the context's device. */
static CUresult import_map(struct import *import)
{
    const struct ledger_id id = {import->handle.slot, import->handle.generation};
    struct va_memory memory = {.context = import->context};
    struct ledger_chunk_info *info = &memory.chunk;
    unsigned device = (unsigned) sim_device_index(sim_context_device(import->context));
    _cleanup_close_ int fd = ledger_chunk_attach(sim_ledger(), id, info);
    CUresult result;

    if (fd == -EBUSY)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (fd < 0)
        return sim_error(fd);
    if ((info->flags & LEDGER_CHUNK_LEGACY) == 0 || import->handle.offset >= info->bytes ||
        import->handle.bytes > info->bytes - import->handle.offset)
        return CUDA_ERROR_INVALID_VALUE;
    if (sim_device_ordinal(info->device) < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    import->bytes = info->bytes;
    result = va_reserve(SIM_MEMORY_IPC, info->bytes, 0, 0, &import->base);
    if (result != CUDA_SUCCESS)
        return result;
    result = va_map(SIM_MEMORY_IPC, import->base, info->bytes, fd, &memory);
    if (result == CUDA_SUCCESS)
        result = va_set_access(import->base, info->bytes, device, SIM_ACCESS_WRITE);
    return result;
}

/* Accepts NULL and one that is half made. */
static void import_free(struct import **at)
{
    struct import *import = *at;
    CUresult result;

    if (import == NULL)
        return;
    if (import->base != 0) {
        /* Nothing is mapped when the map was what failed. */
        result = va_unmap(SIM_MEMORY_IPC, import->base, import->bytes);
        result = va_release(SIM_MEMORY_IPC, import->base, import->bytes);
        if (result != CUDA_SUCCESS)
            sim_poison(CUDA_ERROR_UNKNOWN);
    }
    list_remove(&import->in_all);
    free(import);
}

static CUresult import_make(CUcontext context, const struct ipc_handle *handle, CUdeviceptr *ret)
{
    _cleanup_(import_free) struct import *import = calloc(1, sizeof(*import));
    CUresult result;

    if (import == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    list_init(&import->in_all);
    import->context = context;
    import->handle = *handle;
    import->references = 1;
    result = import_map(import);
    if (result != CUDA_SUCCESS)
        return result;
    *ret = import->base + handle->offset;
    list_append(&imports, &import->in_all);
    (void) TAKE_PTR(import);
    return CUDA_SUCCESS;
}

CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *address, CUipcMemHandle handle, unsigned int flags)
{
    CUcontext context;
    CUresult result = sim_enter_context(__func__, &context);
    struct ipc_handle named;
    struct import *import;

    if (result != CUDA_SUCCESS)
        return result;
    memcpy(&named, handle.reserved, sizeof(named));
    if (address == NULL || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS || named.magic != IPC_MAGIC)
        return CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&lock);
    import = import_find(context, &named);
    if (import == NULL) {
        result = import_make(context, &named, address);
    } else {
        import->references++;
        *address = import->base + named.offset;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

CUresult cuIpcCloseMemHandle(CUdeviceptr address)
{
    CUcontext context;
    CUresult result = sim_enter_context(__func__, &context);
    struct import *import = NULL;

    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&lock);
    list_for_each(it, &imports, struct import, in_all)
    {
        if (it->context == context && it->base + it->handle.offset == address)
            import = it;
    }
    if (import == NULL)
        result = CUDA_ERROR_INVALID_VALUE;
    else if (--import->references == 0)
        import_free(&import);
    pthread_mutex_unlock(&lock);
    return result;
}

bool sim_ipc_find(CUdeviceptr address, CUdeviceptr *ret_base, uint64_t *ret_bytes)
{
    bool found = false;

    pthread_mutex_lock(&lock);
    list_for_each(it, &imports, struct import, in_all)
    {
        CUdeviceptr base = it->base + it->handle.offset;

        if (address >= base && address - base < it->handle.bytes) {
            *ret_base = base;
            *ret_bytes = it->handle.bytes;
            found = true;
        }
    }
    pthread_mutex_unlock(&lock);
    return found;
}

void sim_ipc_context_end(CUcontext context)
{
    pthread_mutex_lock(&lock);
    list_for_each_safe(it, &imports, struct import, in_all)
    {
        struct import *import = it;

        if (it->context == context)
            import_free(&import);
    }
    pthread_mutex_unlock(&lock);
}
