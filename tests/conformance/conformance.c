/*
 * Loads the chosen driver once, in the process that forks the tests, and initialises it in each
 * test alone: a driver's state doesn't survive a fork, and a test may poison it.
 */
#include "tests/conformance/conformance.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "tests/conformance/node.h"
#include "tests/unit/unit.h"

#define TEST_TIMEOUT_S 60

const struct cuda_api *cu;
const struct nvml_api *nvml;
bool on_simulator;
CUdevice device;
size_t granule;
CUcontext context;

static struct cuda_api cuda_table;
static struct nvml_api nvml_table;
static nvmlDevice_t nvml_device;

void observation_write(const char *question, const char *format, ...)
{
    const char *path = getenv("GMB_OBSERVATIONS");
    FILE *file = path != NULL ? fopen(path, "ae") : stderr;
    va_list arguments;

    ck_assert_ptr_nonnull(file);
    (void) fprintf(file, "%s: ", question);
    va_start(arguments, format);
    (void) vfprintf(file, format, arguments);
    va_end(arguments);
    (void) fprintf(file, "\n");
    if (path != NULL)
        (void) fclose(file);
}

uint64_t poll_deadline(unsigned seconds)
{
    return clock_now(&clock_monotonic) + seconds * NSEC_PER_SEC;
}

bool poll_wait(uint64_t deadline)
{
    const struct timespec pause = {.tv_nsec = (long) NSEC_PER_MSEC};

    (void) nanosleep(&pause, NULL);
    return clock_now(&clock_monotonic) < deadline;
}

/* NVML's handle of CUDA's device 0: joined by UUID. */
static void nvml_setup(void)
{
    CUuuid uuid;
    char text[NVML_DEVICE_UUID_V2_BUFFER_SIZE];
    char *at = text + sprintf(text, "GPU-");

    if (nvml == NULL)
        return;
    cu_ok(cu->device_get_uuid(&uuid, device));
    for (size_t i = 0; i < sizeof(uuid.bytes); i++)
        at += sprintf(at, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "",
            (unsigned) (unsigned char) uuid.bytes[i]);
    ck_assert_int_eq(nvml->init(), NVML_SUCCESS);
    if (nvml->device_get_handle_by_uuid(text, &nvml_device) != NVML_SUCCESS) {
        memcpy(text, "MIG-", 4);
        ck_assert_int_eq(nvml->device_get_handle_by_uuid(text, &nvml_device), NVML_SUCCESS);
    }
}

void setup_driver(void)
{
    CUmemAllocationProp properties;

    cu_ok(cu->init(0));
    cu_ok(cu->device_get(&device, 0));
    properties = chunk_properties();
    cu_ok(cu->mem_get_allocation_granularity(
        &granule, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    nvml_setup();
}

void setup_context(void)
{
    setup_driver();
    cu_ok(cu->primary_ctx_retain(&context, device));
    cu_ok(cu->ctx_set_current(context));
}

uint64_t device_free_bytes(void)
{
    nvmlMemory_t memory;

    ck_assert_msg(nvml != NULL, "this test needs NVML");
    ck_assert_int_eq(nvml->device_get_memory_info(nvml_device, &memory), NVML_SUCCESS);
    return memory.free;
}

static bool free_is(uint64_t bytes)
{
    uint64_t now = device_free_bytes();
    uint64_t off = now > bytes ? now - bytes : bytes - now;

    return off <= (on_simulator ? 0 : FREE_SLACK_BYTES);
}

void expect_free(uint64_t bytes)
{
    bool met = poll_until(5, free_is(bytes));

    ck_assert_msg(met, "%llu bytes are free, not %llu", (unsigned long long) device_free_bytes(),
        (unsigned long long) bytes);
}

CUmemAllocationProp chunk_properties(void)
{
    return (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
    };
}

CUmemGenericAllocationHandle chunk_new(size_t bytes)
{
    CUmemAllocationProp properties = chunk_properties();
    CUmemGenericAllocationHandle handle;

    cu_ok(cu->mem_create(&handle, bytes, &properties, 0));
    return handle;
}

int chunk_fd(CUmemGenericAllocationHandle handle)
{
    int fd = -1;

    cu_ok(cu->mem_export_to_shareable_handle(
        &fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
    ck_assert_int_ge(fd, 0);
    ck_assert_int_ge(fcntl(fd, F_SETFD, FD_CLOEXEC), 0);
    return fd;
}

void access_set(CUdeviceptr address, size_t bytes, CUmemAccess_flags flags)
{
    CUmemAccessDesc access = {
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
        .flags = flags,
    };

    cu_ok(cu->mem_set_access(address, bytes, &access, 1));
}

CUdeviceptr chunk_map_new(CUmemGenericAllocationHandle handle, size_t bytes)
{
    CUdeviceptr address;

    cu_ok(cu->mem_address_reserve(&address, bytes, granule, 0, 0));
    cu_ok(cu->mem_map(address, bytes, 0, handle, 0));
    access_set(address, bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    return address;
}

void chunk_unmap(CUdeviceptr address, size_t bytes)
{
    cu_ok(cu->mem_unmap(address, bytes));
    cu_ok(cu->mem_address_free(address, bytes));
}

void byte_write(CUdeviceptr address, unsigned char value)
{
    cu_ok(cu->memcpy_htod(address, &value, 1));
}

unsigned char byte_read(CUdeviceptr address)
{
    unsigned char value;

    cu_ok(cu->memcpy_dtoh(&value, address, 1));
    return value;
}

static int driver_choose(enum gpu_driver *ret)
{
    const char *name = getenv("GMB_GPU");

    *ret = GPU_DRIVER_SIM;
    if (name != NULL && gpu_driver_parse(name, ret) < 0) {
        fprintf(stderr, "GMB_GPU is `cuda` or `sim`, not `%s`\n", name);
        return -EINVAL;
    }
    on_simulator = *ret == GPU_DRIVER_SIM;
    return 0;
}

/* False: stop, with the exit status. */
static bool driver_load(enum gpu_driver driver, int *ret_status)
{
    struct gpu_error error;

    if (cuda_load(driver, &cuda_table, &error) < 0) {
        /* What TAP calls a skipped test; the simulator has no excuse. */
        printf("1..0 # SKIP %s\n", error.text);
        *ret_status = on_simulator ? EXIT_FAILURE : EXIT_SUCCESS;
        return false;
    }
    cu = &cuda_table;
    if (nvml_load(driver, &nvml_table, &error) == 0)
        nvml = &nvml_table;
    else
        fprintf(stderr, "# %s\n", error.text);
    return true;
}

static void driver_unload(void)
{
    nvml_unload(&nvml_table);
    cuda_unload(&cuda_table);
}

static int tests_run(const char *name, const TTest *const tests[], size_t count)
{
    Suite *suite = suite_create(name);
    TCase *tcase = tcase_create(name);

    tcase_set_timeout(tcase, TEST_TIMEOUT_S);
    for (size_t i = 0; i < count; i++)
        tcase_add_test(tcase, tests[i]);
    suite_add_tcase(suite, tcase);
    return unit_run_suite(suite);
}

int conformance_main(const char *name, const TTest *const tests[], size_t count)
{
    enum gpu_driver driver;
    struct node node;
    int status;

    if (driver_choose(&driver) < 0)
        return EXIT_FAILURE;
    /* Before the simulator is loaded: it reads its settings early. */
    if (on_simulator && node_create(&node) < 0) {
        fprintf(stderr, "no directory for the simulated node: %s\n", strerror(errno));
        return EXIT_FAILURE;
    }
    if (driver_load(driver, &status)) {
        status = tests_run(name, tests, count);
        driver_unload();
    }
    if (on_simulator)
        node_remove(&node);
    return status;
}
