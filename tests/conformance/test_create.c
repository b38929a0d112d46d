/* Granularity, create, release, retain, properties: specification 3. */
#include "tests/conformance/conformance.h"

#include <unistd.h>

START_TEST(granularity_divides_recommended_granularity)
{
    CUmemAllocationProp properties;
    size_t recommended = 0;

    setup_driver();
    properties = chunk_properties();
    ck_assert_uint_gt(granule, 0);
    ck_assert_uint_eq(granule & (granule - 1), 0);
    cu_ok(cu->mem_get_allocation_granularity(
        &recommended, &properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
    ck_assert_uint_ge(recommended, granule);
    ck_assert_uint_eq(recommended % granule, 0);
}
END_TEST

START_TEST(granularity_refuses_nonsense)
{
    CUmemAllocationProp properties;
    size_t value;

    setup_driver();
    properties = chunk_properties();
    cu_expect(CUDA_ERROR_INVALID_VALUE,
        cu->mem_get_allocation_granularity(NULL, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    cu_expect(CUDA_ERROR_INVALID_VALUE,
        cu->mem_get_allocation_granularity(&value, NULL, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    cu_expect(CUDA_ERROR_INVALID_VALUE, cu->mem_get_allocation_granularity(&value, &properties,
                                            (CUmemAllocationGranularity_flags) 2));
}
END_TEST

START_TEST(create_refuses_sizes_off_the_granularity)
{
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp properties;

    setup_driver();
    properties = chunk_properties();
    cu_expect(CUDA_ERROR_INVALID_VALUE, cu->mem_create(&handle, 0, &properties, 0));
    cu_expect(CUDA_ERROR_INVALID_VALUE, cu->mem_create(&handle, granule - 1, &properties, 0));
    cu_expect(CUDA_ERROR_INVALID_VALUE, cu->mem_create(&handle, granule + 1, &properties, 0));
    cu_expect(CUDA_ERROR_INVALID_VALUE, cu->mem_create(&handle, granule, &properties, 1));
    cu_expect(CUDA_ERROR_INVALID_VALUE, cu->mem_create(NULL, granule, &properties, 0));
    cu_expect(CUDA_ERROR_INVALID_VALUE, cu->mem_create(&handle, granule, NULL, 0));
}
END_TEST

START_TEST(create_refuses_wrong_properties)
{
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp properties;
    int count;

    setup_driver();
    cu_ok(cu->device_get_count(&count));
    properties = chunk_properties();
    properties.type = CU_MEM_ALLOCATION_TYPE_INVALID;
    cu_expect(CUDA_ERROR_INVALID_VALUE, cu->mem_create(&handle, granule, &properties, 0));
    properties = chunk_properties();
    properties.location.type = CU_MEM_LOCATION_TYPE_INVALID;
    cu_expect(CUDA_ERROR_INVALID_VALUE, cu->mem_create(&handle, granule, &properties, 0));
    properties = chunk_properties();
    properties.location.id = count;
    cu_expect(CUDA_ERROR_INVALID_DEVICE, cu->mem_create(&handle, granule, &properties, 0));
    properties.location.id = -1;
    cu_expect(CUDA_ERROR_INVALID_DEVICE, cu->mem_create(&handle, granule, &properties, 0));
    properties = chunk_properties();
    properties.win32HandleMetaData = &properties;
    cu_expect(CUDA_ERROR_INVALID_VALUE, cu->mem_create(&handle, granule, &properties, 0));
}
END_TEST

START_TEST(host_memory_cannot_be_exported)
{
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp properties;

    setup_driver();
    properties = chunk_properties();
    properties.location = (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_HOST};
    cu_expect(CUDA_ERROR_INVALID_VALUE, cu->mem_create(&handle, granule, &properties, 0));
    properties.location = (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT};
    cu_expect(CUDA_ERROR_INVALID_VALUE, cu->mem_create(&handle, granule, &properties, 0));
}
END_TEST

/* Attribute 128 speaks of the driver; whether an IMEX channel is there shows at create alone. */
START_TEST(fabric_chunks_work_or_are_refused_as_fabric)
{
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp properties;
    CUresult result;

    setup_driver();
    properties = chunk_properties();
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_FABRIC;
    result = cu->mem_create(&handle, granule, &properties, 0);
    ck_assert_msg(result == CUDA_ERROR_NOT_PERMITTED || result == CUDA_ERROR_NOT_SUPPORTED ||
                      (result == CUDA_SUCCESS && !on_simulator),
        "cuMemCreate gives %d", (int) result);
    if (result == CUDA_SUCCESS)
        cu_ok(cu->mem_release(handle));
}
END_TEST

START_TEST(rdma_capability_is_a_property_of_the_chunk)
{
    CUmemAllocationProp properties, seen;
    CUmemGenericAllocationHandle handle;
    int capable = 0;

    setup_driver();
    cu_ok(cu->device_get_attribute(
        &capable, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, device));
    if (!capable)
        return;
    properties = chunk_properties();
    properties.allocFlags.gpuDirectRDMACapable = 1;
    cu_ok(cu->mem_create(&handle, granule, &properties, 0));
    cu_ok(cu->mem_get_allocation_properties(&seen, handle));
    ck_assert_int_eq(seen.allocFlags.gpuDirectRDMACapable, 1);
    cu_ok(cu->mem_release(handle));
    handle = chunk_new(granule);
    cu_ok(cu->mem_get_allocation_properties(&seen, handle));
    ck_assert_int_eq(seen.allocFlags.gpuDirectRDMACapable, 0);
    cu_ok(cu->mem_release(handle));
}
END_TEST

START_TEST(create_beyond_the_device_is_out_of_memory)
{
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp properties;
    uint64_t before, bytes;
    size_t total;

    setup_driver();
    properties = chunk_properties();
    before = device_free_bytes();
    cu_ok(cu->device_total_mem(&total, device));
    ck_assert(round_up(total + 1, granule, &bytes));
    cu_expect(CUDA_ERROR_OUT_OF_MEMORY, cu->mem_create(&handle, bytes, &properties, 0));
    cu_observe("3 cuMemCreate of almost 2^64 bytes", CUDA_ERROR_OUT_OF_MEMORY,
        cu->mem_create(&handle, UINT64_MAX / granule * granule, &properties, 0));
    expect_free(before);
}
END_TEST

START_TEST(create_to_the_last_byte_then_out_of_memory)
{
    CUmemGenericAllocationHandle all, more;
    CUmemAllocationProp properties;
    uint64_t before;

    setup_driver();
    if (!on_simulator)
        return; /* others take and give memory meanwhile */
    properties = chunk_properties();
    before = device_free_bytes();
    ck_assert_uint_eq(before, UINT64_C(1) << 30);
    all = chunk_new(before);
    expect_free(0);
    cu_expect(CUDA_ERROR_OUT_OF_MEMORY, cu->mem_create(&more, granule, &properties, 0));
    cu_ok(cu->mem_release(all));
    expect_free(before);
}
END_TEST

START_TEST(create_commits_memory_at_once_and_release_frees_it)
{
    CUmemGenericAllocationHandle handle;
    uint64_t before;

    setup_driver();
    before = device_free_bytes();
    handle = chunk_new(64 * granule);
    expect_free(before - 64 * granule);
    cu_ok(cu->mem_release(handle));
    expect_free(before);
}
END_TEST

START_TEST(properties_read_back_as_created)
{
    CUmemAllocationProp properties, seen;
    CUmemGenericAllocationHandle handle;

    setup_driver();
    properties = chunk_properties();
    handle = chunk_new(granule);
    cu_ok(cu->mem_get_allocation_properties(&seen, handle));
    ck_assert_int_eq(seen.type, properties.type);
    ck_assert_int_eq(seen.requestedHandleTypes, properties.requestedHandleTypes);
    ck_assert_int_eq(seen.location.type, properties.location.type);
    ck_assert_int_eq(seen.location.id, properties.location.id);
    ck_assert_int_eq(seen.allocFlags.compressionType, CU_MEM_ALLOCATION_COMP_NONE);
    cu_expect(CUDA_ERROR_INVALID_VALUE, cu->mem_get_allocation_properties(NULL, handle));
    cu_ok(cu->mem_release(handle));
}
END_TEST

START_TEST(released_handle_is_refused)
{
    CUmemGenericAllocationHandle handle;

    setup_driver();
    if (!on_simulator)
        return; /* undefined behaviour there */
    handle = chunk_new(granule);
    cu_ok(cu->mem_release(handle));
    cu_expect(CUDA_ERROR_INVALID_VALUE, cu->mem_release(handle));
}
END_TEST

START_TEST(export_needs_the_type_asked_for_at_create)
{
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp properties;
    int fd = -1;

    setup_driver();
    properties = chunk_properties();
    properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;
    cu_ok(cu->mem_create(&handle, granule, &properties, 0));
    cu_expect(CUDA_ERROR_INVALID_VALUE, cu->mem_export_to_shareable_handle(&fd, handle,
                                            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    ck_assert_int_eq(fd, -1);
    cu_ok(cu->mem_release(handle));

    handle = chunk_new(granule);
    cu_expect(CUDA_ERROR_INVALID_VALUE, cu->mem_export_to_shareable_handle(&fd, handle,
                                            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 1));
    cu_expect(CUDA_ERROR_INVALID_VALUE,
        cu->mem_export_to_shareable_handle(&fd, handle, CU_MEM_HANDLE_TYPE_WIN32, 0));
    ck_assert_int_eq(fd, -1);
    cu_ok(cu->mem_release(handle));
}
END_TEST

/* Content of fresh memory is nobody's promise: the simulator's default shows who assumes zeros. */
START_TEST(recycled_memory_is_not_promised_to_be_zero)
{
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;

    setup_context();
    handle = chunk_new(granule);
    address = chunk_map_new(handle, granule);
    byte_write(address, 0x5a);
    chunk_unmap(address, granule);
    cu_ok(cu->mem_release(handle));
    handle = chunk_new(granule);
    address = chunk_map_new(handle, granule);
    if (on_simulator)
        ck_assert_int_ne(byte_read(address), 0);
    else
        observation_write(
            "9.9 byte of recycled memory that held 0x5a", "%#x", (unsigned) byte_read(address));
    chunk_unmap(address, granule);
    cu_ok(cu->mem_release(handle));
}
END_TEST

CONFORMANCE_MAIN("create", granularity_divides_recommended_granularity,
    granularity_refuses_nonsense, create_refuses_sizes_off_the_granularity,
    create_refuses_wrong_properties, fabric_chunks_work_or_are_refused_as_fabric,
    rdma_capability_is_a_property_of_the_chunk, host_memory_cannot_be_exported,
    create_beyond_the_device_is_out_of_memory, create_to_the_last_byte_then_out_of_memory,
    create_commits_memory_at_once_and_release_frees_it, properties_read_back_as_created,
    released_handle_is_refused, export_needs_the_type_asked_for_at_create,
    recycled_memory_is_not_promised_to_be_zero)
