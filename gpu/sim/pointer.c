/* Pointer attributes. Unknown pointers are refused one by one and read as zero in a batch. */
#include <string.h>

#include "gpu/sim/host.h"
#include "gpu/sim/va.h"

/* What there is to know about one pointer. */
struct pointer {
    bool pinned; /* page-locked host memory: `host` and nothing else holds */
    struct sim_host_info host;
    bool mapped; /* else only reserved */
    struct sim_va_info info;
    CUdeviceptr range_base;
    uint64_t range_bytes;
};

static bool pointer_find(CUdeviceptr address, struct pointer *ret)
{
    struct sim_legacy_info legacy;
    struct sim_va_info *info = &ret->info;

    *ret = (struct pointer){0};
    ret->pinned = sim_host_find((const void *) (uintptr_t) address, &ret->host);
    if (ret->pinned)
        return true;
    ret->mapped = sim_va_find(address, info);
    if (!ret->mapped)
        return va_range(address, &ret->range_base, &ret->range_bytes);
    ret->range_base = info->range_base;
    ret->range_bytes = info->range_bytes;
    if (info->kind == SIM_MEMORY_IPC)
        return sim_ipc_find(address, &ret->range_base, &ret->range_bytes);
    if (info->kind == SIM_MEMORY_LEGACY) {
        if (!sim_legacy_find(address, &legacy))
            return false;
        ret->range_base = legacy.base;
        ret->range_bytes = legacy.bytes;
    }
    return true;
}

/* Booleans are one byte, as the documentation's type says. */
static CUresult write_bool(void *at, bool value)
{
    memcpy(at, &(unsigned char){value}, 1);
    return CUDA_SUCCESS;
}

static CUresult write_u64(void *at, uint64_t value)
{
    memcpy(at, &value, sizeof(value));
    return CUDA_SUCCESS;
}

static CUresult write_int(void *at, int value)
{
    memcpy(at, &value, sizeof(value));
    return CUDA_SUCCESS;
}

/* What is true only where something is mapped; 1 elsewhere. */
static CUresult mapping_attribute(
    const struct pointer *pointer, CUpointer_attribute attribute, void *at)
{
    const struct sim_va_info *info = &pointer->info;
    enum sim_access access = SIM_ACCESS_NONE;
    unsigned device = (unsigned) sim_device_index(info->device);

    if (!pointer->mapped)
        return CUDA_ERROR_INVALID_VALUE;
    switch ((int) attribute) {
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        return write_int(at, info->handle_types);
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        return write_bool(
            at, info->kind != SIM_MEMORY_VMM || (info->flags & LEDGER_CHUNK_RDMA) != 0);
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        if (va_get_access(info->base, device, &access) != CUDA_SUCCESS)
            return CUDA_ERROR_INVALID_VALUE;
        return write_int(at, (int) access);
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        return write_u64(at, info->bytes);
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        return write_u64(at, info->base);
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        return write_u64(at, (uint64_t) info->slot + 1);
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static CUresult device_attribute(
    const struct pointer *pointer, CUpointer_attribute attribute, CUdeviceptr address, void *at)
{
    switch ((int) attribute) {
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        return write_u64(at, pointer->range_base);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        return write_u64(at, pointer->range_bytes);
    case CU_POINTER_ATTRIBUTE_MAPPED:
        return write_bool(at, pointer->mapped);
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        return write_int(at, CU_MEMORYTYPE_DEVICE);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        return write_u64(at, address);
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        return write_bool(at, false);
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
        return write_u64(at, 0);
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        return write_bool(at, pointer->mapped && pointer->info.kind == SIM_MEMORY_LEGACY);
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        return write_u64(at, (uintptr_t) pointer->info.context);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        return pointer->mapped ? write_int(at, pointer->info.device) : CUDA_ERROR_INVALID_VALUE;
    default:
        return mapping_attribute(pointer, attribute, at);
    }
}

/* Page-locked host memory: one address for host and device. */
static CUresult host_attribute(
    const struct sim_host_info *host, CUpointer_attribute attribute, CUdeviceptr address, void *at)
{
    switch ((int) attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        return write_int(at, CU_MEMORYTYPE_HOST);
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        return write_u64(at, address);
    case CU_POINTER_ATTRIBUTE_CONTEXT:
        return write_u64(at, (uintptr_t) host->context);
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        return write_int(at, sim_context_device(host->context));
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        return write_u64(at, (uintptr_t) host->base);
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        return write_u64(at, host->bytes);
    case CU_POINTER_ATTRIBUTE_MAPPED:
        return write_bool(at, true);
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
        return write_bool(at, false);
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

static CUresult attribute_write(
    const struct pointer *pointer, CUpointer_attribute attribute, CUdeviceptr address, void *at)
{
    return pointer->pinned ? host_attribute(&pointer->host, attribute, address, at)
                           : device_attribute(pointer, attribute, address, at);
}

/* The bytes that an attribute writes; 0 for one that is unknown. */
static size_t attribute_bytes(CUpointer_attribute attribute)
{
    switch (attribute) {
    case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
    case CU_POINTER_ATTRIBUTE_IS_MANAGED:
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
    case CU_POINTER_ATTRIBUTE_MAPPED:
    case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
        return 1;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
    case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
        return 4;
    case CU_POINTER_ATTRIBUTE_CONTEXT:
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
    case CU_POINTER_ATTRIBUTE_BUFFER_ID:
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
    case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
    case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
    case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        return 8;
    }
    return 0;
}

CUresult cuPointerGetAttribute(void *value, CUpointer_attribute attribute, CUdeviceptr address)
{
    CUcontext context;
    CUresult result = sim_enter_context(__func__, &context);
    struct pointer pointer;

    if (result != CUDA_SUCCESS)
        return result;
    if (value == NULL || attribute_bytes(attribute) == 0 || !pointer_find(address, &pointer))
        return CUDA_ERROR_INVALID_VALUE;
    return attribute_write(&pointer, attribute, address, value);
}

CUresult cuPointerGetAttributes(
    unsigned int count, CUpointer_attribute *attributes, void **values, CUdeviceptr address)
{
    CUcontext context;
    CUresult result = sim_enter_context(__func__, &context);
    struct pointer pointer;
    bool found;

    if (result != CUDA_SUCCESS)
        return result;
    if (count == 0 || attributes == NULL || values == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    for (unsigned i = 0; i < count; i++) {
        if (attribute_bytes(attributes[i]) == 0 || values[i] == NULL)
            return CUDA_ERROR_INVALID_VALUE;
    }
    found = pointer_find(address, &pointer);
    for (unsigned i = 0; i < count; i++) {
        memset(values[i], 0, attribute_bytes(attributes[i]));
        if (found && attribute_write(&pointer, attributes[i], address, values[i]) != CUDA_SUCCESS)
            memset(values[i], 0, attribute_bytes(attributes[i]));
    }
    return CUDA_SUCCESS;
}
