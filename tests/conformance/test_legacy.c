/* cuMemAlloc and pointer queries: specification 5.3 and 5.8. */
#include "tests/conformance/conformance.h"

#define BYTES (UINT64_C(8) << 20)

static CUdeviceptr alloc_new(size_t bytes)
{
    CUdeviceptr address;

    cu_ok(cu->mem_alloc(&address, bytes));
    return address;
}

START_TEST(alloc_refuses_zero_and_is_aligned)
{
    CUdeviceptr a, b;

    setup_context();
    cu_expect(CUDA_ERROR_INVALID_VALUE, cu->mem_alloc(&a, 0));
    cu_expect(CUDA_ERROR_INVALID_VALUE, cu->mem_alloc(NULL, 4096));
    a = alloc_new(1);
    b = alloc_new(1);
    ck_assert_uint_eq(a % 256, 0);
    ck_assert_uint_eq(b % 256, 0);
    ck_assert_uint_ne(a, b);
    cu_ok(cu->mem_free(a));
    cu_ok(cu->mem_free(b));
}
END_TEST

START_TEST(alloc_beyond_the_device_is_out_of_memory)
{
    CUdeviceptr address;
    size_t total;

    setup_context();
    cu_ok(cu->device_total_mem(&total, device));
    cu_expect(CUDA_ERROR_OUT_OF_MEMORY, cu->mem_alloc(&address, total + 1));
}
END_TEST

START_TEST(free_refuses_unknown_interior_and_freed_pointers)
{
    CUdeviceptr address;

    setup_context();
    address = alloc_new(8192);
    cu_expect(CUDA_ERROR_INVALID_VALUE, cu->mem_free(address + 256));
    cu_expect(CUDA_ERROR_INVALID_VALUE, cu->mem_free(0x1234500));
    cu_ok(cu->mem_free(address));
    cu_expect(CUDA_ERROR_INVALID_VALUE, cu->mem_free(address));
}
END_TEST

START_TEST(free_needs_no_current_context)
{
    CUdeviceptr address;

    setup_context();
    address = alloc_new(4096);
    cu_ok(cu->ctx_set_current(NULL));
    cu_ok(cu->mem_free(address));
}
END_TEST

START_TEST(free_of_vmm_memory_is_refused)
{
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;

    setup_context();
    handle = chunk_new(granule);
    address = chunk_map_new(handle, granule);
    cu_observe("5.3 cuMemFree of a VMM address", CUDA_ERROR_INVALID_VALUE, cu->mem_free(address));
    chunk_unmap(address, granule);
    cu_ok(cu->mem_release(handle));
}
END_TEST

START_TEST(alloc_is_charged_until_freed)
{
    CUdeviceptr address;
    uint64_t before;

    setup_context();
    before = device_free_bytes();
    address = alloc_new(64 * granule);
    expect_free(before - 64 * granule);
    cu_ok(cu->mem_free(address));
    expect_free(before);
}
END_TEST

START_TEST(small_allocations_share_one_block)
{
    CUdeviceptr a, b;
    uint64_t before;

    setup_context();
    if (!on_simulator)
        return; /* 2 MiB don't show among what else happens on a real device */
    before = device_free_bytes();
    a = alloc_new(1000);
    b = alloc_new(1000);
    expect_free(before - (UINT64_C(2) << 20));
    cu_ok(cu->mem_free(a));
    expect_free(before - (UINT64_C(2) << 20));
    cu_ok(cu->mem_free(b));
    expect_free(before);
}
END_TEST

START_TEST(address_range_is_the_allocation)
{
    CUdeviceptr address, base;
    size_t bytes;

    setup_context();
    address = alloc_new(10000);
    cu_ok(cu->mem_get_address_range(&base, &bytes, address + 9999));
    ck_assert_uint_eq(base, address);
    ck_assert_uint_eq(bytes, 10000);
    cu_ok(cu->mem_free(address));
    cu_expect(CUDA_ERROR_NOT_FOUND, cu->mem_get_address_range(&base, &bytes, 0x1234500));
}
END_TEST

START_TEST(address_range_of_vmm_is_one_mapping)
{
    CUmemGenericAllocationHandle handles[2];
    CUdeviceptr range, base;
    size_t bytes;

    setup_context();
    cu_ok(cu->mem_address_reserve(&range, 2 * granule, granule, 0, 0));
    for (size_t i = 0; i < 2; i++) {
        handles[i] = chunk_new(granule);
        cu_ok(cu->mem_map(range + i * granule, granule, 0, handles[i], 0));
    }
    cu_ok(cu->mem_get_address_range(&base, &bytes, range + granule + 1));
    ck_assert_uint_eq(base, range + granule);
    ck_assert_uint_eq(bytes, granule);
    chunk_unmap(range, 2 * granule);
    cu_ok(cu->mem_release(handles[0]));
    cu_ok(cu->mem_release(handles[1]));
}
END_TEST

START_TEST(pointer_attributes_of_an_allocation)
{
    CUmemorytype type = 0;
    CUdeviceptr address, base = 0;
    int ordinal = -1, capable = -1;
    CUcontext owner = NULL;
    size_t bytes = 0;

    setup_context();
    address = alloc_new(10000);
    cu_ok(cu->pointer_get_attribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address + 1));
    ck_assert_int_eq(type, CU_MEMORYTYPE_DEVICE);
    cu_ok(cu->pointer_get_attribute(&owner, CU_POINTER_ATTRIBUTE_CONTEXT, address));
    ck_assert_ptr_eq(owner, context);
    cu_ok(cu->pointer_get_attribute(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, address));
    ck_assert_int_eq(ordinal, device);
    cu_ok(cu->pointer_get_attribute(
        &capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, address));
    ck_assert_int_eq(capable & 0xff, 1);
    cu_ok(cu->pointer_get_attribute(&base, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, address + 99));
    ck_assert_uint_eq(base, address);
    cu_ok(cu->pointer_get_attribute(&bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, address));
    ck_assert_uint_eq(bytes, 10000);
    cu_ok(cu->mem_free(address));
    cu_expect(CUDA_ERROR_INVALID_VALUE,
        cu->pointer_get_attribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 0x1234500));
}
END_TEST

START_TEST(pointer_range_of_vmm_is_the_reservation)
{
    CUmemGenericAllocationHandle handle;
    CUdeviceptr range, seen = 0;
    bool mapped = false, capable = true;
    size_t bytes = 0;

    setup_context();
    handle = chunk_new(granule);
    cu_ok(cu->mem_address_reserve(&range, 3 * granule, granule, 0, 0));
    cu_ok(cu->mem_map(range + granule, granule, 0, handle, 0));
    cu_ok(cu->pointer_get_attribute(
        &seen, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, range + granule + 1));
    ck_assert_uint_eq(seen, range);
    cu_ok(cu->pointer_get_attribute(&bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, range + granule));
    ck_assert_uint_eq(bytes, 3 * granule);
    cu_ok(cu->pointer_get_attribute(
        &seen, CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR, range + granule + 1));
    ck_assert_uint_eq(seen, range + granule);
    cu_ok(cu->pointer_get_attribute(&bytes, CU_POINTER_ATTRIBUTE_MAPPING_SIZE, range + granule));
    ck_assert_uint_eq(bytes, granule);
    /* Mapped, though nobody has set access. */
    cu_ok(cu->pointer_get_attribute(&mapped, CU_POINTER_ATTRIBUTE_MAPPED, range + granule));
    ck_assert(mapped);
    cu_ok(cu->pointer_get_attribute(
        &capable, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, range + granule));
    ck_assert(!capable);
    cu_ok(cu->mem_unmap(range + granule, granule));
    cu_ok(cu->mem_address_free(range, 3 * granule));
    cu_ok(cu->mem_release(handle));
}
END_TEST

START_TEST(pointer_attributes_of_a_chunk_tell_how_it_was_made)
{
    CUmemGenericAllocationHandle handle;
    unsigned access = 99;
    uint64_t types = 0, first = 0, second = 0;
    CUdeviceptr address, other;

    setup_context();
    handle = chunk_new(granule);
    address = chunk_map_new(handle, granule);
    cu_ok(cu->pointer_get_attribute(&types, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, address));
    ck_assert_uint_eq(types, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    access_set(address, granule, CU_MEM_ACCESS_FLAGS_PROT_READ);
    cu_ok(cu->pointer_get_attribute(&access, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, address));
    ck_assert_uint_eq(access, CU_MEM_ACCESS_FLAGS_PROT_READ);
    other = alloc_new(BYTES);
    cu_ok(cu->pointer_get_attribute(&first, CU_POINTER_ATTRIBUTE_BUFFER_ID, address));
    cu_ok(cu->pointer_get_attribute(&second, CU_POINTER_ATTRIBUTE_BUFFER_ID, other));
    ck_assert_uint_ne(first, second);
    cu_ok(cu->mem_free(other));
    chunk_unmap(address, granule);
    cu_ok(cu->mem_release(handle));
}
END_TEST

START_TEST(pointer_attributes_of_unknown_pointers_are_zero_and_success)
{
    CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_CONTEXT};
    unsigned type = 99;
    CUcontext owner = (CUcontext) &owner;
    void *values[] = {&type, &owner};

    setup_context();
    cu_ok(cu->pointer_get_attributes(2, names, values, 0x1234500));
    ck_assert_uint_eq(type, 0);
    ck_assert_ptr_null(owner);
}
END_TEST

CONFORMANCE_MAIN("legacy", alloc_refuses_zero_and_is_aligned,
    alloc_beyond_the_device_is_out_of_memory, free_refuses_unknown_interior_and_freed_pointers,
    free_needs_no_current_context, free_of_vmm_memory_is_refused, alloc_is_charged_until_freed,
    small_allocations_share_one_block, address_range_is_the_allocation,
    address_range_of_vmm_is_one_mapping, pointer_attributes_of_an_allocation,
    pointer_range_of_vmm_is_the_reservation, pointer_attributes_of_a_chunk_tell_how_it_was_made,
    pointer_attributes_of_unknown_pointers_are_zero_and_success)
