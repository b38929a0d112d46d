/* Modules, launches, and faults: specification 5.7, 2.6, 3 (access), 6 (kernels in flight). */
#include "tests/conformance/gate.h"

#include "kernels/kernels.h"
#include "kernels/pattern.h"

#define BYTES 65536u
#define SEED 42u

static CUmodule module_new(void)
{
    CUmodule module;

    cu_ok(cu->module_load_data(&module, kernels_ptx));
    return module;
}

static CUfunction function_find(CUmodule module, const char *name)
{
    CUfunction function;

    cu_ok(cu->module_get_function(&function, module, name));
    return function;
}

static CUresult launch(CUfunction function, void *arguments, CUstream stream)
{
    void *parameters[] = {arguments};

    return cu->launch_kernel(function, 4, 1, 1, 64, 1, 1, 0, stream, parameters, NULL);
}

/* A chunk of one granule with `flags`, and the fill kernel aimed at it. */
static CUdeviceptr fill_prepare(
    CUmemAccess_flags flags, CUfunction *ret_fill, struct pattern_fill_args *ret_arguments)
{
    CUmemGenericAllocationHandle handle;
    CUdeviceptr address;

    setup_context();
    handle = chunk_new(granule);
    address = chunk_map_new(handle, granule);
    cu_ok(cu->mem_release(handle));
    access_set(address, granule, flags);
    *ret_fill = function_find(module_new(), "pattern_fill");
    *ret_arguments =
        (struct pattern_fill_args){.dst = address, .bytes = BYTES, .seed = SEED, .first_word = 0};
    return address;
}

START_TEST(module_load_refuses_what_is_no_image)
{
    CUmodule module;

    setup_context();
    ck_assert_int_ne(cu->module_load_data(&module, "no image at all"), CUDA_SUCCESS);
    cu_expect(
        CUDA_ERROR_INVALID_PTX, cu->module_load_data(&module,
                                    ".version 6.0\n.target sm_70\n.address_size 64\nnonsense {\n"));
    cu_observe("5.7 PTX of a version to come", CUDA_ERROR_UNSUPPORTED_PTX_VERSION,
        cu->module_load_data(&module, ".version 99.0\n.target sm_70\n.address_size 64\n"));
    cu_expect(CUDA_ERROR_INVALID_VALUE, cu->module_load_data(&module, NULL));
}
END_TEST

START_TEST(module_function_that_is_absent_is_not_found)
{
    CUfunction function;
    CUmodule module;

    setup_context();
    module = module_new();
    cu_expect(CUDA_ERROR_NOT_FOUND, cu->module_get_function(&function, module, "no_such_kernel"));
    cu_ok(cu->module_get_function(&function, module, "pattern_fill"));
    cu_ok(cu->module_unload(module));
}
END_TEST

START_TEST(launch_refuses_nonsense)
{
    struct pattern_fill_args arguments;
    void *parameters[] = {&arguments};
    void *extra[] = {NULL};
    CUfunction fill;

    (void) fill_prepare(CU_MEM_ACCESS_FLAGS_PROT_READWRITE, &fill, &arguments);
    cu_expect(CUDA_ERROR_INVALID_VALUE,
        cu->launch_kernel(fill, 0, 1, 1, 1, 1, 1, 0, NULL, parameters, NULL));
    cu_expect(CUDA_ERROR_INVALID_VALUE,
        cu->launch_kernel(fill, 1, 1, 1, 1, 0, 1, 0, NULL, parameters, NULL));
    cu_expect(CUDA_ERROR_INVALID_VALUE,
        cu->launch_kernel(fill, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, extra));
    cu_ok(cu->ctx_synchronize());
}
END_TEST

START_TEST(kernels_write_and_check_the_pattern)
{
    CUdeviceptr address, differing;
    struct pattern_check_args check;
    struct pattern_fill_args arguments;
    uint64_t found = 1, word = 0;
    CUfunction fill;

    address = fill_prepare(CU_MEM_ACCESS_FLAGS_PROT_READWRITE, &fill, &arguments);
    cu_ok(launch(fill, &arguments, NULL));
    cu_ok(cu->ctx_synchronize());
    cu_ok(cu->memcpy_dtoh(&word, address + 8, sizeof(word)));
    ck_assert_uint_eq(word, pattern_word(SEED, 1));

    cu_ok(cu->mem_alloc(&differing, 8));
    cu_ok(cu->memset_d8(differing, 0, 8));
    byte_write(address + 100, (unsigned char) ~byte_read(address + 100));
    check = (struct pattern_check_args){
        .src = address, .bytes = BYTES, .seed = SEED, .differing = differing};
    cu_ok(launch(function_find(module_new(), "pattern_check"), &check, NULL));
    cu_ok(cu->ctx_synchronize());
    cu_ok(cu->memcpy_dtoh(&found, differing, sizeof(found)));
    ck_assert_uint_eq(found, 1);
}
END_TEST

START_TEST(launch_is_asynchronous_and_copies_its_arguments)
{
    struct pattern_fill_args arguments;
    struct gate gate = GATE_INIT;
    CUdeviceptr address;
    CUfunction fill;
    CUstream stream;
    uint64_t word;

    address = fill_prepare(CU_MEM_ACCESS_FLAGS_PROT_READWRITE, &fill, &arguments);
    cu_ok(cu->stream_create(&stream, CU_STREAM_NON_BLOCKING));
    cu_ok(cu->memset_d8(address, 0, BYTES));
    cu_ok(cu->ctx_synchronize());
    gate_close(&gate, stream);
    cu_ok(launch(fill, &arguments, stream));
    arguments = (struct pattern_fill_args){0};
    cu_expect(CUDA_ERROR_NOT_READY, cu->stream_query(stream));
    gate_open(&gate);
    cu_ok(cu->stream_synchronize(stream));
    cu_ok(cu->memcpy_dtoh(&word, address + BYTES - 8, sizeof(word)));
    ck_assert_uint_eq(word, pattern_word(SEED, BYTES / 8 - 1));
}
END_TEST

/* The fault is seen at the next synchronisation, and for ever after. */
static void expect_poisoned(void)
{
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp properties = chunk_properties();
    CUdeviceptr address;

    cu_expect(CUDA_ERROR_ILLEGAL_ADDRESS, cu->ctx_synchronize());
    cu_expect(CUDA_ERROR_ILLEGAL_ADDRESS, cu->ctx_synchronize());
    cu_expect(CUDA_ERROR_ILLEGAL_ADDRESS, cu->mem_alloc(&address, 4096));
    cu_observe("2.6 cuMemCreate after error 700", CUDA_ERROR_ILLEGAL_ADDRESS,
        cu->mem_create(&handle, granule, &properties, 0));
}

START_TEST(kernel_write_to_read_only_memory_poisons_the_process)
{
    struct pattern_fill_args arguments;
    CUfunction fill;

    (void) fill_prepare(CU_MEM_ACCESS_FLAGS_PROT_READ, &fill, &arguments);
    cu_ok(launch(fill, &arguments, NULL));
    expect_poisoned();
}
END_TEST

static void count_up(void *at)
{
    (void) __atomic_add_fetch((int *) at, 1, __ATOMIC_SEQ_CST);
}

/* So nobody may give a lease back by a host function alone. */
START_TEST(host_function_behind_a_fault_is_never_called)
{
    struct pattern_fill_args arguments;
    struct gate gate = GATE_INIT;
    CUfunction fill;
    CUstream stream;
    int count = 0;

    (void) fill_prepare(CU_MEM_ACCESS_FLAGS_PROT_READ, &fill, &arguments);
    cu_ok(cu->stream_create(&stream, CU_STREAM_NON_BLOCKING));
    gate_close(&gate, stream);
    cu_ok(launch(fill, &arguments, stream));
    cu_ok(cu->launch_host_func(stream, count_up, &count));
    gate_open(&gate);
    expect_poisoned();
    cu_expect(CUDA_ERROR_ILLEGAL_ADDRESS, cu->launch_host_func(stream, count_up, &count));
    ck_assert_int_eq(__atomic_load_n(&count, __ATOMIC_SEQ_CST), 0);
}
END_TEST

START_TEST(kernel_access_without_set_access_poisons_the_process)
{
    struct pattern_fill_args arguments;
    CUfunction fill;

    (void) fill_prepare(CU_MEM_ACCESS_FLAGS_PROT_NONE, &fill, &arguments);
    cu_ok(launch(fill, &arguments, NULL));
    expect_poisoned();
}
END_TEST

START_TEST(unmap_does_not_wait_for_a_queued_kernel)
{
    struct pattern_fill_args arguments;
    struct gate gate = GATE_INIT;
    CUdeviceptr address;
    CUfunction fill;
    CUstream stream;

    address = fill_prepare(CU_MEM_ACCESS_FLAGS_PROT_READWRITE, &fill, &arguments);
    if (!on_simulator)
        return; /* whether it waits isn't promised there */
    cu_ok(cu->stream_create(&stream, CU_STREAM_NON_BLOCKING));
    gate_close(&gate, stream);
    cu_ok(launch(fill, &arguments, stream));
    cu_ok(cu->mem_unmap(address, granule));
    gate_open(&gate);
    expect_poisoned();
}
END_TEST

START_TEST(read_only_memory_can_be_read_by_a_kernel)
{
    struct pattern_fill_args arguments;
    struct pattern_check_args check;
    CUdeviceptr address, differing;
    uint64_t found = 0;
    CUfunction fill;

    address = fill_prepare(CU_MEM_ACCESS_FLAGS_PROT_READWRITE, &fill, &arguments);
    cu_ok(cu->memset_d8(address, 0, BYTES));
    cu_ok(cu->ctx_synchronize());
    access_set(address, granule, CU_MEM_ACCESS_FLAGS_PROT_READ);
    cu_ok(cu->mem_alloc(&differing, 8));
    cu_ok(cu->memset_d8(differing, 0, 8));
    check = (struct pattern_check_args){
        .src = address, .bytes = BYTES, .seed = SEED, .differing = differing};
    cu_ok(launch(function_find(module_new(), "pattern_check"), &check, NULL));
    cu_ok(cu->ctx_synchronize());
    cu_ok(cu->memcpy_dtoh(&found, differing, sizeof(found)));
    /* A random byte is zero by chance once in 256 times. */
    ck_assert_uint_gt(found, BYTES / 2);
    ck_assert_uint_le(found, BYTES);
}
END_TEST

CONFORMANCE_MAIN("module", module_load_refuses_what_is_no_image,
    module_function_that_is_absent_is_not_found, launch_refuses_nonsense,
    kernels_write_and_check_the_pattern, launch_is_asynchronous_and_copies_its_arguments,
    kernel_write_to_read_only_memory_poisons_the_process,
    host_function_behind_a_fault_is_never_called,
    kernel_access_without_set_access_poisons_the_process, unmap_does_not_wait_for_a_queued_kernel,
    read_only_memory_can_be_read_by_a_kernel)
