/* Small steps that most questions take; each ends the question when the driver refuses it. */
#include "tests/gpu/probe.h"

CUmemAllocationProp probe_properties(const struct probe *probe)
{
    return (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = probe->device},
    };
}

CUmemGenericAllocationHandle probe_chunk(struct probe *probe, size_t bytes)
{
    CUmemAllocationProp properties = probe_properties(probe);
    CUmemGenericAllocationHandle handle;

    probe_need(probe, "cuMemCreate", probe->cu.mem_create(&handle, bytes, &properties, 0));
    return handle;
}

CUdeviceptr probe_map(struct probe *probe, CUmemGenericAllocationHandle handle, size_t bytes)
{
    CUdeviceptr address;

    probe_need(probe, "cuMemAddressReserve",
        probe->cu.mem_address_reserve(&address, bytes, probe->granule, 0, 0));
    probe_need(probe, "cuMemMap", probe->cu.mem_map(address, bytes, 0, handle, 0));
    return address;
}

CUresult probe_access(struct probe *probe, CUdeviceptr address, size_t bytes)
{
    CUmemAccessDesc access = {
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = probe->device},
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };

    return probe->cu.mem_set_access(address, bytes, &access, 1);
}

CUresult probe_export(struct probe *probe, CUmemGenericAllocationHandle handle, int *ret_fd)
{
    return probe->cu.mem_export_to_shareable_handle(
        ret_fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
}

CUresult probe_import(struct probe *probe, int fd, CUmemGenericAllocationHandle *ret)
{
    return probe->cu.mem_import_from_shareable_handle(
        ret, (void *) (uintptr_t) fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}

uint64_t probe_free(struct probe *probe)
{
    nvmlMemory_t memory = {0};

    if (!probe->has_nvml ||
        probe->nvml.device_get_memory_info(probe->nvml_device, &memory) != NVML_SUCCESS)
        return 0;
    return memory.free;
}

bool probe_charged(struct probe *probe, pid_t pid, uint64_t *ret_bytes)
{
    nvmlProcessInfo_t list[256];
    unsigned count = ARRAY_SIZE(list);

    if (!probe->has_nvml || probe->nvml.device_get_processes == NULL ||
        probe->nvml.device_get_processes(probe->nvml_device, &count, list) != NVML_SUCCESS)
        return false;
    for (unsigned i = 0; i < count; i++) {
        if (list[i].pid == (unsigned) pid) {
            *ret_bytes = list[i].usedGpuMemory;
            return true;
        }
    }
    return false;
}
