/* Contexts, and which calls need one: specification 2.3, 2.4, 5.2. */
#include "tests/conformance/conformance.h"

#include <pthread.h>
#include <unistd.h>

START_TEST(no_current_context_is_null_and_success)
{
    CUcontext current = (CUcontext) &current;

    setup_driver();
    cu_ok(cu->ctx_get_current(&current));
    ck_assert_ptr_null(current);
    cu_expect(CUDA_ERROR_INVALID_CONTEXT, cu->ctx_get_device(&device));
    cu_expect(CUDA_ERROR_INVALID_CONTEXT, cu->ctx_pop_current(&current));
}
END_TEST

START_TEST(retain_does_not_make_current_and_gives_the_same_context)
{
    CUcontext first, second, current;

    setup_driver();
    cu_ok(cu->primary_ctx_retain(&first, device));
    cu_ok(cu->ctx_get_current(&current));
    ck_assert_ptr_null(current);
    cu_ok(cu->primary_ctx_retain(&second, device));
    ck_assert_ptr_eq(first, second);
}
END_TEST

START_TEST(primary_state_follows_the_reference_count)
{
    unsigned flags = 0;
    int active = -1;

    setup_driver();
    cu_ok(cu->primary_ctx_get_state(device, &flags, &active));
    ck_assert_int_eq(active, 0);
    cu_ok(cu->primary_ctx_retain(&context, device));
    cu_ok(cu->primary_ctx_retain(&context, device));
    cu_ok(cu->primary_ctx_release(device));
    cu_ok(cu->primary_ctx_get_state(device, &flags, &active));
    ck_assert_int_eq(active, 1);
    cu_ok(cu->primary_ctx_release(device));
    cu_ok(cu->primary_ctx_get_state(device, &flags, &active));
    ck_assert_int_eq(active, 0);
    cu_expect(CUDA_ERROR_INVALID_CONTEXT, cu->primary_ctx_release(device));
}
END_TEST

START_TEST(last_release_leaves_the_context_on_the_stack)
{
    CUcontext current = NULL;
    CUdeviceptr address;

    setup_context();
    cu_ok(cu->primary_ctx_release(device));
    cu_ok(cu->ctx_get_current(&current));
    ck_assert_ptr_eq(current, context);
    ck_assert_int_ne(cu->mem_alloc(&address, 4096), CUDA_SUCCESS);
}
END_TEST

START_TEST(stack_pushes_and_pops_in_order)
{
    CUcontext other, popped, current;

    setup_context();
    cu_ok(cu->ctx_create(&other, CU_CTX_SCHED_AUTO, device));
    cu_ok(cu->ctx_get_current(&current));
    ck_assert_ptr_eq(current, other);
    ck_assert_ptr_ne(other, context);
    cu_ok(cu->ctx_push_current(context));
    cu_ok(cu->ctx_pop_current(&popped));
    ck_assert_ptr_eq(popped, context);
    cu_ok(cu->ctx_pop_current(&popped));
    ck_assert_ptr_eq(popped, other);
    cu_ok(cu->ctx_get_current(&current));
    ck_assert_ptr_eq(current, context);
    cu_ok(cu->ctx_destroy(other));
}
END_TEST

START_TEST(set_current_replaces_the_top_and_null_unbinds_it)
{
    CUcontext other, current;

    setup_context();
    cu_ok(cu->ctx_create(&other, CU_CTX_SCHED_AUTO, device));
    cu_ok(cu->ctx_set_current(context));
    cu_ok(cu->ctx_set_current(NULL));
    cu_ok(cu->ctx_get_current(&current));
    ck_assert_ptr_eq(current, context);
    cu_ok(cu->ctx_set_current(NULL));
    cu_ok(cu->ctx_get_current(&current));
    ck_assert_ptr_null(current);
    cu_ok(cu->ctx_destroy(other));
}
END_TEST

START_TEST(ctx_destroy_of_the_current_one_pops_it)
{
    CUcontext other, current;

    setup_context();
    cu_ok(cu->ctx_create(&other, CU_CTX_SCHED_AUTO, device));
    cu_ok(cu->ctx_destroy(other));
    cu_ok(cu->ctx_get_current(&current));
    ck_assert_ptr_eq(current, context);
}
END_TEST

static void *current_read(void *at)
{
    cu_ok(cu->ctx_get_current(at));
    return NULL;
}

START_TEST(current_context_is_per_thread)
{
    CUcontext seen = (CUcontext) &seen;
    pthread_t thread;

    setup_context();
    ck_assert_int_eq(pthread_create(&thread, NULL, current_read, &seen), 0);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_ptr_null(seen);
}
END_TEST

START_TEST(memory_calls_without_context_give_invalid_context)
{
    char image[] = "not an image";
    CUdeviceptr address;
    CUmodule module;
    CUstream stream;
    CUevent event;
    size_t a, b;
    void *host;

    setup_driver();
    cu_expect(CUDA_ERROR_INVALID_CONTEXT, cu->mem_get_info(&a, &b));
    cu_expect(CUDA_ERROR_INVALID_CONTEXT, cu->mem_alloc(&address, 4096));
    cu_expect(CUDA_ERROR_INVALID_CONTEXT, cu->mem_host_alloc(&host, 4096, 0));
    cu_expect(CUDA_ERROR_INVALID_CONTEXT, cu->stream_create(&stream, 0));
    cu_expect(CUDA_ERROR_INVALID_CONTEXT, cu->event_create(&event, 0));
    cu_expect(CUDA_ERROR_INVALID_CONTEXT, cu->module_load_data(&module, image));
    cu_expect(CUDA_ERROR_INVALID_CONTEXT, cu->ctx_synchronize());
    cu_observe("2.4 cuIpcCloseMemHandle without context", CUDA_ERROR_INVALID_CONTEXT,
        cu->ipc_close_mem_handle(0x10000));
}
END_TEST

/* What the broker lives on: no context, and none comes into being. */
START_TEST(vmm_calls_need_no_context_and_create_none)
{
    CUmemGenericAllocationHandle handle, imported;
    CUdeviceptr address;
    unsigned flags;
    int active = -1;
    int fd;

    setup_driver();
    handle = chunk_new(granule);
    fd = chunk_fd(handle);
    cu_ok(cu->mem_import_from_shareable_handle(
        &imported, (void *) (uintptr_t) fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
    (void) close(fd);
    cu_ok(cu->mem_address_reserve(&address, granule, granule, 0, 0));
    cu_ok(cu->mem_map(address, granule, 0, imported, 0));
    cu_ok(cu->mem_unmap(address, granule));
    cu_ok(cu->mem_address_free(address, granule));
    cu_ok(cu->mem_release(imported));
    cu_ok(cu->mem_release(handle));
    cu_ok(cu->primary_ctx_get_state(device, &flags, &active));
    ck_assert_int_eq(active, 0);
}
END_TEST

START_TEST(set_access_needs_a_context_on_the_device)
{
    CUmemGenericAllocationHandle handle;
    CUmemAccessDesc access;
    CUdeviceptr address;

    setup_driver();
    access = (CUmemAccessDesc){
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
    handle = chunk_new(granule);
    cu_ok(cu->mem_address_reserve(&address, granule, granule, 0, 0));
    cu_ok(cu->mem_map(address, granule, 0, handle, 0));
    cu_observe("9.2 cuMemSetAccess without context", CUDA_ERROR_INVALID_CONTEXT,
        cu->mem_set_access(address, granule, &access, 1));
    cu_ok(cu->primary_ctx_retain(&context, device));
    cu_ok(cu->mem_set_access(address, granule, &access, 1));
    chunk_unmap(address, granule);
    cu_ok(cu->mem_release(handle));
}
END_TEST

START_TEST(unmap_works_after_the_context_is_gone)
{
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;

    setup_context();
    handle = chunk_new(granule);
    address = chunk_map_new(handle, granule);
    cu_ok(cu->ctx_set_current(NULL));
    cu_ok(cu->primary_ctx_release(device));
    chunk_unmap(address, granule);
    cu_ok(cu->mem_release(handle));
}
END_TEST

START_TEST(mem_get_info_is_of_the_whole_device)
{
    CUmemGenericAllocationHandle handle;
    size_t before, after, total, whole;

    setup_context();
    cu_ok(cu->device_total_mem(&whole, device));
    cu_ok(cu->mem_get_info(&before, &total));
    ck_assert_uint_le(before, total);
    ck_assert_uint_le(total, whole);
    handle = chunk_new(64 * granule);
    cu_ok(cu->mem_get_info(&after, &total));
    if (on_simulator)
        ck_assert_uint_eq(after, before - 64 * granule);
    ck_assert_uint_le(after, before - 64 * granule + FREE_SLACK_BYTES);
    cu_ok(cu->mem_release(handle));
}
END_TEST

START_TEST(context_costs_memory_while_it_lives)
{
    uint64_t before, with;

    if (on_simulator)
        ck_assert_int_eq(setenv("GMB_SIM_CONTEXT_OVERHEAD", "96M", 1), 0);
    setup_driver();
    before = device_free_bytes();
    cu_ok(cu->primary_ctx_retain(&context, device));
    with = device_free_bytes();
    if (on_simulator)
        ck_assert_uint_eq(before - with, UINT64_C(96) << 20);
    else
        observation_write("5.2 bytes that a context costs", "%lld", (long long) (before - with));
    cu_ok(cu->primary_ctx_release(device));
    expect_free(before);
}
END_TEST

CONFORMANCE_MAIN("context", no_current_context_is_null_and_success,
    retain_does_not_make_current_and_gives_the_same_context,
    primary_state_follows_the_reference_count, last_release_leaves_the_context_on_the_stack,
    stack_pushes_and_pops_in_order, set_current_replaces_the_top_and_null_unbinds_it,
    ctx_destroy_of_the_current_one_pops_it, current_context_is_per_thread,
    memory_calls_without_context_give_invalid_context, vmm_calls_need_no_context_and_create_none,
    set_access_needs_a_context_on_the_device, unmap_works_after_the_context_is_gone,
    mem_get_info_is_of_the_whole_device, context_costs_memory_while_it_lives)
