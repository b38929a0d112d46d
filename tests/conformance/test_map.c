/* Address space, mapping, access: specification 3. */
#include "tests/conformance/conformance.h"

#include <unistd.h>

static CUresult access_try(CUdeviceptr address, size_t bytes, int id, CUmemAccess_flags flags)
{
    CUmemAccessDesc access = {
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = id},
        .flags = flags,
    };

    return cu->mem_set_access(address, bytes, &access, 1);
}

/* `count` chunks of one granule side by side, without access. */
static CUdeviceptr chunks_map(CUmemGenericAllocationHandle *handles, size_t count)
{
    CUdeviceptr base;

    cu_ok(cu->mem_address_reserve(&base, count * granule, granule, 0, 0));
    for (size_t i = 0; i < count; i++) {
        handles[i] = chunk_new(granule);
        cu_ok(cu->mem_map(base + i * granule, granule, 0, handles[i], 0));
    }
    return base;
}

static void chunks_release(CUmemGenericAllocationHandle *handles, size_t count)
{
    for (size_t i = 0; i < count; i++)
        cu_ok(cu->mem_release(handles[i]));
}

START_TEST(reserve_refuses_nonsense)
{
    CUdeviceptr address;

    setup_driver();
    cu_expect(CUDA_ERROR_INVALID_VALUE, cu->mem_address_reserve(&address, 0, 0, 0, 0));
    cu_expect(
        CUDA_ERROR_INVALID_VALUE, cu->mem_address_reserve(&address, granule + 1, granule, 0, 0));
    cu_expect(
        CUDA_ERROR_INVALID_VALUE, cu->mem_address_reserve(&address, granule, 3 * granule, 0, 0));
    cu_expect(CUDA_ERROR_INVALID_VALUE, cu->mem_address_reserve(&address, granule, 0, 0, 1));
    cu_expect(CUDA_ERROR_INVALID_VALUE, cu->mem_address_reserve(NULL, granule, 0, 0, 0));
}
END_TEST

START_TEST(reserve_is_aligned_and_costs_no_memory)
{
    CUdeviceptr address;
    uint64_t before;
    size_t total;

    setup_driver();
    cu_ok(cu->device_total_mem(&total, device));
    before = device_free_bytes();
    total -= total % granule;
    cu_ok(cu->mem_address_reserve(&address, 4 * total, granule, 0, 0));
    ck_assert_uint_eq(address % granule, 0);
    expect_free(before);
    cu_ok(cu->mem_address_free(address, 4 * total));
    cu_ok(cu->mem_address_reserve(&address, granule, 16 * granule, 0, 0));
    ck_assert_uint_eq(address % (16 * granule), 0);
    cu_ok(cu->mem_address_free(address, granule));
}
END_TEST

/* Some drivers fail where they should take another address: both is allowed. */
START_TEST(reserve_may_ignore_its_hint)
{
    CUdeviceptr first, second;
    CUresult result;

    setup_driver();
    cu_ok(cu->mem_address_reserve(&first, granule, granule, 0, 0));
    result = cu->mem_address_reserve(&second, granule, granule, first, 0);
    if (on_simulator)
        ck_assert_int_eq(result, CUDA_SUCCESS);
    if (result == CUDA_SUCCESS) {
        ck_assert_uint_ne(second, first);
        cu_ok(cu->mem_address_free(second, granule));
    }
    cu_ok(cu->mem_address_free(first, granule));
    cu_expect(CUDA_ERROR_INVALID_VALUE,
        cu->mem_address_reserve(&second, granule, granule, granule + 1, 0));
}
END_TEST

START_TEST(address_free_takes_exactly_one_reservation)
{
    CUdeviceptr address;

    setup_driver();
    cu_ok(cu->mem_address_reserve(&address, 2 * granule, granule, 0, 0));
    cu_expect(CUDA_ERROR_INVALID_VALUE, cu->mem_address_free(address, granule));
    cu_expect(CUDA_ERROR_INVALID_VALUE, cu->mem_address_free(address + granule, granule));
    cu_expect(CUDA_ERROR_INVALID_VALUE, cu->mem_address_free(address, 4 * granule));
    cu_ok(cu->mem_address_free(address, 2 * granule));
    cu_expect(CUDA_ERROR_INVALID_VALUE, cu->mem_address_free(address, 2 * granule));
}
END_TEST

START_TEST(address_free_with_live_mapping_is_refused)
{
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;

    setup_driver();
    address = chunks_map(&handle, 1);
    cu_observe("9.10 cuMemAddressFree with a live mapping", CUDA_ERROR_INVALID_VALUE,
        cu->mem_address_free(address, granule));
    if (on_simulator)
        chunk_unmap(address, granule);
    chunks_release(&handle, 1);
}
END_TEST

START_TEST(map_refuses_offset_flags_and_misalignment)
{
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;

    setup_driver();
    handle = chunk_new(2 * granule);
    cu_ok(cu->mem_address_reserve(&address, 4 * granule, granule, 0, 0));
    cu_observe("9.1 cuMemMap with offset", CUDA_ERROR_INVALID_VALUE,
        cu->mem_map(address, granule, granule, handle, 0));
    cu_expect(CUDA_ERROR_INVALID_VALUE, cu->mem_map(address, 2 * granule, granule, handle, 0));
    cu_expect(CUDA_ERROR_INVALID_VALUE, cu->mem_map(address, 2 * granule, 0, handle, 1));
    cu_expect(
        CUDA_ERROR_INVALID_VALUE, cu->mem_map(address + granule / 2, 2 * granule, 0, handle, 0));
    cu_expect(CUDA_ERROR_INVALID_VALUE, cu->mem_map(address, granule / 2, 0, handle, 0));
    cu_expect(CUDA_ERROR_INVALID_VALUE, cu->mem_map(address, 0, 0, handle, 0));
    cu_ok(cu->mem_address_free(address, 4 * granule));
    cu_ok(cu->mem_release(handle));
}
END_TEST

START_TEST(map_takes_the_whole_chunk_inside_a_reservation)
{
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;

    setup_driver();
    handle = chunk_new(2 * granule);
    cu_ok(cu->mem_address_reserve(&address, 4 * granule, granule, 0, 0));
    cu_expect(CUDA_ERROR_INVALID_VALUE, cu->mem_map(address, 4 * granule, 0, handle, 0));
    cu_expect(
        CUDA_ERROR_INVALID_VALUE, cu->mem_map(address + 3 * granule, 2 * granule, 0, handle, 0));
    cu_observe("9.1 cuMemMap of a prefix", CUDA_ERROR_INVALID_VALUE,
        cu->mem_map(address + 2 * granule, granule, 0, handle, 0));
    (void) cu->mem_unmap(address + 2 * granule, granule);
    cu_ok(cu->mem_map(address, 2 * granule, 0, handle, 0));
    cu_ok(cu->mem_unmap(address, 2 * granule));
    cu_ok(cu->mem_address_free(address, 4 * granule));
    cu_expect(CUDA_ERROR_INVALID_VALUE, cu->mem_map(address, 2 * granule, 0, handle, 0));
    cu_ok(cu->mem_release(handle));
}
END_TEST

START_TEST(map_over_a_live_mapping_is_refused)
{
    CUmemGenericAllocationHandle handles[2], other;
    CUdeviceptr address;

    setup_driver();
    address = chunks_map(handles, 2);
    other = chunk_new(granule);
    cu_expect(CUDA_ERROR_INVALID_VALUE, cu->mem_map(address, granule, 0, other, 0));
    cu_expect(CUDA_ERROR_INVALID_VALUE, cu->mem_map(address + granule, granule, 0, other, 0));
    chunk_unmap(address, 2 * granule);
    chunks_release(handles, 2);
    cu_ok(cu->mem_release(other));
}
END_TEST

START_TEST(one_handle_at_two_addresses_is_the_same_bytes)
{
    CUmemGenericAllocationHandle handle;
    CUdeviceptr first, second;

    setup_context();
    handle = chunk_new(granule);
    first = chunk_map_new(handle, granule);
    second = chunk_map_new(handle, granule);
    byte_write(first + granule - 1, 0x11);
    ck_assert_uint_eq(byte_read(second + granule - 1), 0x11);
    byte_write(second, 0x22);
    ck_assert_uint_eq(byte_read(first), 0x22);
    chunk_unmap(first, granule);
    ck_assert_uint_eq(byte_read(second), 0x22);
    chunk_unmap(second, granule);
    cu_ok(cu->mem_release(handle));
}
END_TEST

START_TEST(bytes_survive_unmap_and_map_elsewhere)
{
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;

    setup_context();
    handle = chunk_new(granule);
    address = chunk_map_new(handle, granule);
    byte_write(address + 7, 0x33);
    chunk_unmap(address, granule);
    address = chunk_map_new(handle, granule);
    ck_assert_uint_eq(byte_read(address + 7), 0x33);
    chunk_unmap(address, granule);
    cu_ok(cu->mem_release(handle));
}
END_TEST

START_TEST(unmap_takes_whole_mappings_without_holes)
{
    CUmemGenericAllocationHandle handles[3];
    CUdeviceptr base;

    setup_driver();
    base = chunks_map(handles, 3);
    cu_expect(CUDA_ERROR_INVALID_VALUE, cu->mem_unmap(base, granule / 2));
    cu_expect(CUDA_ERROR_INVALID_VALUE, cu->mem_unmap(base + granule / 2, granule / 2));
    cu_expect(CUDA_ERROR_INVALID_VALUE, cu->mem_unmap(base, granule + granule / 2));
    cu_ok(cu->mem_unmap(base + granule, granule));
    cu_expect(CUDA_ERROR_INVALID_VALUE, cu->mem_unmap(base, 3 * granule));
    cu_expect(CUDA_ERROR_INVALID_VALUE, cu->mem_unmap(base + granule, granule));
    /* The failed calls undid nothing. */
    cu_ok(cu->mem_unmap(base, granule));
    cu_ok(cu->mem_unmap(base + 2 * granule, granule));
    cu_ok(cu->mem_address_free(base, 3 * granule));
    chunks_release(handles, 3);
}
END_TEST

START_TEST(unmap_of_a_part_of_a_two_granule_chunk_is_refused)
{
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;

    setup_context();
    handle = chunk_new(2 * granule);
    address = chunk_map_new(handle, 2 * granule);
    cu_expect(CUDA_ERROR_INVALID_VALUE, cu->mem_unmap(address, granule));
    cu_expect(CUDA_ERROR_INVALID_VALUE, cu->mem_unmap(address + granule, granule));
    byte_write(address + 2 * granule - 1, 1);
    chunk_unmap(address, 2 * granule);
    cu_ok(cu->mem_release(handle));
}
END_TEST

START_TEST(unmapped_range_is_reserved_still_and_access_is_lost)
{
    CUmemGenericAllocationHandle handle;
    unsigned long long flags = 1;
    CUdeviceptr address;

    setup_context();
    handle = chunk_new(granule);
    address = chunk_map_new(handle, granule);
    cu_ok(cu->mem_unmap(address, granule));
    cu_ok(cu->mem_map(address, granule, 0, handle, 0));
    cu_observe("9.10 cuMemGetAccess of a mapping never set", CUDA_SUCCESS,
        cu->mem_get_access(
            &flags, &(CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}, address));
    if (on_simulator)
        ck_assert_uint_eq(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
    chunk_unmap(address, granule);
    cu_ok(cu->mem_release(handle));
}
END_TEST

START_TEST(set_access_covers_several_mappings_and_reads_back)
{
    CUmemGenericAllocationHandle handles[2];
    CUmemLocation location;
    unsigned long long flags;
    CUdeviceptr base;

    setup_context();
    location = (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
    base = chunks_map(handles, 2);
    access_set(base, 2 * granule, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    cu_ok(cu->mem_get_access(&flags, &location, base));
    ck_assert_uint_eq(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    access_set(base + granule, granule, CU_MEM_ACCESS_FLAGS_PROT_READ);
    cu_ok(cu->mem_get_access(&flags, &location, base + 2 * granule - 1));
    ck_assert_uint_eq(flags, CU_MEM_ACCESS_FLAGS_PROT_READ);
    cu_ok(cu->mem_get_access(&flags, &location, base));
    ck_assert_uint_eq(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    access_set(base, 2 * granule, CU_MEM_ACCESS_FLAGS_PROT_NONE);
    cu_ok(cu->mem_get_access(&flags, &location, base));
    ck_assert_uint_eq(flags, CU_MEM_ACCESS_FLAGS_PROT_NONE);
    chunk_unmap(base, 2 * granule);
    chunks_release(handles, 2);
}
END_TEST

START_TEST(set_access_refuses_holes_parts_and_nonsense)
{
    CUmemGenericAllocationHandle handles[2];
    CUdeviceptr base;
    int count;

    setup_context();
    cu_ok(cu->device_get_count(&count));
    base = chunks_map(handles, 2);
    cu_expect(CUDA_ERROR_INVALID_VALUE,
        access_try(base, granule / 2, device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    cu_expect(CUDA_ERROR_INVALID_VALUE,
        access_try(base + granule / 2, granule, device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    cu_expect(CUDA_ERROR_INVALID_VALUE, access_try(base, granule, device, (CUmemAccess_flags) 2));
    cu_expect(CUDA_ERROR_INVALID_DEVICE,
        access_try(base, granule, count, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    cu_ok(cu->mem_unmap(base + granule, granule));
    cu_expect(CUDA_ERROR_INVALID_VALUE,
        access_try(base, 2 * granule, device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    cu_ok(access_try(base, granule, device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
    cu_ok(cu->mem_unmap(base, granule));
    cu_ok(cu->mem_address_free(base, 2 * granule));
    chunks_release(handles, 2);
}
END_TEST

START_TEST(get_access_of_unmapped_addresses_is_refused)
{
    unsigned long long flags;
    CUdeviceptr address;

    setup_context();
    cu_ok(cu->mem_address_reserve(&address, granule, granule, 0, 0));
    cu_observe("9.10 cuMemGetAccess of a reserved address", CUDA_ERROR_INVALID_VALUE,
        cu->mem_get_access(
            &flags, &(CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}, address));
    cu_ok(cu->mem_address_free(address, granule));
}
END_TEST

/* Last in its process: the real driver may answer later, by poisoning the context. */
START_TEST(copy_to_mapped_memory_without_access_fails)
{
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;

    setup_context();
    address = chunks_map(&handle, 1);
    cu_observe("9.3 cuMemsetD8 on memory without access", CUDA_ERROR_INVALID_VALUE,
        cu->memset_d8(address, 1, 16));
    cu_observe("9.3 cuCtxSynchronize after it", CUDA_SUCCESS, cu->ctx_synchronize());
}
END_TEST

START_TEST(memset_spans_adjacent_mappings)
{
    CUmemGenericAllocationHandle handles[2];
    CUdeviceptr base;

    setup_context();
    base = chunks_map(handles, 2);
    access_set(base, 2 * granule, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    cu_ok(cu->memset_d8(base + granule - 8, 0x44, 16));
    cu_ok(cu->ctx_synchronize());
    ck_assert_uint_eq(byte_read(base + granule - 1), 0x44);
    ck_assert_uint_eq(byte_read(base + granule), 0x44);
    chunk_unmap(base, 2 * granule);
    chunks_release(handles, 2);
}
END_TEST

START_TEST(mapping_keeps_memory_that_its_handle_released)
{
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    uint64_t before;

    setup_context();
    before = device_free_bytes();
    handle = chunk_new(64 * granule);
    address = chunk_map_new(handle, 64 * granule);
    cu_ok(cu->mem_release(handle));
    byte_write(address, 0x55);
    ck_assert_uint_eq(byte_read(address), 0x55);
    expect_free(before - 64 * granule);
    chunk_unmap(address, 64 * granule);
    expect_free(before);
}
END_TEST

START_TEST(retain_by_address_is_a_reference_of_its_own)
{
    CUmemGenericAllocationHandle handle, again;
    CUdeviceptr address;
    uint64_t before;

    setup_context();
    before = device_free_bytes();
    handle = chunk_new(64 * granule);
    address = chunk_map_new(handle, 64 * granule);
    cu_ok(cu->mem_retain_allocation_handle(&again, (void *) (uintptr_t) (address + granule + 5)));
    ck_assert_uint_eq(again, handle);
    cu_ok(cu->mem_release(handle));
    cu_ok(cu->mem_unmap(address, 64 * granule));
    expect_free(before - 64 * granule);
    cu_ok(cu->mem_map(address, 64 * granule, 0, again, 0));
    cu_ok(cu->mem_unmap(address, 64 * granule));
    cu_expect(CUDA_ERROR_INVALID_VALUE,
        cu->mem_retain_allocation_handle(&handle, (void *) (uintptr_t) address));
    cu_ok(cu->mem_release(again));
    cu_ok(cu->mem_address_free(address, 64 * granule));
    expect_free(before);
}
END_TEST

CONFORMANCE_MAIN("map", reserve_refuses_nonsense, reserve_is_aligned_and_costs_no_memory,
    reserve_may_ignore_its_hint, address_free_takes_exactly_one_reservation,
    address_free_with_live_mapping_is_refused, map_refuses_offset_flags_and_misalignment,
    map_takes_the_whole_chunk_inside_a_reservation, map_over_a_live_mapping_is_refused,
    one_handle_at_two_addresses_is_the_same_bytes, bytes_survive_unmap_and_map_elsewhere,
    unmap_takes_whole_mappings_without_holes, unmap_of_a_part_of_a_two_granule_chunk_is_refused,
    unmapped_range_is_reserved_still_and_access_is_lost,
    set_access_covers_several_mappings_and_reads_back, set_access_refuses_holes_parts_and_nonsense,
    get_access_of_unmapped_addresses_is_refused, copy_to_mapped_memory_without_access_fails,
    memset_spans_adjacent_mappings, mapping_keeps_memory_that_its_handle_released,
    retain_by_address_is_a_reference_of_its_own)
