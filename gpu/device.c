/*
 * Devices as this process sees them, in the driver's order, which nobody outside learns: what names
 * a device is its UUID, since ordinals depend on each process's CUDA_VISIBLE_DEVICES.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/limits.h"
#include "base/uuid.h"
#include "gpu/backend.h"

static int attribute_read(struct vmm_gpu *gpu, const struct vmm_device *device,
    CUdevice_attribute attribute, bool *ret, struct gpu_error *error)
{
    int value = 0;
    CUresult result = gpu->cuda.device_get_attribute(&value, attribute, device->ordinal);

    /* A driver older than the attribute: it lacks what the attribute speaks of. */
    if (result == CUDA_ERROR_INVALID_VALUE)
        value = 0;
    else if (result != CUDA_SUCCESS)
        return cuda_result_check(&gpu->cuda, result, "cuDeviceGetAttribute", error);
    *ret = value != 0;
    return 0;
}

static int capabilities_read(
    struct vmm_gpu *gpu, struct vmm_device *device, struct gpu_error *error)
{
    int r = attribute_read(gpu, device, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
        &device->base.vmm, error);

    if (r == 0)
        r = attribute_read(gpu, device,
            CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, &device->base.posix_fd,
            error);
    if (r == 0)
        r = attribute_read(gpu, device, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
            &device->base.rdma, error);
    return r;
}

/* Without VMM there is none to ask for: slabs have theirs. */
static int granularity_read(struct vmm_gpu *gpu, struct vmm_device *device, struct gpu_error *error)
{
    CUmemAllocationProp properties = vmm_chunk_properties(device);
    size_t granularity = 0;
    int r;

    device->base.granularity_bytes = GPU_SLAB_BYTES;
    if (!device->base.vmm)
        return 0;
    r = cuda_result_check(&gpu->cuda,
        gpu->cuda.mem_get_allocation_granularity(
            &granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
        "cuMemGetAllocationGranularity", error);
    if (r < 0)
        return r;
    if (granularity == 0) {
        gpu_error_set(error, 0, "cuMemGetAllocationGranularity answered 0");
        return -EIO;
    }
    device->base.granularity_bytes = granularity;
    return 0;
}

static int device_read(
    struct vmm_gpu *gpu, struct vmm_device *device, int ordinal, struct gpu_error *error)
{
    const struct cuda_api *cuda = &gpu->cuda;
    CUuuid uuid;
    struct uuid bytes;
    size_t total = 0;
    int r =
        cuda_result_check(cuda, cuda->device_get(&device->ordinal, ordinal), "cuDeviceGet", error);

    if (r == 0)
        r = cuda_result_check(
            cuda, cuda->device_get_uuid(&uuid, device->ordinal), "cuDeviceGetUuid_v2", error);
    if (r == 0)
        r = cuda_result_check(cuda,
            cuda->device_get_name(device->base.name, sizeof(device->base.name), device->ordinal),
            "cuDeviceGetName", error);
    if (r == 0)
        r = cuda_result_check(
            cuda, cuda->device_total_mem(&total, device->ordinal), "cuDeviceTotalMem_v2", error);
    if (r < 0)
        return r;
    memcpy(bytes.bytes, uuid.bytes, UUID_BYTES);
    (void) uuid_format(device->base.uuid, &bytes);
    device->base.total_bytes = total;
    r = capabilities_read(gpu, device, error);
    return r < 0 ? r : granularity_read(gpu, device, error);
}

int vmm_devices_list(struct vmm_gpu *gpu, struct gpu_error *error)
{
    int count = 0;
    int r = cuda_result_check(
        &gpu->cuda, gpu->cuda.device_get_count(&count), "cuDeviceGetCount", error);

    if (r < 0)
        return r;
    if (count <= 0 || count > LIMIT_DEVICES) {
        gpu_error_set(error, 0, "the driver lists %d devices; 1 to %d are usable", count,
            (int) LIMIT_DEVICES);
        return -ENODEV;
    }
    gpu->devices = calloc((size_t) count, sizeof(*gpu->devices));
    gpu->device_bases = calloc((size_t) count, sizeof(*gpu->device_bases));
    if (gpu->devices == NULL || gpu->device_bases == NULL)
        return -ENOMEM;
    for (int i = 0; i < count; i++) {
        struct vmm_device *device = &gpu->devices[i];

        r = device_read(gpu, device, i, error);
        if (r == 0 && gpu->nvml.handle != NULL)
            r = vmm_nvml_join(gpu, device, error);
        if (r < 0)
            return r;
        gpu->device_bases[i] = &device->base;
    }
    gpu->base.devices = gpu->device_bases;
    gpu->base.device_count = (size_t) count;
    return 0;
}
