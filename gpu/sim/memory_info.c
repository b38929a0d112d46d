/* cuMemGetInfo, cuMemGetAddressRange and the pointer attributes. */
#include <errno.h>
#include <string.h>

#include "gpu/sim/chunk.h"
#include "gpu/sim/va.h"

CUresult cuMemGetInfo_v2(size_t *available, size_t *total)
{
    CUcontext context;
    CUresult result = sim_enter_context(__func__, &context);
    struct ledger_memory memory;
    int r;

    if (result != CUDA_SUCCESS)
        return result;
    if (available == NULL || total == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    r = ledger_memory(
        sim_ledger(), (unsigned) sim_device_index(sim_context_device(context)), &memory);
    if (r < 0)
        return sim_error(r);
    *available = memory.free;
    *total = memory.total;
    return CUDA_SUCCESS;
}

/* The allocation (or, for VMM memory, the mapping) that holds the address. */
static bool address_range(CUdeviceptr address, CUdeviceptr *ret_base, uint64_t *ret_bytes)
{
    struct sim_legacy_info legacy;
    struct sim_va_info info;

    if (!sim_va_find(address, &info))
        return false;
    switch (info.kind) {
    case SIM_MEMORY_LEGACY:
        if (!sim_legacy_find(address, &legacy))
            return false;
        *ret_base = legacy.base;
        *ret_bytes = legacy.bytes;
        return true;
    case SIM_MEMORY_IPC:
        return sim_ipc_find(address, ret_base, ret_bytes);
    case SIM_MEMORY_VMM:
        *ret_base = info.base;
        *ret_bytes = info.bytes;
        return true;
    }
    return false;
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *size, CUdeviceptr address)
{
    CUcontext context;
    CUresult result = sim_enter_context(__func__, &context);
    CUdeviceptr found_base;
    uint64_t found_bytes;

    if (result != CUDA_SUCCESS)
        return result;
    if (!address_range(address, &found_base, &found_bytes))
        return CUDA_ERROR_NOT_FOUND;
    if (base != NULL)
        *base = found_base;
    if (size != NULL)
        *size = found_bytes;
    return CUDA_SUCCESS;
}
