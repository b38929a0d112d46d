/*
 * The seam when a driver call fails: simulator only, since the real driver fails none on demand.
 * The simulator reads its table of faults once in a process, when it is first called: unlike the
 * suite's, this main() loads no driver, and each test sets its faults first.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpu/gpu.h"
#include "gpu/loader.h"
#include "tests/conformance/node.h"
#include "tests/unit/unit.h"

static struct gpu_error error;
static struct gpu *gpu;

static void open_with(const char *faults)
{
    ck_assert_int_eq(setenv("GMB_SIM_FAULTS", faults, 1), 0);
    ck_assert_msg(gpu_open(GPU_DRIVER_SIM, GPU_ROLE_BROKER, &gpu, &error) == 0, "%s", error.text);
}

static int create(struct gpu_chunk *ret)
{
    return gpu->ops->chunk_create(
        gpu, gpu->devices[0], gpu->devices[0]->granularity_bytes, ret, &error);
}

static uint64_t free_bytes(void)
{
    struct gpu_memory memory;

    ck_assert_int_eq(gpu->ops->memory_info(gpu, gpu->devices[0], &memory, &error), 0);
    return memory.free_bytes;
}

/* Each in a process of its own; its exit status. */
static int open_failing_at(const char *call)
{
    int status;
    pid_t child = fork();

    ck_assert_int_ge(child, 0);
    if (child == 0) {
        char fault[64];
        int r;

        (void) snprintf(fault, sizeof(fault), "%s:1=999", call);
        (void) setenv("GMB_SIM_FAULTS", fault, 1);
        r = gpu_open(GPU_DRIVER_SIM, GPU_ROLE_BROKER, &gpu, &error);
        _exit(r == -EIO && gpu == NULL && strstr(error.text, call) != NULL ? 0 : 1);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    return status;
}

START_TEST(open_that_fails_half_way_says_at_which_call)
{
    static const char *const calls[] = {"cuInit", "cuDeviceGetCount", "cuDeviceGet",
        "cuDeviceGetUuid_v2", "cuDeviceGetName", "cuDeviceTotalMem_v2", "cuDeviceGetAttribute",
        "cuMemGetAllocationGranularity"};

    for (size_t i = 0; i < ARRAY_SIZE(calls); i++)
        ck_assert_msg(open_failing_at(calls[i]) == 0, "a failure of %s isn't told", calls[i]);
}
END_TEST

START_TEST(stub_result_and_no_device_at_init_are_no_driver)
{
    ck_assert_int_eq(setenv("GMB_SIM_FAULTS", "cuInit:1=34,cuInit:2=100", 1), 0);
    ck_assert_int_eq(gpu_open(GPU_DRIVER_SIM, GPU_ROLE_CLIENT, &gpu, &error), -ENODEV);
    ck_assert_ptr_nonnull(strstr(error.text, "stub"));
    ck_assert_int_eq(gpu_open(GPU_DRIVER_SIM, GPU_ROLE_CLIENT, &gpu, &error), -ENODEV);
    ck_assert_ptr_nonnull(strstr(error.text, "no device"));
    ck_assert_int_eq(gpu_open(GPU_DRIVER_SIM, GPU_ROLE_CLIENT, &gpu, &error), 0);
    gpu_close(gpu);
}
END_TEST

START_TEST(full_device_may_have_room_at_the_next_try)
{
    struct gpu_chunk chunk;

    open_with("cuMemCreate:1=2");
    ck_assert_int_eq(create(&chunk), GPU_NO_MEMORY);
    ck_assert_int_eq(create(&chunk), GPU_OK);
    ck_assert_int_eq(gpu->ops->chunk_release(gpu, &chunk, &error), 0);
    gpu_close(gpu);
}
END_TEST

START_TEST(failed_release_keeps_the_chunk)
{
    struct gpu_chunk chunk;
    uint64_t before;

    open_with("cuMemRelease:1=999");
    before = free_bytes();
    ck_assert_int_eq(create(&chunk), GPU_OK);
    ck_assert_int_eq(gpu->ops->chunk_release(gpu, &chunk, &error), -EIO);
    ck_assert_str_eq(error.text, "cuMemRelease: CUDA_ERROR_UNKNOWN (999)");
    ck_assert_ptr_eq(chunk.device, gpu->devices[0]);
    ck_assert_int_eq(gpu->ops->chunk_release(gpu, &chunk, &error), 0);
    ck_assert_uint_eq(free_bytes(), before);
    gpu_close(gpu);
}
END_TEST

START_TEST(failed_export_and_import_write_nothing)
{
    struct gpu_shareable shareable = {.fd = -7}, good;
    struct gpu_chunk chunk, imported = {.bytes = 77};
    uint64_t before;

    open_with("cuMemExportToShareableHandle:1=304,cuMemImportFromShareableHandle:1=800");
    before = free_bytes();
    ck_assert_int_eq(create(&chunk), GPU_OK);
    ck_assert_int_eq(gpu->ops->chunk_export(gpu, &chunk, &shareable, &error), -EIO);
    ck_assert_int_eq(shareable.fd, -7);
    ck_assert_int_eq(gpu->ops->chunk_export(gpu, &chunk, &good, &error), 0);
    ck_assert_int_eq(
        gpu->ops->chunk_import_borrow(gpu, gpu->devices[0], &good, chunk.bytes, &imported, &error),
        -EPERM);
    ck_assert_uint_eq(imported.bytes, 77);
    (void) close(good.fd);
    ck_assert_int_eq(gpu->ops->chunk_release(gpu, &chunk, &error), 0);
    ck_assert_uint_eq(free_bytes(), before);
    gpu_close(gpu);
}
END_TEST

START_TEST(failed_synchronisation_keeps_the_current_context)
{
    struct CUctx_st *context, *current = (struct CUctx_st *) &current;

    open_with("cuCtxSynchronize:1=700");
    ck_assert_int_eq(gpu->ops->context_retain(gpu, gpu->devices[0], &context, &error), 0);
    ck_assert_int_eq(gpu->ops->context_synchronize(gpu, context, &error), -EIO);
    ck_assert_str_eq(error.text, "cuCtxSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS (700)");
    ck_assert_int_eq(gpu->cuda->ctx_get_current(&current), 0);
    ck_assert_ptr_null(current);
    gpu_close(gpu);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {open_that_fails_half_way_says_at_which_call,
        stub_result_and_no_device_at_init_are_no_driver, full_device_may_have_room_at_the_next_try,
        failed_release_keeps_the_chunk, failed_export_and_import_write_nothing,
        failed_synchronisation_keeps_the_current_context};
    struct node node;
    int status;

    if (node_create(&node) < 0)
        return EXIT_FAILURE;
    status = unit_run("seam-faults", tests, ARRAY_SIZE(tests));
    node_remove(&node);
    return status;
}
