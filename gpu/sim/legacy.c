/*
 * cuMemAlloc: allocations cut out of blocks. A block is one chunk, reserved, mapped and accessible
 * at once; it goes when its last allocation does. What is smaller than a block shares one of 2 MiB
 * with others of its context, first fit at multiples of 512 bytes; the rest gets a block of its
 * own. So allocations are neighbours in one block and one IPC export shows them all, as with the
 * real driver.
 */
#include <pthread.h>

#include "base/list.h"
#include "gpu/sim/chunk.h"
#include "gpu/sim/stream.h"
#include "gpu/sim/va.h"

#define BLOCK_BYTES (UINT64_C(2) << 20)
#define ALIGNMENT 512u

struct allocation {
    struct list in_block; /* by offset */
    uint64_t offset, bytes;
};

struct block {
    struct list in_all;
    CUcontext context;
    CUdeviceptr base; /* 0 until reserved */
    uint64_t bytes, handle;
    bool mapped;
    struct list allocations;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct list blocks = {&blocks, &blocks};

/* Accepts NULL and a block that is half made. The pieces are ours alone: no step can be refused. */
static void block_free(struct block **at)
{
    struct block *block = *at;
    CUresult result = CUDA_SUCCESS;

    if (block == NULL)
        return;
    if (block->mapped)
        result = va_unmap(SIM_MEMORY_LEGACY, block->base, block->bytes);
    if (result == CUDA_SUCCESS && block->base != 0)
        result = va_release(SIM_MEMORY_LEGACY, block->base, block->bytes);
    if (result == CUDA_SUCCESS && block->handle != 0)
        result = chunk_release(block->handle);
    if (result != CUDA_SUCCESS)
        sim_poison(CUDA_ERROR_UNKNOWN);
    list_remove(&block->in_all);
    free(block);
}

static CUresult block_map(struct block *block)
{
    struct va_memory memory = {.handle = block->handle, .context = block->context};
    _cleanup_close_ int fd = -1;
    CUresult result;

    result = va_reserve(SIM_MEMORY_LEGACY, block->bytes, 0, 0, &block->base);
    if (result != CUDA_SUCCESS)
        return result;
    result = chunk_mapped(block->handle, &memory.chunk, &fd);
    if (result != CUDA_SUCCESS)
        return result;
    result = va_map(SIM_MEMORY_LEGACY, block->base, block->bytes, fd, &memory);
    if (result != CUDA_SUCCESS) {
        chunk_unmapped(block->handle);
        return result;
    }
    block->mapped = true;
    return va_set_access(block->base, block->bytes, memory.chunk.device, SIM_ACCESS_WRITE);
}

static CUresult block_make(CUcontext context, uint64_t bytes, struct block **ret)
{
    struct ledger_chunk_info info = {
        .device = (unsigned) sim_device_index(sim_context_device(context)),
        .flags = LEDGER_CHUNK_LEGACY,
    };
    _cleanup_(block_free) struct block *block = calloc(1, sizeof(*block));
    CUresult result;

    if (block == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    list_init(&block->in_all);
    list_init(&block->allocations);
    block->context = context;
    if (!round_up(bytes, MAX(BLOCK_BYTES, sim_config()->hardware.granularity), &block->bytes))
        return CUDA_ERROR_OUT_OF_MEMORY;
    info.bytes = block->bytes;
    result = chunk_create(&info, &block->handle);
    if (result == CUDA_SUCCESS)
        result = block_map(block);
    if (result == CUDA_SUCCESS) {
        list_append(&blocks, &block->in_all);
        *ret = TAKE_PTR(block);
    }
    return result;
}

/* Puts the allocation into the first gap that holds it. */
static bool block_place(struct block *block, struct allocation *allocation)
{
    struct list *after = &block->allocations;
    uint64_t at = 0;

    list_for_each(it, &block->allocations, struct allocation, in_block)
    {
        if (it->offset - at >= allocation->bytes)
            break;
        if (!round_up(it->offset + it->bytes, ALIGNMENT, &at))
            return false;
        after = &it->in_block;
    }
    if (at > block->bytes || block->bytes - at < allocation->bytes)
        return false;
    allocation->offset = at;
    list_insert_after(after, &allocation->in_block);
    return true;
}

static CUresult alloc_locked(
    CUcontext context, struct allocation *allocation, CUdeviceptr *ret_address)
{
    struct block *block = NULL;
    CUresult result;

    list_for_each(it, &blocks, struct block, in_all)
    {
        if (it->context == context && it->bytes == BLOCK_BYTES && allocation->bytes < BLOCK_BYTES &&
            block_place(it, allocation)) {
            *ret_address = it->base + allocation->offset;
            return CUDA_SUCCESS;
        }
    }
    result = block_make(context, allocation->bytes, &block);
    if (result != CUDA_SUCCESS)
        return result;
    if (!block_place(block, allocation)) {
        block_free(&block);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *ret_address = block->base + allocation->offset;
    return CUDA_SUCCESS;
}

CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t size)
{
    CUcontext context;
    CUresult result = sim_enter_context(__func__, &context);
    struct allocation *allocation;

    if (result != CUDA_SUCCESS)
        return result;
    if (address == NULL || size == 0)
        return CUDA_ERROR_INVALID_VALUE;
    allocation = calloc(1, sizeof(*allocation));
    if (allocation == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    allocation->bytes = size;
    pthread_mutex_lock(&lock);
    result = alloc_locked(context, allocation, address);
    pthread_mutex_unlock(&lock);
    if (result != CUDA_SUCCESS)
        free(allocation);
    return result;
}

/* The block and allocation that hold an address. The lock is held. */
static struct allocation *allocation_find(CUdeviceptr address, struct block **ret_block)
{
    list_for_each(block, &blocks, struct block, in_all)
    {
        if (address < block->base || address - block->base >= block->bytes)
            continue;
        *ret_block = block;
        list_for_each(it, &block->allocations, struct allocation, in_block)
        {
            uint64_t offset = address - block->base;

            if (offset >= it->offset && offset - it->offset < it->bytes)
                return it;
        }
    }
    return NULL;
}

/* The context that the allocation at `address` belongs to; NULL when none begins there. */
static CUcontext allocation_context(CUdeviceptr address)
{
    struct allocation *allocation;
    CUcontext context = NULL;
    struct block *block;

    pthread_mutex_lock(&lock);
    allocation = allocation_find(address, &block);
    if (allocation != NULL && block->base + allocation->offset == address)
        context = block->context;
    pthread_mutex_unlock(&lock);
    return context;
}

/* Waits for the context's work: what a kernel still uses is not pulled away, unlike cuMemUnmap. */
CUresult cuMemFree_v2(CUdeviceptr address)
{
    CUresult result = sim_enter(__func__);
    struct allocation *allocation;
    struct block *block;
    CUcontext context;

    if (result != CUDA_SUCCESS)
        return result;
    if (address == 0)
        return CUDA_SUCCESS;
    context = allocation_context(address);
    if (context == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    sim_streams_drain(context);
    pthread_mutex_lock(&lock);
    allocation = allocation_find(address, &block);
    if (allocation == NULL || block->base + allocation->offset != address) {
        result = CUDA_ERROR_INVALID_VALUE;
    } else {
        list_remove(&allocation->in_block);
        free(allocation);
        if (list_empty(&block->allocations))
            block_free(&block);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

bool sim_legacy_find(CUdeviceptr address, struct sim_legacy_info *ret)
{
    const struct allocation *allocation;
    struct block *block;

    pthread_mutex_lock(&lock);
    allocation = allocation_find(address, &block);
    if (allocation != NULL)
        *ret = (struct sim_legacy_info){
            .base = block->base + allocation->offset,
            .bytes = allocation->bytes,
            .handle = block->handle,
            .offset = allocation->offset,
        };
    pthread_mutex_unlock(&lock);
    return allocation != NULL;
}

void sim_legacy_context_end(CUcontext context)
{
    pthread_mutex_lock(&lock);
    list_for_each_safe(block, &blocks, struct block, in_all)
    {
        struct block *owned = block;

        if (block->context != context)
            continue;
        list_for_each_safe(it, &block->allocations, struct allocation, in_block) free(it);
        block_free(&owned);
    }
    pthread_mutex_unlock(&lock);
}
