/* Modules, launches, and what becomes of a kernel that touches what it may not. */
#include "kernels/kernels.h"
#include "kernels/pattern.h"
#include "tests/simexec/rig.h"

#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

static CUfunction function_load(const char *name)
{
    CUfunction function;
    CUmodule module;

    assert_ok(cuModuleLoadData(&module, kernels_ptx));
    assert_ok(cuModuleGetFunction(&function, module, name));
    return function;
}

static CUresult launch(CUfunction function, CUstream stream, void *args)
{
    void *parameters[] = {args};

    return cuLaunchKernel(function, 4, 1, 1, 64, 1, 1, 0, stream, parameters, NULL);
}

static struct pattern_fill_args fill_args(CUdeviceptr address)
{
    return (struct pattern_fill_args){.dst = address, .bytes = RIG_BYTES, .seed = 7};
}

START_TEST(test_kernel_fills_and_checks_device_memory)
{
    struct rig_memory memory, counter;
    struct pattern_fill_args fill;
    struct pattern_check_args check;

    rig_begin();
    memory = rig_map(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    counter = rig_map(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    fill = fill_args(memory.address);
    assert_ok(launch(function_load("pattern_fill"), NULL, &fill));
    ck_assert_uint_eq(rig_word(memory.address), pattern_word(7, 0));
    ck_assert_uint_eq(rig_word(memory.address + RIG_BYTES - 8), pattern_word(7, RIG_BYTES / 8 - 1));

    assert_ok(cuMemsetD8_v2(counter.address, 0, 8));
    assert_ok(cuMemsetD8_v2(memory.address + 4096, (unsigned char) ~pattern_word(7, 512), 1));
    check = (struct pattern_check_args){
        .src = memory.address, .bytes = RIG_BYTES, .seed = 7, .differing = counter.address};
    assert_ok(launch(function_load("pattern_check"), NULL, &check));
    ck_assert_uint_eq(rig_word(counter.address), 1);
}
END_TEST

START_TEST(test_parameters_are_taken_when_the_call_is_made)
{
    struct rig_gate gate;
    struct rig_memory memory;
    struct pattern_fill_args fill;

    rig_begin();
    memory = rig_map(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    fill = fill_args(memory.address);
    rig_gate_close(&gate, NULL);
    assert_ok(launch(function_load("pattern_fill"), NULL, &fill));
    memset(&fill, 0xff, sizeof(fill));
    rig_gate_open(&gate);
    assert_ok(cuCtxSynchronize());
    ck_assert_uint_eq(rig_word(memory.address), pattern_word(7, 0));
}
END_TEST

START_TEST(test_parameters_come_one_way_and_not_both)
{
    struct rig_memory memory;
    struct pattern_fill_args fill;
    void *parameters[] = {&fill};
    size_t size = sizeof(fill), small = sizeof(fill) - 1;
    void *extra[] = {(void *) 1, &fill, (void *) 2, &size, NULL};
    void *extra_small[] = {(void *) 1, &fill, (void *) 2, &small, NULL};
    void *extra_unknown[] = {(void *) 3, &fill, NULL};
    CUfunction function;

    rig_begin();
    function = function_load("pattern_fill");
    memory = rig_map(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    fill = fill_args(memory.address);
    assert_cuda(CUDA_ERROR_INVALID_VALUE,
        cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, parameters, extra));
    assert_cuda(
        CUDA_ERROR_INVALID_VALUE, cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
    assert_cuda(CUDA_ERROR_INVALID_VALUE,
        cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra_small));
    assert_cuda(CUDA_ERROR_INVALID_VALUE,
        cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra_unknown));
    assert_ok(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, extra));
    ck_assert_uint_eq(rig_word(memory.address), pattern_word(7, 0));
}
END_TEST

START_TEST(test_launch_shape_has_limits)
{
    static const struct {
        unsigned shape[7]; /* grid, block, shared bytes */
        CUresult result;
    } cases[] = {
        {{0, 1, 1, 1, 1, 1, 0}, CUDA_ERROR_INVALID_VALUE},
        {{1, 0, 1, 1, 1, 1, 0}, CUDA_ERROR_INVALID_VALUE},
        {{1, 1, 0, 1, 1, 1, 0}, CUDA_ERROR_INVALID_VALUE},
        {{1, 1, 1, 0, 1, 1, 0}, CUDA_ERROR_INVALID_VALUE},
        {{1, 1, 1, 1, 0, 1, 0}, CUDA_ERROR_INVALID_VALUE},
        {{1, 1, 1, 1, 1, 0, 0}, CUDA_ERROR_INVALID_VALUE},
        {{1, 65536, 1, 1, 1, 1, 0}, CUDA_ERROR_INVALID_VALUE},
        {{1, 1, 65536, 1, 1, 1, 0}, CUDA_ERROR_INVALID_VALUE},
        {{1, 1, 1, 1025, 1, 1, 0}, CUDA_ERROR_INVALID_VALUE},
        {{1, 1, 1, 1, 1, 65, 0}, CUDA_ERROR_INVALID_VALUE},
        {{1, 1, 1, 32, 33, 1, 0}, CUDA_ERROR_INVALID_VALUE},
        {{1, 1, 1, 1, 1, 1, 49153}, CUDA_ERROR_INVALID_VALUE},
        {{1, 1, 1, 32, 32, 1, 49152}, CUDA_SUCCESS},
        {{3, 2, 2, 1, 16, 64, 0}, CUDA_SUCCESS},
    };
    struct rig_memory memory;
    struct pattern_fill_args fill;
    void *parameters[] = {&fill};
    CUfunction function;

    rig_begin();
    function = function_load("pattern_fill");
    memory = rig_map(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    fill = fill_args(memory.address);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const unsigned *s = cases[i].shape;

        assert_cuda(cases[i].result, cuLaunchKernel(function, s[0], s[1], s[2], s[3], s[4], s[5],
                                         s[6], NULL, parameters, NULL));
    }
    assert_ok(cuCtxSynchronize());
}
END_TEST

START_TEST(test_images_are_told_apart)
{
    static const char garbage[] = "\x01\x02\x03",
                      elf[] = "\x7f"
                              "ELF\x02",
                      fatbin[] = "\x50\xed\x55\xba", text[] = "int main;",
                      newer[] = ".version 99.0\n.target sm_70\n";
    CUmodule module;

    rig_begin();
    assert_cuda(CUDA_ERROR_INVALID_IMAGE, cuModuleLoadData(&module, garbage));
    assert_cuda(CUDA_ERROR_INVALID_IMAGE, cuModuleLoadData(&module, ""));
    assert_cuda(CUDA_ERROR_NO_BINARY_FOR_GPU, cuModuleLoadData(&module, elf));
    assert_cuda(CUDA_ERROR_NO_BINARY_FOR_GPU, cuModuleLoadData(&module, fatbin));
    assert_cuda(CUDA_ERROR_INVALID_PTX, cuModuleLoadData(&module, text));
    assert_cuda(CUDA_ERROR_UNSUPPORTED_PTX_VERSION, cuModuleLoadData(&module, newer));
    assert_cuda(CUDA_ERROR_INVALID_VALUE, cuModuleLoadData(&module, NULL));
}
END_TEST

START_TEST(test_functions_are_found_by_name)
{
    static const char foreign[] = ".version 6.0\n.target sm_70\n.address_size 64\n"
                                  ".visible .entry foreign(.param .u64 a) { ret; }\n"
                                  ".visible .entry pattern_fill(.param .u32 a) { ret; }\n";
    CUfunction function, again;
    CUmodule module, other;

    rig_begin();
    assert_ok(cuModuleLoadData(&module, kernels_ptx));
    assert_ok(cuModuleGetFunction(&function, module, "pattern_fill"));
    assert_ok(cuModuleGetFunction(&again, module, "pattern_fill"));
    ck_assert_ptr_eq(function, again);
    assert_cuda(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction(&function, module, "pattern"));
    assert_ok(cuModuleLoadData(&other, foreign));
    assert_cuda(CUDA_ERROR_NO_BINARY_FOR_GPU, cuModuleGetFunction(&function, other, "foreign"));
    assert_cuda(
        CUDA_ERROR_NO_BINARY_FOR_GPU, cuModuleGetFunction(&function, other, "pattern_fill"));
    assert_ok(cuModuleUnload(module));
    assert_cuda(CUDA_ERROR_INVALID_HANDLE, cuModuleUnload(module));
    assert_cuda(
        CUDA_ERROR_INVALID_HANDLE, cuLaunchKernel(again, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
}
END_TEST

/* Each kind of call says 700 from now on. */
static void assert_poisoned(void)
{
    bool called = false;
    CUdeviceptr address;
    CUcontext context;
    CUstream stream;
    int count;

    assert_cuda(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
    assert_cuda(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamQuery(NULL));
    assert_cuda(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamCreate(&stream, 0));
    assert_cuda(CUDA_ERROR_ILLEGAL_ADDRESS, cuMemAlloc_v2(&address, 4096));
    assert_cuda(CUDA_ERROR_ILLEGAL_ADDRESS, cuLaunchHostFunc(NULL, rig_set, &called));
    assert_cuda(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxGetCurrent(&context));
    assert_cuda(CUDA_ERROR_ILLEGAL_ADDRESS, cuDeviceGetCount(&count));
    ck_assert(!rig_is_set(&called));
}

START_TEST(test_unmap_under_a_queued_kernel_is_a_sticky_fault)
{
    struct rig_gate gate;
    struct rig_memory memory;
    struct pattern_fill_args fill;
    CUstream stream;
    bool called = false;

    rig_begin();
    memory = rig_map(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    stream = rig_stream(CU_STREAM_NON_BLOCKING);
    fill = fill_args(memory.address);
    rig_gate_close(&gate, stream);
    assert_ok(launch(function_load("pattern_fill"), stream, &fill));
    assert_ok(cuLaunchHostFunc(stream, rig_set, &called));
    rig_unmap(&memory);
    assert_cuda(CUDA_ERROR_NOT_READY, cuStreamQuery(stream));
    rig_gate_open(&gate);
    assert_cuda(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(stream));
    ck_assert(!rig_is_set(&called));
    assert_poisoned();
}
END_TEST

/* Below it nothing but device memory lies. Under a sanitizer the simulator may do without. */
#define WINDOW_END UINT64_C(0x500000000000)

START_TEST(test_stale_pointer_never_becomes_memory_of_the_host)
{
    struct rig_gate gate;
    struct rig_memory memory;
    struct pattern_fill_args fill;
    CUdeviceptr reserved;
    void *host;

    rig_begin();
    memory = rig_map(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    if (memory.address >= WINDOW_END)
        return;
    fill = fill_args(memory.address);
    rig_gate_close(&gate, NULL);
    assert_ok(launch(function_load("pattern_fill"), NULL, &fill));
    rig_unmap(&memory);
    assert_ok(cuMemAddressFree(memory.address, RIG_BYTES));
    assert_ok(cuMemAddressReserve(&reserved, RIG_BYTES, RIG_BYTES, 0, 0));
    ck_assert_uint_ne(reserved, memory.address);
    host = mmap(NULL, RIG_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(host, MAP_FAILED);
    ck_assert((uintptr_t) host + RIG_BYTES <= memory.address ||
              (uintptr_t) host >= memory.address + RIG_BYTES);
    rig_gate_open(&gate);
    assert_cuda(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(NULL));
}
END_TEST

START_TEST(test_free_waits_for_the_kernels_that_use_the_memory)
{
    struct pattern_fill_args fill = {.bytes = 1u << 20};
    CUfunction function;
    CUdeviceptr address;
    CUstream stream;

    rig_begin();
    function = function_load("pattern_fill");
    stream = rig_stream(CU_STREAM_NON_BLOCKING);
    assert_ok(cuMemAlloc_v2(&address, fill.bytes));
    fill.dst = address;
    for (unsigned i = 0; i < 20; i++)
        assert_ok(launch(function, stream, &fill));
    assert_ok(cuMemFree_v2(address));
    assert_ok(cuStreamQuery(stream));
}
END_TEST

START_TEST(test_kernel_that_writes_a_read_mapping_faults)
{
    struct rig_memory memory, counter;
    struct pattern_fill_args fill;
    struct pattern_check_args check;

    rig_begin();
    memory = rig_map(CU_MEM_ACCESS_FLAGS_PROT_READ);
    counter = rig_map(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    check = (struct pattern_check_args){
        .src = memory.address, .bytes = RIG_BYTES, .differing = counter.address};
    assert_ok(launch(function_load("pattern_check"), NULL, &check));
    assert_ok(cuCtxSynchronize());
    fill = fill_args(memory.address);
    assert_ok(launch(function_load("pattern_fill"), NULL, &fill));
    assert_cuda(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
    assert_poisoned();
}
END_TEST

START_TEST(test_kernel_that_reads_a_mapping_without_access_faults)
{
    struct rig_memory memory, counter;
    struct pattern_check_args check;

    rig_begin();
    memory = rig_map(CU_MEM_ACCESS_FLAGS_PROT_NONE);
    counter = rig_map(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    check = (struct pattern_check_args){
        .src = memory.address, .bytes = RIG_BYTES, .differing = counter.address};
    assert_ok(launch(function_load("pattern_check"), NULL, &check));
    assert_cuda(CUDA_ERROR_ILLEGAL_ADDRESS, cuCtxSynchronize());
    assert_poisoned();
}
END_TEST

START_TEST(test_fault_of_one_stream_ends_the_work_of_all)
{
    /* Nothing can wait for a stream any more: it may use these until the process ends. */
    static struct rig_gate gate;
    static bool called;
    struct pattern_fill_args fill = {.dst = 4096, .bytes = 16};
    CUstream held, faulting;

    rig_begin();
    held = rig_stream(CU_STREAM_NON_BLOCKING);
    faulting = rig_stream(CU_STREAM_NON_BLOCKING);
    rig_gate_close(&gate, held);
    assert_ok(cuLaunchHostFunc(held, rig_set, &called));
    assert_ok(launch(function_load("pattern_fill"), faulting, &fill));
    assert_cuda(CUDA_ERROR_ILLEGAL_ADDRESS, cuStreamSynchronize(faulting));
    rig_gate_open(&gate);
    assert_poisoned();
    ck_assert(!rig_is_set(&called));
}
END_TEST

/* ---- faults that are not ours ---- */

static volatile sig_atomic_t own_faults;
static void *own_page;

static void own_handler(int number, siginfo_t *info, void *context)
{
    own_faults++;
    (void) mprotect(own_page, 4096, PROT_READ | PROT_WRITE);
}

/* Makes the simulator install its handlers. */
static void kernel_run_once(void)
{
    struct rig_memory memory;
    struct pattern_fill_args fill;

    rig_begin();
    memory = rig_map(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    fill = fill_args(memory.address);
    assert_ok(launch(function_load("pattern_fill"), NULL, &fill));
    assert_ok(cuCtxSynchronize());
}

START_TEST(test_faults_of_the_application_reach_its_own_handler)
{
    struct sigaction action = {.sa_sigaction = own_handler, .sa_flags = SA_SIGINFO};

    own_page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(own_page, MAP_FAILED);
    ck_assert_int_eq(sigaction(SIGSEGV, &action, NULL), 0);
    kernel_run_once();
    *(volatile char *) own_page = 1;
    ck_assert_int_eq(own_faults, 1);
}
END_TEST

START_TEST(test_faults_of_the_application_end_it_as_ever)
{
    int status;
    pid_t child;

    child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        struct sigaction action = {.sa_handler = SIG_DFL};

        (void) sigaction(SIGSEGV, &action, NULL);
        kernel_run_once();
        own_page = mmap(NULL, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        *(volatile char *) own_page = 1;
        _exit(0);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFSIGNALED(status));
    ck_assert_int_eq(WTERMSIG(status), SIGSEGV);
}
END_TEST

START_TEST(test_forked_child_cannot_call)
{
    int status;
    pid_t child;

    kernel_run_once();
    child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        bool three = cuStreamSynchronize(NULL) == CUDA_ERROR_NOT_INITIALIZED &&
                     cuCtxSynchronize() == CUDA_ERROR_NOT_INITIALIZED;

        _exit(three ? 0 : 1);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status));
    ck_assert_int_eq(WEXITSTATUS(status), 0);
}
END_TEST

START_TEST(test_exit_does_not_wait_for_a_stream_that_is_stuck)
{
    int status;
    pid_t child = fork();

    ck_assert_int_ge(child, 0);
    if (child == 0) {
        static struct rig_gate gate;

        rig_begin();
        rig_gate_close(&gate, NULL);
        exit(7);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status));
    ck_assert_int_eq(WEXITSTATUS(status), 7);
}
END_TEST

RIG_MAIN("simexec-launches", test_kernel_fills_and_checks_device_memory,
    test_parameters_are_taken_when_the_call_is_made, test_parameters_come_one_way_and_not_both,
    test_launch_shape_has_limits, test_images_are_told_apart, test_functions_are_found_by_name,
    test_unmap_under_a_queued_kernel_is_a_sticky_fault,
    test_stale_pointer_never_becomes_memory_of_the_host,
    test_free_waits_for_the_kernels_that_use_the_memory,
    test_kernel_that_writes_a_read_mapping_faults,
    test_kernel_that_reads_a_mapping_without_access_faults,
    test_fault_of_one_stream_ends_the_work_of_all,
    test_faults_of_the_application_reach_its_own_handler,
    test_faults_of_the_application_end_it_as_ever, test_forked_child_cannot_call,
    test_exit_does_not_wait_for_a_stream_that_is_stuck)
