/*
 * Free memory and processes without a CUDA context: NVML's word. Its ordinals differ from CUDA's,
 * so the two are joined by UUID, once, at open. NVML marks a MIG instance by the prefix `MIG-`,
 * which CUDA's 16 bytes don't carry: whichever prefix NVML knows is the device's.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/backend.h"

/* The resource manager lists at most 950 processes for a device; a list may grow between calls. */
#define PROCESSES_MAX 1024

int vmm_nvml_open(struct vmm_gpu *gpu, struct gpu_error *error)
{
    int r = nvml_load(gpu->base.driver, &gpu->nvml, error);

    if (r == 0)
        r = nvml_result_check(gpu->nvml.init(), "nvmlInit_v2", error);
    if (r == 0)
        gpu->nvml_initialised = true;
    return r;
}

void vmm_nvml_close(struct vmm_gpu *gpu)
{
    if (gpu->nvml_initialised)
        (void) gpu->nvml.shutdown();
    gpu->nvml_initialised = false;
    nvml_unload(&gpu->nvml);
}

int vmm_nvml_join(struct vmm_gpu *gpu, struct vmm_device *device, struct gpu_error *error)
{
    nvmlReturn_t result = gpu->nvml.device_get_handle_by_uuid(device->base.uuid, &device->nvml);

    if (result == NVML_ERROR_NOT_FOUND || result == NVML_ERROR_INVALID_ARGUMENT) {
        char uuid[GPU_UUID_SIZE];

        memcpy(uuid, device->base.uuid, sizeof(uuid));
        memcpy(uuid, "MIG-", 4);
        result = gpu->nvml.device_get_handle_by_uuid(uuid, &device->nvml);
        if (result == NVML_SUCCESS)
            memcpy(device->base.uuid, uuid, sizeof(uuid));
    }
    return nvml_result_check(result, "nvmlDeviceGetHandleByUUID", error);
}

int vmm_memory_info(struct gpu *base, const struct gpu_device *device, struct gpu_memory *ret,
    struct gpu_error *error)
{
    struct vmm_gpu *gpu = vmm_from_gpu(base);
    nvmlMemory_t memory;
    int r;

    if (gpu->nvml.handle == NULL) {
        gpu_error_set(error, 0, "NVML isn't open in a client");
        return -EOPNOTSUPP;
    }
    /* v1 and v2 differ in `used` alone, which differs between drivers too: free is what counts. */
    r = nvml_result_check(gpu->nvml.device_get_memory_info(vmm_from_device(device)->nvml, &memory),
        "nvmlDeviceGetMemoryInfo", error);
    if (r < 0)
        return r;
    ret->free_bytes = memory.free;
    ret->total_bytes = memory.total;
    return 0;
}

static void process_convert(const nvmlProcessInfo_t *from, struct gpu_process *ret)
{
    ret->pid = (int) from->pid;
    ret->known = from->usedGpuMemory != NVML_VALUE_NOT_AVAILABLE;
    ret->bytes = ret->known ? from->usedGpuMemory : 0;
}

int vmm_processes(struct gpu *base, const struct gpu_device *device, size_t capacity,
    struct gpu_process *ret_processes, size_t *ret_count, struct gpu_error *error)
{
    struct vmm_gpu *gpu = vmm_from_gpu(base);
    _cleanup_free_ nvmlProcessInfo_t *list = NULL;
    unsigned count = PROCESSES_MAX;
    int r;

    if (gpu->nvml.handle == NULL || gpu->nvml.device_get_processes == NULL) {
        gpu_error_set(error, 0, "NVML isn't open, or too old to list processes");
        return -EOPNOTSUPP;
    }
    list = calloc(PROCESSES_MAX, sizeof(*list));
    if (list == NULL)
        return -ENOMEM;
    r = nvml_result_check(
        gpu->nvml.device_get_processes(vmm_from_device(device)->nvml, &count, list),
        "nvmlDeviceGetComputeRunningProcesses_v3", error);
    if (r < 0)
        return r;
    if (count > capacity) {
        gpu_error_set(error, 0, "%u processes on the device, room for %zu", count, capacity);
        return -E2BIG;
    }
    for (unsigned i = 0; i < count; i++)
        process_convert(&list[i], &ret_processes[i]);
    *ret_count = count;
    return 0;
}
