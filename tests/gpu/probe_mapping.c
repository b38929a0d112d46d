/* Questions 1, 2, 3 and 10: mapping, access, and the lack of it. */
#include "tests/gpu/probe.h"

void ask_prefix_and_offset(struct probe *probe)
{
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    CUresult result;
    size_t bytes;

    probe_init(probe);
    bytes = probe->granule;
    handle = probe_chunk(probe, 2 * bytes);
    probe_need(probe, "cuMemAddressReserve",
        probe->cu.mem_address_reserve(&address, 2 * bytes, bytes, 0, 0));
    result = probe->cu.mem_map(address, bytes, 0, handle, 0);
    probe_result(probe, "the first half of a chunk, offset 0", result);
    if (result == CUDA_SUCCESS)
        probe_result(probe, "unmapping it", probe->cu.mem_unmap(address, bytes));
    result = probe->cu.mem_map(address, bytes, bytes, handle, 0);
    probe_result(probe, "the second half of a chunk, by its offset", result);
    if (result == CUDA_SUCCESS)
        probe_result(probe, "unmapping it", probe->cu.mem_unmap(address, bytes));
    probe_result(probe, "the whole chunk", probe->cu.mem_map(address, 2 * bytes, 0, handle, 0));
}

void ask_set_access_without_context(struct probe *probe)
{
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    unsigned flags = 0;
    uint64_t before;
    int active = -1;

    probe_init(probe);
    handle = probe_chunk(probe, probe->granule);
    address = probe_map(probe, handle, probe->granule);
    before = probe_free(probe);
    probe_result(probe, "cuMemSetAccess, no context", probe_access(probe, address, probe->granule));
    if (probe->cu.primary_ctx_get_state != NULL &&
        probe->cu.primary_ctx_get_state(probe->device, &flags, &active) == CUDA_SUCCESS)
        probe_say(probe, "the primary context is %s afterwards", active ? "active" : "not active");
    probe_say(probe, "free memory changed by %lld bytes", (long long) (probe_free(probe) - before));
    probe_context(probe);
    probe_result(
        probe, "cuMemSetAccess, context retained", probe_access(probe, address, probe->granule));
}

void ask_copy_without_access(struct probe *probe)
{
    CUmemGenericAllocationHandle handle;
    unsigned char byte = 1;
    CUdeviceptr address;

    probe_init(probe);
    probe_context(probe);
    handle = probe_chunk(probe, probe->granule);
    address = probe_map(probe, handle, probe->granule);
    probe_result(probe, "cuMemcpyHtoD", probe->cu.memcpy_htod(address, &byte, 1));
    probe_result(probe, "cuCtxSynchronize after it", probe->cu.ctx_synchronize());
    probe_result(probe, "cuMemcpyDtoH", probe->cu.memcpy_dtoh(&byte, address, 1));
    probe_result(probe, "cuMemsetD8", probe->cu.memset_d8(address, 1, 16));
    probe_result(probe, "cuCtxSynchronize after it", probe->cu.ctx_synchronize());
}

void ask_free_with_live_mapping(struct probe *probe)
{
    CUmemGenericAllocationHandle handle;
    unsigned long long flags = 99;
    CUmemLocation location;
    CUdeviceptr address;
    CUresult result;

    probe_init(probe);
    probe_context(probe);
    location = (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = probe->device};
    handle = probe_chunk(probe, probe->granule);
    address = probe_map(probe, handle, probe->granule);
    result = probe->cu.mem_get_access(&flags, &location, address);
    probe_result(probe, "cuMemGetAccess of a mapping never set", result);
    if (result == CUDA_SUCCESS)
        probe_say(probe, "its flags: %llu", flags);
    probe_result(probe, "cuMemAddressFree with the mapping alive",
        probe->cu.mem_address_free(address, probe->granule));
    probe_result(probe, "cuMemUnmap after that", probe->cu.mem_unmap(address, probe->granule));
    probe_result(probe, "cuMemGetAccess of an unmapped address",
        probe->cu.mem_get_access(&flags, &location, address));
}
