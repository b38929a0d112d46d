/* What the environment makes of the simulator. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "gpu/sim/duration.h"
#include "tests/simdriver/driver.h"
#include "tests/unit/scratch.h"

static void set(const char *name, const char *value)
{
    ck_assert_int_eq(setenv(name, value, 1), 0);
}

START_TEST(the_defaults_are_one_device_of_1_gib_in_2_mib_granules)
{
    const CUmemAllocationProp properties = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    size_t bytes;
    int count;

    driver_begin();
    assert_ok(cuDeviceGetCount(&count));
    ck_assert_int_eq(count, 1);
    assert_ok(cuDeviceTotalMem_v2(&bytes, 0));
    ck_assert_uint_eq(bytes, 1024 * MIB);
    assert_ok(cuMemGetAllocationGranularity(&bytes, &properties, 0));
    ck_assert_uint_eq(bytes, 2 * MIB);
    (void) driver_context();
    ck_assert_uint_eq(driver_used(), 0);
}
END_TEST

START_TEST(each_device_has_its_size)
{
    size_t bytes;

    set("GMB_SIM_DEVICES", "3");
    set("GMB_SIM_MEMORY", "4M,1.5G,80T");
    set("GMB_SIM_CONTEXT_OVERHEAD", "1M");
    driver_begin();
    assert_ok(cuDeviceTotalMem_v2(&bytes, 0));
    ck_assert_uint_eq(bytes, 4 * MIB);
    assert_ok(cuDeviceTotalMem_v2(&bytes, 1));
    ck_assert_uint_eq(bytes, 1536 * MIB);
    assert_ok(cuDeviceTotalMem_v2(&bytes, 2));
    ck_assert_uint_eq(bytes, UINT64_C(80) << 40);
    (void) driver_context();
    ck_assert_uint_eq(driver_used(), MIB);
    assert_ok(cuDevicePrimaryCtxRelease_v2(0));
}
END_TEST

static const char *const refused[][2] = {
    {"GMB_SIM_DEVICES", "65"},
    {"GMB_SIM_DEVICES", "-1"},
    {"GMB_SIM_DEVICES", "2x"},
    {"GMB_SIM_MEMORY", "lots"},
    {"GMB_SIM_MEMORY", "1G,1G"},
    {"GMB_SIM_MEMORY", "infinity"},
    {"GMB_SIM_GRANULARITY", "2048"},
    {"GMB_SIM_GRANULARITY", "3M"},
    {"GMB_SIM_CONTEXT_OVERHEAD", "-1"},
    {"GMB_SIM_FREE_DELAY", "5"},
    {"GMB_SIM_FILL", "random"},
    {"GMB_SIM_VMM", "yes"},
    {"GMB_SIM_VMM", "1,0"},
    {"GMB_SIM_VMM", "1,"},
    {"GMB_SIM_POSIX_FD", ""},
    {"GMB_SIM_HINT", "maybe"},
    {"GMB_SIM_FAULTS", "cuMemCreate"},
    {"GMB_SIM_FAULTS", "cuMemCreate:0=2"},
    {"GMB_SIM_FAULTS", "cuMemCreate:3=0"},
    {"GMB_SIM_FAULTS", "cuMemCreate:5-3=2"},
    {"GMB_SIM_FAULTS", "cuMemCreate:every0=2"},
    {"GMB_SIM_LATENCY", "cuMemCreate"},
    {"GMB_SIM_LATENCY", "h100"},
};

START_TEST(a_malformed_value_refuses_everything)
{
    driver_environment();
    set(refused[_i][0], refused[_i][1]);
    assert_cuda(CUDA_ERROR_UNKNOWN, cuInit(0));
    assert_cuda(CUDA_ERROR_NOT_INITIALIZED, cuCtxSynchronize());
}
END_TEST

/* The results of `calls` creations with a fault table, as digits. */
static void expect_faults(const char *table, const char *expected)
{
    size_t calls = strlen(expected);

    set("GMB_SIM_FAULTS", table);
    driver_begin();
    for (size_t i = 0; i < calls; i++) {
        CUmemGenericAllocationHandle handle;
        CUresult result = driver_create(0, &handle);

        ck_assert_int_eq(result, expected[i] - '0');
        if (result == CUDA_SUCCESS)
            assert_ok(cuMemRelease(handle));
    }
}

START_TEST(the_nth_call_fails)
{
    expect_faults("cuMemCreate:3=2", "002000");
}
END_TEST

START_TEST(from_the_nth_call_on_all_fail)
{
    expect_faults("cuMemCreate:3+=2", "002222");
}
END_TEST

START_TEST(a_run_of_calls_fails)
{
    expect_faults("cuMemCreate:2-4=2,cuMemCreate:5=1", "0222100");
}
END_TEST

START_TEST(every_nth_call_fails)
{
    expect_faults("cuMemRelease:9=1,cuMemCreate:every3=2", "002002002");
}
END_TEST

START_TEST(a_transient_fault_ends_by_itself)
{
    CUmemGenericAllocationHandle handle;
    uint64_t end;

    set("GMB_SIM_FAULTS", "cuMemCreate:100ms=2");
    driver_begin();
    end = clock_now(&clock_monotonic) + 20 * NSEC_PER_SEC;
    assert_cuda(CUDA_ERROR_OUT_OF_MEMORY, driver_create(0, &handle));
    while (driver_create(0, &handle) != CUDA_SUCCESS)
        ck_assert_uint_lt(clock_now(&clock_monotonic), end);
}
END_TEST

START_TEST(a_fault_lasts_as_long_as_its_file)
{
    CUmemGenericAllocationHandle handle;
    char dir[SCRATCH_PATH_BYTES], path[SCRATCH_PATH_BYTES + 8], table[SCRATCH_PATH_BYTES + 32];
    int fd;

    ck_assert_int_eq(scratch_make(dir), 0);
    (void) snprintf(path, sizeof(path), "%s/lost", dir);
    (void) snprintf(table, sizeof(table), "cuMemCreate:%s=101", path);
    set("GMB_SIM_FAULTS", table);
    driver_begin();
    assert_ok(driver_create(0, &handle));
    fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    ck_assert_int_ge(fd, 0);
    (void) close(fd);
    assert_cuda(CUDA_ERROR_INVALID_DEVICE, driver_create(0, &handle));
    assert_cuda(CUDA_ERROR_INVALID_DEVICE, driver_create(0, &handle));
    ck_assert_int_eq(unlink(path), 0);
    assert_ok(driver_create(0, &handle));
    ck_assert_int_eq(scratch_remove(dir), 0);
}
END_TEST

START_TEST(a_latency_is_waited_for_and_the_last_entry_counts)
{
    uint64_t start;

    set("GMB_SIM_LATENCY", "a100,cuMemCreate=30ms");
    driver_begin();
    start = clock_now(&clock_monotonic);
    (void) driver_chunk();
    ck_assert_uint_ge(clock_now(&clock_monotonic) - start, 30 * NSEC_PER_MSEC);
}
END_TEST

START_TEST(durations_are_read_exactly_or_not_at_all)
{
    uint64_t ns = 7;

    ck_assert_int_eq(duration_parse("193us", &ns), 0);
    ck_assert_uint_eq(ns, 193000);
    ck_assert_int_eq(duration_parse("1.5us", &ns), 0);
    ck_assert_uint_eq(ns, 1500);
    ck_assert_int_eq(duration_parse("0", &ns), 0);
    ck_assert_uint_eq(ns, 0);
    ck_assert_int_eq(duration_parse("3600s", &ns), 0);
    ck_assert_uint_eq(ns, 3600 * NSEC_PER_SEC);
    ns = 7;
    ck_assert_int_lt(duration_parse("3601s", &ns), 0);
    ck_assert_int_lt(duration_parse("5", &ns), 0);
    ck_assert_int_lt(duration_parse("1.us", &ns), 0);
    ck_assert_int_lt(duration_parse("-1us", &ns), 0);
    ck_assert_int_lt(duration_parse("us", &ns), 0);
    ck_assert_int_lt(duration_parse("1us ", &ns), 0);
    ck_assert_int_lt(duration_parse("99999999999999999999s", &ns), 0);
    ck_assert_uint_eq(ns, 7);
}
END_TEST

static void expect_visible(const char *visible, const char *devices)
{
    CUuuid uuid;
    int count;

    set("GMB_SIM_DEVICES", "4");
    set("CUDA_VISIBLE_DEVICES", visible);
    driver_environment();
    assert_cuda(*devices == '\0' ? CUDA_ERROR_NO_DEVICE : CUDA_SUCCESS, cuInit(0));
    if (*devices == '\0')
        return;
    assert_ok(cuDeviceGetCount(&count));
    ck_assert_int_eq(count, (int) strlen(devices));
    for (int i = 0; i < count; i++) {
        assert_ok(cuDeviceGetUuid_v2(&uuid, i));
        ck_assert_int_eq(uuid.bytes[15], devices[i] - '0');
    }
    assert_cuda(CUDA_ERROR_INVALID_DEVICE, cuDeviceGetUuid_v2(&uuid, count));
}

static const char *const visible[][2] = {
    {"2,0", "20"}, {"", ""}, {"4", ""}, {"1,9,2", "1"}, {"1,1", "1"}, {"-1", ""},
    {"gpu-676d6276-696d-4000-8000-000000000003,0", "30"}, {"GPU-676d6275,GPU-676d6274-696d", "21"},
    {"0,GPU-676d627,1", "0"},                            /* fits all */
    {"2,MIG-676d6274-696d-4000-8000-000000000001", "2"}, /* it is none */
};

START_TEST(visible_devices_are_taken_in_their_order_up_to_the_first_wrong_one)
{
    expect_visible(visible[_i][0], visible[_i][1]);
}
END_TEST

/* A place that is free: it was reserved a moment ago. */
static CUdeviceptr free_place(void)
{
    CUdeviceptr place;

    assert_ok(cuMemAddressReserve(&place, DRIVER_GRANULE, 0, 0, 0));
    assert_ok(cuMemAddressFree(place, DRIVER_GRANULE));
    return place;
}

START_TEST(a_hint_is_honoured_where_it_is_free_and_else_ignored)
{
    CUdeviceptr place, at;

    driver_begin();
    place = free_place();
    assert_ok(cuMemAddressReserve(&at, DRIVER_GRANULE, 0, place, 0));
    ck_assert_uint_eq(at, place);
    assert_ok(cuMemAddressReserve(&at, DRIVER_GRANULE, 0, place, 0));
    ck_assert_uint_ne(at, place);
}
END_TEST

START_TEST(a_hint_can_be_ignored)
{
    CUdeviceptr place, at;

    set("GMB_SIM_HINT", "ignore");
    driver_begin();
    place = free_place();
    assert_ok(cuMemAddressReserve(&at, DRIVER_GRANULE, 0, place, 0));
    ck_assert_uint_ne(at, place);
}
END_TEST

START_TEST(a_hint_can_fail)
{
    CUdeviceptr at;

    set("GMB_SIM_HINT", "fail");
    driver_begin();
    assert_cuda(
        CUDA_ERROR_OUT_OF_MEMORY, cuMemAddressReserve(&at, DRIVER_GRANULE, 0, free_place(), 0));
    assert_ok(cuMemAddressReserve(&at, DRIVER_GRANULE, 0, 0, 0));
}
END_TEST

START_TEST(a_device_without_vmm_says_so_and_refuses)
{
    CUmemGenericAllocationHandle handle;
    int value;

    set("GMB_SIM_VMM", "0");
    driver_begin();
    assert_ok(
        cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 0));
    ck_assert_int_eq(value, 0);
    assert_cuda(CUDA_ERROR_NOT_SUPPORTED, driver_create(0, &handle));
}
END_TEST

/* Attributes 102 and 103 as two digits. */
static int sharing(CUdevice device)
{
    int vmm, posix_fd;

    assert_ok(cuDeviceGetAttribute(
        &vmm, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, device));
    assert_ok(cuDeviceGetAttribute(
        &posix_fd, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, device));
    return 10 * vmm + posix_fd;
}

START_TEST(each_device_says_by_itself_how_its_memory_is_shared)
{
    const CUmemAllocationProp private = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1}};
    CUmemGenericAllocationHandle handle;
    size_t bytes;

    set("GMB_SIM_DEVICES", "3");
    set("GMB_SIM_VMM", "1,1,0");
    set("GMB_SIM_POSIX_FD", "1,0,1");
    driver_begin();
    ck_assert_int_eq(sharing(0), 11);
    ck_assert_int_eq(sharing(1), 10);
    ck_assert_int_eq(sharing(2), 0);
    assert_ok(driver_create(0, &handle));
    assert_ok(cuMemRelease(handle));
    /* Memory of device 1 exists, but not to be exported; device 2 has no such memory. */
    assert_cuda(CUDA_ERROR_NOT_SUPPORTED, driver_create(1, &handle));
    assert_ok(cuMemCreate(&handle, DRIVER_GRANULE, &private, 0));
    assert_ok(cuMemRelease(handle));
    assert_cuda(CUDA_ERROR_NOT_SUPPORTED, driver_create(2, &handle));
    assert_ok(cuMemGetAllocationGranularity(&bytes, &private, 0));
}
END_TEST

START_TEST(a_device_without_vmm_allocates_and_hands_out_ipc_handles)
{
    CUipcMemHandle token;
    CUdeviceptr address;

    set("GMB_SIM_VMM", "0");
    driver_begin();
    (void) driver_context();
    assert_cuda(CUDA_ERROR_NOT_SUPPORTED, cuMemAddressReserve(&address, DRIVER_GRANULE, 0, 0, 0));
    assert_ok(cuMemAlloc_v2(&address, DRIVER_GRANULE));
    assert_ok(cuIpcGetMemHandle(&token, address));
    ck_assert_uint_eq(driver_used(), DRIVER_GRANULE);
    assert_ok(cuMemFree_v2(address));
    ck_assert_uint_eq(driver_used(), 0);
}
END_TEST

START_TEST(every_symbol_is_found_by_its_base_name)
{
    CUdriverProcAddressQueryResult status;
    void *function = NULL;

    driver_begin();
#define CHECK(need, since, symbol, member, parameters)                                             \
    if ((since) <= SIM_DRIVER_VERSION) {                                                           \
        char name[] = #symbol;                                                                     \
        char *suffix = strstr(name, "_v2");                                                        \
                                                                                                   \
        if (suffix != NULL)                                                                        \
            *suffix = '\0';                                                                        \
        assert_ok(cuGetProcAddress_v2(name, &function, since, 0, &status));                        \
        ck_assert_int_eq(status, CU_GET_PROC_ADDRESS_SUCCESS);                                     \
        ck_assert_ptr_eq(function, (void *) symbol);                                               \
    }
    CUDA_FUNCTIONS(CHECK)
#undef CHECK
    assert_ok(cuGetProcAddress_v2("cuMemCreate", &function, 10010, 0, &status));
    ck_assert_int_eq(status, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
    ck_assert_ptr_null(function);
    assert_ok(cuGetProcAddress_v2("cuMemConjure", &function, 12000, 0, &status));
    ck_assert_int_eq(status, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
    assert_cuda(CUDA_ERROR_INVALID_VALUE,
        cuGetProcAddress_v2("cuInit", &function, SIM_DRIVER_VERSION + 10, 0, &status));
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {the_defaults_are_one_device_of_1_gib_in_2_mib_granules,
        each_device_has_its_size, the_nth_call_fails, from_the_nth_call_on_all_fail,
        a_run_of_calls_fails, every_nth_call_fails, a_transient_fault_ends_by_itself,
        a_fault_lasts_as_long_as_its_file, a_latency_is_waited_for_and_the_last_entry_counts,
        durations_are_read_exactly_or_not_at_all, a_device_without_vmm_says_so_and_refuses,
        each_device_says_by_itself_how_its_memory_is_shared,
        a_device_without_vmm_allocates_and_hands_out_ipc_handles,
        a_hint_is_honoured_where_it_is_free_and_else_ignored, a_hint_can_be_ignored,
        a_hint_can_fail, every_symbol_is_found_by_its_base_name};
    const struct rig_loop loops[] = {
        {a_malformed_value_refuses_everything, ARRAY_SIZE(refused)},
        {visible_devices_are_taken_in_their_order_up_to_the_first_wrong_one, ARRAY_SIZE(visible)},
    };

    return rig_main_loops("settings", tests, ARRAY_SIZE(tests), loops, ARRAY_SIZE(loops));
}
