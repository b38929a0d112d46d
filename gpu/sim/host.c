/*
 * Page-locked host memory is plain memory here: nothing of the simulated GPU needs its pages to
 * stay, so nothing is locked and no RLIMIT_MEMLOCK is met. What counts is the list of ranges:
 * copies to and from them are asynchronous, and the device may use their addresses as they are.
 *
 * Freeing and unregistering wait for the work of the context, as the real driver does.
 */
#include "gpu/sim/host.h"

#include "gpu/sim/stream.h"

#include <sys/mman.h>

struct host_range {
    struct list link;
    struct sim_host_info info;
    bool allocated; /* by cuMemHostAlloc; else registered */
};

static struct list ranges = {&ranges, &ranges};

/* ---- under the lock ---- */

static bool range_overlaps(const struct host_range *range, const void *address, uint64_t bytes)
{
    uintptr_t base = (uintptr_t) range->info.base;
    uintptr_t start = (uintptr_t) address;

    return start < base + range->info.bytes && base < start + bytes;
}

/* The first range that shares a byte with [address, address + bytes). */
static struct host_range *range_find(const void *address, uint64_t bytes)
{
    list_for_each(range, &ranges, struct host_range,
        link) if (range_overlaps(range, address, bytes)) return range;
    return NULL;
}

/* The range that begins at `address` and is of that kind. */
static struct host_range *range_at(const void *address, bool allocated)
{
    struct host_range *range = range_find(address, 1);

    if (range == NULL || range->info.base != address || range->allocated != allocated)
        return NULL;
    return range;
}

/* ---- look-ups ---- */

bool sim_host_find(const void *address, struct sim_host_info *ret)
{
    const struct host_range *range;

    sim_exec_lock();
    range = range_find(address, 1);
    if (range != NULL)
        *ret = range->info;
    sim_exec_unlock();
    return range != NULL;
}

bool sim_host_covers(const void *address, uint64_t bytes)
{
    struct sim_host_info info;

    return sim_host_find(address, &info) &&
           bytes <= info.bytes - ((uintptr_t) address - (uintptr_t) info.base);
}

/* ---- calls ---- */

static CUresult range_add(void *address, size_t size, CUcontext context, bool allocated)
{
    struct host_range *range = calloc(1, sizeof(*range));
    CUresult result = CUDA_SUCCESS;

    if (range == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    range->info = (struct sim_host_info){.base = address, .bytes = size, .context = context};
    range->allocated = allocated;
    sim_exec_lock();
    if (range_find(address, size) != NULL)
        result = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    else
        list_append(&ranges, &range->link);
    sim_exec_unlock();
    if (result != CUDA_SUCCESS)
        free(range);
    return result;
}

/* Takes the range out of the list once no work can be using it. False when there is none. */
static bool range_take(const void *address, bool allocated, struct host_range *ret)
{
    struct host_range *range;

    sim_exec_lock();
    range = range_at(address, allocated);
    if (range != NULL) {
        list_remove(&range->link);
        *ret = *range;
    }
    sim_exec_unlock();
    if (range == NULL)
        return false;
    free(range);
    sim_streams_drain(ret->info.context);
    return true;
}

CUresult cuMemHostAlloc(void **address, size_t size, unsigned int flags)
{
    const unsigned known =
        CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
    CUcontext context;
    CUresult result = sim_enter_context(__func__, &context);
    void *memory;

    if (result != CUDA_SUCCESS)
        return result;
    if (address == NULL || size == 0 || (flags & ~known) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = range_add(memory, size, context, true);
    if (result != CUDA_SUCCESS) {
        (void) munmap(memory, size);
        return result;
    }
    *address = memory;
    return CUDA_SUCCESS;
}

CUresult cuMemFreeHost(void *address)
{
    struct host_range range;
    CUcontext context;
    CUresult result = sim_enter_any(__func__, &context);

    if (result != CUDA_SUCCESS)
        return result;
    if (!range_take(address, true, &range))
        return CUDA_ERROR_INVALID_VALUE;
    (void) munmap(range.info.base, range.info.bytes);
    return CUDA_SUCCESS;
}

/* Whether every page of the range exists: mincore(2) says ENOMEM for a hole. */
static bool memory_exists(const void *address, size_t size)
{
    unsigned char resident[1024]; /* asked for, not looked at */
    uintptr_t page = (uintptr_t) sysconf(_SC_PAGESIZE);
    uintptr_t at = (uintptr_t) address & ~(page - 1);
    uintptr_t end;

    if (__builtin_add_overflow((uintptr_t) address, size, &end))
        return false;
    for (; at < end; at += page * sizeof(resident))
        if (mincore((void *) at, MIN(end - at, page * sizeof(resident)), resident) != 0)
            return false;
    return true;
}

CUresult cuMemHostRegister_v2(void *address, size_t size, unsigned int flags)
{
    const unsigned known = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP |
                           CU_MEMHOSTREGISTER_IOMEMORY | CU_MEMHOSTREGISTER_READ_ONLY;
    CUcontext context;
    CUresult result = sim_enter_context(__func__, &context);

    if (result != CUDA_SUCCESS)
        return result;
    if (address == NULL || size == 0 || (flags & ~known) != 0 || !memory_exists(address, size))
        return CUDA_ERROR_INVALID_VALUE;
    return range_add(address, size, context, false);
}

CUresult cuMemHostUnregister(void *address)
{
    struct host_range range;
    CUcontext context;
    CUresult result = sim_enter_any(__func__, &context);

    if (result != CUDA_SUCCESS)
        return result;
    return range_take(address, false, &range) ? CUDA_SUCCESS
                                              : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

CUresult cuMemHostGetDevicePointer_v2(
    CUdeviceptr *device_address, void *address, unsigned int flags)
{
    struct sim_host_info info;
    CUcontext context;
    CUresult result = sim_enter_context(__func__, &context);

    if (result != CUDA_SUCCESS)
        return result;
    if (device_address == NULL || flags != 0 || !sim_host_find(address, &info))
        return CUDA_ERROR_INVALID_VALUE;
    *device_address = (uintptr_t) address;
    return CUDA_SUCCESS;
}
