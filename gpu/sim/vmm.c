/*
 * The virtual memory calls: arguments as strict as the driver's, then chunk.c and va.c. None needs
 * a context, except that cuMemSetAccess grants access only to a device that has one in this
 * process.
 */
#include <sys/mman.h>

#include "gpu/sim/chunk.h"
#include "gpu/sim/inject.h"
#include "gpu/sim/va.h"

#define HOST_PAGE 4096u

static bool aligned(uint64_t value)
{
    return value % sim_config()->hardware.granularity == 0;
}

static bool device_able(CUdevice device)
{
    return sim_device_vmm(&sim_config()->hardware, (unsigned) sim_device_index(device));
}

/* Guard of the calls here: 801 where GMB_SIM_VMM says that no device of this process can. */
static CUresult enter(const char *call)
{
    CUresult result = sim_enter(call);

    for (CUdevice i = 0; result == CUDA_SUCCESS && i < (CUdevice) sim_device_count(); i++) {
        if (device_able(i))
            return CUDA_SUCCESS;
    }
    return result == CUDA_SUCCESS ? CUDA_ERROR_NOT_SUPPORTED : result;
}

/* What is common to create and granularity. */
static CUresult check_properties(const CUmemAllocationProp *properties)
{
    const unsigned types = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR | CU_MEM_HANDLE_TYPE_FABRIC;

    if (properties == NULL || properties->type != CU_MEM_ALLOCATION_TYPE_PINNED ||
        properties->win32HandleMetaData != NULL ||
        ((unsigned) properties->requestedHandleTypes & ~types) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    switch (properties->location.type) {
    case CU_MEM_LOCATION_TYPE_DEVICE:
        break;
    case CU_MEM_LOCATION_TYPE_HOST:
        if (properties->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE)
            return CUDA_ERROR_INVALID_VALUE;
        return CUDA_ERROR_NOT_SUPPORTED;
    case CU_MEM_LOCATION_TYPE_HOST_NUMA:
        return CUDA_ERROR_NOT_SUPPORTED;
    case CU_MEM_LOCATION_TYPE_INVALID:
    case CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT:
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (sim_device_index(properties->location.id) < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    return device_able(properties->location.id) ? CUDA_SUCCESS : CUDA_ERROR_NOT_SUPPORTED;
}

CUresult cuMemGetAllocationGranularity(size_t *granularity, const CUmemAllocationProp *properties,
    CUmemAllocationGranularity_flags option)
{
    CUresult result = enter(__func__);

    if (result != CUDA_SUCCESS)
        return result;
    if (granularity == NULL || (option != CU_MEM_ALLOC_GRANULARITY_MINIMUM &&
                                   option != CU_MEM_ALLOC_GRANULARITY_RECOMMENDED))
        return CUDA_ERROR_INVALID_VALUE;
    result = check_properties(properties);
    if (result == CUDA_SUCCESS)
        *granularity = sim_config()->hardware.granularity;
    return result;
}

CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size,
    const CUmemAllocationProp *properties, unsigned long long flags)
{
    CUresult result = enter(__func__);
    struct ledger_chunk_info info = {.bytes = size};
    uint64_t created;

    if (result != CUDA_SUCCESS)
        return result;
    if (handle == NULL || size == 0 || flags != 0 || !aligned(size))
        return CUDA_ERROR_INVALID_VALUE;
    result = check_properties(properties);
    if (result != CUDA_SUCCESS)
        return result;
    /* Fabric memory needs an IMEX channel, which no simulated node has. */
    if (((unsigned) properties->requestedHandleTypes & CU_MEM_HANDLE_TYPE_FABRIC) != 0)
        return CUDA_ERROR_NOT_PERMITTED;
    info.device = (unsigned) sim_device_index(properties->location.id);
    if (properties->requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE &&
        !sim_device_posix_fd(&sim_config()->hardware, info.device))
        return CUDA_ERROR_NOT_SUPPORTED;
    result = inject_device(__func__, info.device);
    if (result != CUDA_SUCCESS)
        return result;
    info.handle_types = (uint8_t) properties->requestedHandleTypes;
    info.flags = properties->allocFlags.gpuDirectRDMACapable != 0 ? LEDGER_CHUNK_RDMA : 0;
    result = chunk_create(&info, &created);
    if (result == CUDA_SUCCESS)
        *handle = created;
    return result;
}

CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
    CUresult result = enter(__func__);

    return result != CUDA_SUCCESS ? result : chunk_release(handle);
}

CUresult cuMemAddressReserve(
    CUdeviceptr *address, size_t size, size_t alignment, CUdeviceptr hint, unsigned long long flags)
{
    CUresult result = enter(__func__);
    CUdeviceptr base;

    if (result != CUDA_SUCCESS)
        return result;
    if (address == NULL || size == 0 || size % HOST_PAGE != 0 || hint % HOST_PAGE != 0 ||
        flags != 0 || (alignment & (alignment - 1)) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (hint != 0 && sim_config()->hint == SIM_HINT_FAIL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (sim_config()->hint == SIM_HINT_IGNORE)
        hint = 0;
    result = va_reserve(SIM_MEMORY_VMM, size, alignment, hint, &base);
    if (result == CUDA_SUCCESS)
        *address = base;
    return result;
}

CUresult cuMemAddressFree(CUdeviceptr address, size_t size)
{
    CUresult result = enter(__func__);

    return result != CUDA_SUCCESS ? result : va_release(SIM_MEMORY_VMM, address, size);
}

CUresult cuMemMap(CUdeviceptr address, size_t size, size_t offset,
    CUmemGenericAllocationHandle handle, unsigned long long flags)
{
    CUresult result = enter(__func__);
    struct va_memory memory = {0};
    _cleanup_close_ int fd = -1;

    if (result != CUDA_SUCCESS)
        return result;
    if (size == 0 || !aligned(address) || !aligned(size) || offset != 0 || flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    result = chunk_mapped(handle, &memory.chunk, &fd);
    if (result != CUDA_SUCCESS)
        return result;
    memory.handle = handle;
    result = memory.chunk.bytes != size ? CUDA_ERROR_INVALID_VALUE
                                        : va_map(SIM_MEMORY_VMM, address, size, fd, &memory);
    if (result != CUDA_SUCCESS)
        chunk_unmapped(handle);
    return result;
}

CUresult cuMemUnmap(CUdeviceptr address, size_t size)
{
    CUresult result = enter(__func__);

    if (result != CUDA_SUCCESS)
        return result;
    if (!aligned(address) || !aligned(size))
        return CUDA_ERROR_INVALID_VALUE;
    return va_unmap(SIM_MEMORY_VMM, address, size);
}

static CUresult check_access(const CUmemAccessDesc *access)
{
    if (access->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
        access->flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
        access->flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
        return CUDA_ERROR_INVALID_VALUE;
    if (access->location.type == CU_MEM_LOCATION_TYPE_HOST ||
        access->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (access->location.type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    if (sim_device_index(access->location.id) < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    if (!device_able(access->location.id))
        return CUDA_ERROR_NOT_SUPPORTED;
    if (access->flags != CU_MEM_ACCESS_FLAGS_PROT_NONE &&
        !sim_context_on_device(access->location.id))
        return CUDA_ERROR_INVALID_CONTEXT;
    return CUDA_SUCCESS;
}

CUresult cuMemSetAccess(
    CUdeviceptr address, size_t size, const CUmemAccessDesc *access, size_t count)
{
    CUresult result = enter(__func__);
    struct sim_va_info info;

    if (result != CUDA_SUCCESS)
        return result;
    if (access == NULL || count == 0)
        return CUDA_ERROR_INVALID_VALUE;
    result = va_check_whole(address, size);
    if (result == CUDA_SUCCESS && (!sim_va_find(address, &info) || info.kind != SIM_MEMORY_VMM))
        result = CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; result == CUDA_SUCCESS && i < count; i++)
        result = check_access(&access[i]);
    for (size_t i = 0; result == CUDA_SUCCESS && i < count; i++)
        result = va_set_access(address, size, (unsigned) sim_device_index(access[i].location.id),
            (enum sim_access) access[i].flags);
    return result;
}

CUresult cuMemGetAccess(
    unsigned long long *flags, const CUmemLocation *location, CUdeviceptr address)
{
    CUresult result = enter(__func__);
    enum sim_access access;
    int index;

    if (result != CUDA_SUCCESS)
        return result;
    if (flags == NULL || location == NULL || location->type != CU_MEM_LOCATION_TYPE_DEVICE)
        return CUDA_ERROR_INVALID_VALUE;
    index = sim_device_index(location->id);
    if (index < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    result = va_get_access(address, (unsigned) index, &access);
    if (result == CUDA_SUCCESS)
        *flags = access;
    return result;
}

CUresult cuMemExportToShareableHandle(void *shareable, CUmemGenericAllocationHandle handle,
    CUmemAllocationHandleType type, unsigned long long flags)
{
    CUresult result = enter(__func__);
    struct ledger_chunk_info info;

    if (result != CUDA_SUCCESS)
        return result;
    if (shareable == NULL || flags != 0 || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_INVALID_VALUE;
    result = chunk_info(handle, &info);
    if (result != CUDA_SUCCESS)
        return result;
    if ((info.handle_types & (unsigned) type) == 0)
        return CUDA_ERROR_INVALID_VALUE;
    return chunk_export(handle, shareable);
}

CUresult cuMemImportFromShareableHandle(
    CUmemGenericAllocationHandle *handle, void *shareable, CUmemAllocationHandleType type)
{
    CUresult result = enter(__func__);
    uint64_t imported;

    if (result != CUDA_SUCCESS)
        return result;
    if (handle == NULL || (uintptr_t) shareable > INT32_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    if (type == CU_MEM_HANDLE_TYPE_FABRIC)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR)
        return CUDA_ERROR_INVALID_VALUE;
    result = chunk_import((int) (uintptr_t) shareable, &imported);
    if (result == CUDA_SUCCESS)
        *handle = imported;
    return result;
}

CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *address)
{
    CUresult result = enter(__func__);
    uint64_t retained;

    if (result != CUDA_SUCCESS)
        return result;
    if (handle == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    result = va_retain((uintptr_t) address, &retained);
    if (result == CUDA_SUCCESS)
        *handle = retained;
    return result;
}

CUresult cuMemGetAllocationPropertiesFromHandle(
    CUmemAllocationProp *properties, CUmemGenericAllocationHandle handle)
{
    CUresult result = enter(__func__);
    struct ledger_chunk_info info;

    if (result != CUDA_SUCCESS)
        return result;
    if (properties == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    result = chunk_info(handle, &info);
    if (result != CUDA_SUCCESS)
        return result;
    *properties = (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = (CUmemAllocationHandleType) info.handle_types,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = sim_device_ordinal(info.device)},
        .allocFlags = {.gpuDirectRDMACapable = (info.flags & LEDGER_CHUNK_RDMA) != 0},
    };
    return CUDA_SUCCESS;
}
