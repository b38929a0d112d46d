/* Initialisation, devices, names of errors, symbols: specification 2.1, 2.2, 5.1, 5.9, 1.3. */
#include "tests/conformance/conformance.h"

#include <dlfcn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/conformance/peer.h"

START_TEST(calls_before_init_give_not_initialized)
{
    CUmemAllocationProp properties = chunk_properties();
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;
    CUstream stream;
    size_t a, b;
    int count;

    cu_expect(CUDA_ERROR_NOT_INITIALIZED, cu->device_get_count(&count));
    cu_expect(CUDA_ERROR_NOT_INITIALIZED, cu->device_get(&device, 0));
    cu_expect(CUDA_ERROR_NOT_INITIALIZED, cu->ctx_get_current(&context));
    cu_expect(CUDA_ERROR_NOT_INITIALIZED, cu->primary_ctx_retain(&context, 0));
    cu_expect(CUDA_ERROR_NOT_INITIALIZED, cu->mem_create(&handle, 1 << 21, &properties, 0));
    cu_expect(CUDA_ERROR_NOT_INITIALIZED, cu->mem_address_reserve(&address, 1 << 21, 0, 0, 0));
    cu_expect(CUDA_ERROR_NOT_INITIALIZED, cu->mem_alloc(&address, 1));
    cu_expect(CUDA_ERROR_NOT_INITIALIZED, cu->mem_get_info(&a, &b));
    cu_expect(CUDA_ERROR_NOT_INITIALIZED, cu->stream_create(&stream, 0));
}
END_TEST

START_TEST(version_and_names_need_no_init)
{
    const char *text = NULL;
    int version = 0;

    cu_ok(cu->driver_get_version(&version));
    ck_assert_int_ge(version, 10020);
    cu_expect(CUDA_ERROR_INVALID_VALUE, cu->driver_get_version(NULL));
    cu_ok(cu->get_error_name(CUDA_ERROR_OUT_OF_MEMORY, &text));
    ck_assert_str_eq(text, "CUDA_ERROR_OUT_OF_MEMORY");
}
END_TEST

START_TEST(init_refuses_flags_and_may_be_repeated)
{
    cu_expect(CUDA_ERROR_INVALID_VALUE, cu->init(1));
    cu_ok(cu->init(0));
    cu_ok(cu->init(0));
    cu_expect(CUDA_ERROR_INVALID_VALUE, cu->init(1));
}
END_TEST

START_TEST(device_ordinals_end_at_count)
{
    CUdevice other;
    int count = 0;

    setup_driver();
    cu_ok(cu->device_get_count(&count));
    ck_assert_int_ge(count, 1);
    if (on_simulator)
        ck_assert_int_eq(count, 2);
    cu_ok(cu->device_get(&other, count - 1));
    cu_expect(CUDA_ERROR_INVALID_DEVICE, cu->device_get(&other, count));
    cu_expect(CUDA_ERROR_INVALID_DEVICE, cu->device_get(&other, -1));
}
END_TEST

START_TEST(device_name_is_always_terminated)
{
    char name[96], cut[4] = {'x', 'x', 'x', 'x'};

    setup_driver();
    cu_ok(cu->device_get_name(name, sizeof(name), device));
    ck_assert_uint_gt(strlen(name), 3);
    cu_ok(cu->device_get_name(cut, 3, device));
    ck_assert_int_eq(cut[2], '\0');
    ck_assert_int_eq(cut[3], 'x');
    ck_assert_int_eq(strncmp(cut, name, 2), 0);
}
END_TEST

START_TEST(device_attributes_are_known_or_refused)
{
    int value = -1;

    setup_driver();
    cu_ok(cu->device_get_attribute(
        &value, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device));
    ck_assert_int_eq(value, 1);
    cu_ok(cu->device_get_attribute(
        &value, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, device));
    ck_assert_int_eq(value, 1);
    cu_ok(cu->device_get_attribute(&value, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device));
    ck_assert_int_ge(value, 7);
    cu_expect(CUDA_ERROR_INVALID_VALUE,
        cu->device_get_attribute(&value, (CUdevice_attribute) 100000, device));
}
END_TEST

START_TEST(device_total_needs_no_context)
{
    size_t total = 0;

    setup_driver();
    cu_ok(cu->device_total_mem(&total, device));
    if (on_simulator)
        ck_assert_uint_eq(total, UINT64_C(1) << 30);
    ck_assert_uint_gt(total, 0);
}
END_TEST

START_TEST(device_uuids_are_distinct_and_stable)
{
    CUuuid uuids[2][2] = {0};
    int count = 0;

    setup_driver();
    cu_ok(cu->device_get_count(&count));
    for (int i = 0; i < count && i < 2; i++) {
        CUdevice at;

        cu_ok(cu->device_get(&at, i));
        cu_ok(cu->device_get_uuid(&uuids[0][i], at));
        cu_ok(cu->device_get_uuid(&uuids[1][i], at));
    }
    ck_assert_mem_eq(uuids[0], uuids[1], sizeof(uuids[0]));
    ck_assert_mem_ne(&uuids[0][0], &uuids[0][1], sizeof(CUuuid));
}
END_TEST

START_TEST(error_names_are_cuda_names_and_unknown_codes_give_null)
{
    static const struct {
        CUresult code;
        const char *name;
    } names[] = {
        {CUDA_SUCCESS, "CUDA_SUCCESS"},
        {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE"},
        {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE"},
        {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT"},
        {CUDA_ERROR_NOT_FOUND, "CUDA_ERROR_NOT_FOUND"},
        {CUDA_ERROR_NOT_READY, "CUDA_ERROR_NOT_READY"},
        {CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS"},
        {CUDA_ERROR_NOT_PERMITTED, "CUDA_ERROR_NOT_PERMITTED"},
        {CUDA_ERROR_UNKNOWN, "CUDA_ERROR_UNKNOWN"},
    };
    const char *text = "untouched";

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        cu_ok(cu->get_error_name(names[i].code, &text));
        ck_assert_str_eq(text, names[i].name);
        cu_ok(cu->get_error_string(names[i].code, &text));
        ck_assert_uint_gt(strlen(text), 0);
    }
    cu_expect(CUDA_ERROR_INVALID_VALUE, cu->get_error_name((CUresult) 12345, &text));
    ck_assert_ptr_null(text);
    text = "untouched";
    cu_expect(CUDA_ERROR_INVALID_VALUE, cu->get_error_string((CUresult) 12345, &text));
    ck_assert_ptr_null(text);
}
END_TEST

START_TEST(proc_address_takes_base_names_and_the_version_picks_the_abi)
{
    CUdriverProcAddressQueryResult status = CU_GET_PROC_ADDRESS_SUCCESS;
    CUresult (*alloc)(CUdeviceptr *, size_t) = NULL;
    void *function = NULL;
    CUdeviceptr address;

    setup_context();
    if (cu->get_proc_address == NULL)
        return;
    cu_ok(cu->get_proc_address("cuMemAlloc", &function, 3020, 0, &status));
    ck_assert_int_eq(status, CU_GET_PROC_ADDRESS_SUCCESS);
    memcpy(&alloc, &function, sizeof(alloc));
    ck_assert_ptr_nonnull(function);
    cu_ok(alloc(&address, 4096));
    cu_ok(cu->mem_free(address));

    cu_ok(cu->get_proc_address("cuNoSuchFunction", &function, 12000, 0, &status));
    ck_assert_ptr_null(function);
    ck_assert_int_eq(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    cu_ok(cu->get_proc_address("cuMemCreate", &function, 9000, 0, &status));
    ck_assert_ptr_null(function);
    ck_assert_int_eq(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    cu_expect(CUDA_ERROR_INVALID_VALUE,
        cu->get_proc_address("cuMemAlloc", &function, cu->version + 10000, 0, &status));
}
END_TEST

/* The reported answer is 3, or undefined behaviour. */
START_TEST(forked_child_is_not_initialized)
{
    int status, count = 0;
    pid_t child;

    setup_context();
    child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0)
        _exit((int) cu->device_get_count(&count));
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status) || !on_simulator);
    cu_observe("2.2 a call in a forked child", CUDA_ERROR_NOT_INITIALIZED,
        (CUresult) (WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status)));
    cu_ok(cu->device_get_count(&count));
}
END_TEST

START_TEST(init_without_a_visible_device_gives_no_device)
{
    struct peer peer = peer_start("CUDA_VISIBLE_DEVICES=");
    struct peer_message reply =
        peer_call(&peer, (struct peer_message){.op = PEER_INIT_BARE}, -1, NULL);

    ck_assert_int_eq(reply.result, CUDA_ERROR_NO_DEVICE);
    peer_end(&peer);
}
END_TEST

START_TEST(simulator_has_no_32_bit_names)
{
    static const char *const names[] = {"cuMemAlloc", "cuMemFree", "cuMemGetInfo",
        "cuDeviceTotalMem", "cuMemcpyHtoD", "cuMemsetD8"};

    if (!on_simulator)
        return;
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        ck_assert_msg(dlsym(cu->handle, names[i]) == NULL, "%s is exported", names[i]);
}
END_TEST

CONFORMANCE_MAIN("init", calls_before_init_give_not_initialized, version_and_names_need_no_init,
    init_refuses_flags_and_may_be_repeated, device_ordinals_end_at_count,
    device_name_is_always_terminated, device_attributes_are_known_or_refused,
    device_total_needs_no_context, device_uuids_are_distinct_and_stable,
    error_names_are_cuda_names_and_unknown_codes_give_null,
    proc_address_takes_base_names_and_the_version_picks_the_abi, forked_child_is_not_initialized,
    init_without_a_visible_device_gives_no_device, simulator_has_no_32_bit_names)
