/* The vtable that broker, mover and client use, over either driver. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "gpu/gpu.h"
#include "tests/conformance/conformance.h"

static struct gpu_error error;

static enum gpu_driver driver(void)
{
    return on_simulator ? GPU_DRIVER_SIM : GPU_DRIVER_CUDA;
}

static struct gpu *gpu_new(enum gpu_role role)
{
    struct gpu *gpu;
    int r = gpu_open(driver(), role, &gpu, &error);

    ck_assert_msg(r == 0, "%s", error.text);
    return gpu;
}

static struct gpu_chunk chunk_create(struct gpu *gpu, uint64_t bytes)
{
    struct gpu_chunk chunk;

    ck_assert_msg(gpu->ops->chunk_create(gpu, gpu->devices[0], bytes, &chunk, &error) == GPU_OK,
        "%s", error.text);
    return chunk;
}

static struct gpu_shareable chunk_export(struct gpu *gpu, const struct gpu_chunk *chunk)
{
    struct gpu_shareable shareable;

    ck_assert_msg(gpu->ops->chunk_export(gpu, chunk, &shareable, &error) == 0, "%s", error.text);
    return shareable;
}

static uint64_t free_bytes(struct gpu *gpu)
{
    struct gpu_memory memory;

    ck_assert_msg(
        gpu->ops->memory_info(gpu, gpu->devices[0], &memory, &error) == 0, "%s", error.text);
    return memory.free_bytes;
}

START_TEST(devices_are_listed_by_uuid)
{
    struct gpu *gpu = gpu_new(GPU_ROLE_BROKER);

    ck_assert_uint_ge(gpu->device_count, 1);
    if (on_simulator)
        ck_assert_uint_eq(gpu->device_count, 2);
    ck_assert_int_ge(gpu->driver_version, 11040);
    for (size_t i = 0; i < gpu->device_count; i++) {
        const struct gpu_device *at = gpu->devices[i];
        unsigned a, b, c, d;
        char rest[13];

        ck_assert_int_eq(
            sscanf(at->uuid + 4, "%8x-%4x-%4x-%4x-%12[0-9a-f]", &a, &b, &c, &d, rest), 5);
        ck_assert_uint_eq(strlen(at->uuid), 40);
        ck_assert_ptr_eq(gpu_device_find(gpu, at->uuid), at);
        ck_assert(at->vmm && at->posix_fd);
        ck_assert_int_eq(gpu_device_sharing(at), GPU_HANDLE_POSIX_FD);
        ck_assert_uint_gt(at->granularity_bytes, 0);
        ck_assert_uint_gt(at->total_bytes, at->granularity_bytes);
        ck_assert_uint_gt(strlen(at->name), 0);
    }
    gpu_close(gpu);
}
END_TEST

START_TEST(broker_side_creates_no_context)
{
    struct gpu *gpu = gpu_new(GPU_ROLE_BROKER);
    uint64_t bytes = gpu->devices[0]->granularity_bytes;
    struct gpu_chunk chunk = chunk_create(gpu, bytes), imported;
    struct gpu_shareable shareable = chunk_export(gpu, &chunk);
    unsigned flags;
    int active = -1;

    ck_assert_int_eq(
        gpu->ops->chunk_import_borrow(gpu, gpu->devices[0], &shareable, bytes, &imported, &error),
        0);
    (void) close(shareable.fd);
    ck_assert_int_eq(gpu->ops->chunk_release(gpu, &imported, &error), 0);
    ck_assert_int_eq(gpu->ops->chunk_release(gpu, &chunk, &error), 0);
    (void) free_bytes(gpu);
    for (int i = 0; i < (int) gpu->device_count; i++) {
        cu_ok(gpu->cuda->primary_ctx_get_state(i, &flags, &active));
        ck_assert_int_eq(active, 0);
    }
    gpu_close(gpu);
}
END_TEST

START_TEST(chunk_is_charged_from_create_to_release)
{
    struct gpu *gpu = gpu_new(GPU_ROLE_BROKER);
    uint64_t bytes = 64 * gpu->devices[0]->granularity_bytes, before = free_bytes(gpu);
    uint64_t slack = on_simulator ? 0 : FREE_SLACK_BYTES;
    struct gpu_chunk chunk = chunk_create(gpu, bytes);

    ck_assert_uint_eq(chunk.bytes, bytes);
    ck_assert_ptr_eq(chunk.device, gpu->devices[0]);
    ck_assert(poll_until(5, free_bytes(gpu) <= before - bytes + slack));
    ck_assert_int_eq(gpu->ops->chunk_release(gpu, &chunk, &error), 0);
    ck_assert_ptr_null(chunk.device);
    ck_assert(poll_until(5, free_bytes(gpu) + slack >= before));
    /* Once more: a zero chunk is nobody's. */
    ck_assert_int_eq(gpu->ops->chunk_release(gpu, &chunk, &error), 0);
    gpu_close(gpu);
}
END_TEST

START_TEST(full_device_is_an_outcome_and_broken_calls_are_errors)
{
    struct gpu *gpu = gpu_new(GPU_ROLE_BROKER);
    const struct gpu_device *at = gpu->devices[0];
    struct gpu_chunk chunk = {.bytes = 77};
    uint64_t too_much;

    ck_assert(round_up(at->total_bytes + 1, at->granularity_bytes, &too_much));
    ck_assert_int_eq(gpu->ops->chunk_create(gpu, at, too_much, &chunk, &error), GPU_NO_MEMORY);
    ck_assert_str_eq(error.text, "cuMemCreate: CUDA_ERROR_OUT_OF_MEMORY (2)");
    ck_assert_int_eq(error.code, 2);
    ck_assert_int_eq(
        gpu->ops->chunk_create(gpu, at, at->granularity_bytes + 1, &chunk, &error), -EINVAL);
    ck_assert_str_eq(error.text, "cuMemCreate: CUDA_ERROR_INVALID_VALUE (1)");
    ck_assert_int_eq(gpu->ops->chunk_create(gpu, at, 0, &chunk, NULL), -EINVAL);
    ck_assert_uint_eq(chunk.bytes, 77);
    gpu_close(gpu);
}
END_TEST

START_TEST(exported_fds_are_new_and_close_on_exec)
{
    struct gpu *gpu = gpu_new(GPU_ROLE_BROKER);
    struct gpu_chunk chunk = chunk_create(gpu, gpu->devices[0]->granularity_bytes);
    struct gpu_shareable first = chunk_export(gpu, &chunk), second = chunk_export(gpu, &chunk);

    ck_assert_int_eq(first.type, GPU_HANDLE_POSIX_FD);
    ck_assert_int_ne(first.fd, second.fd);
    ck_assert_int_eq(fcntl(first.fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    (void) close(first.fd);
    (void) close(second.fd);
    ck_assert_int_eq(gpu->ops->chunk_release(gpu, &chunk, &error), 0);
    gpu_close(gpu);
}
END_TEST

START_TEST(import_refuses_what_is_no_chunk)
{
    struct gpu *gpu = gpu_new(GPU_ROLE_BROKER);
    struct gpu_shareable shareable = {.type = GPU_HANDLE_IPC, .fd = -1};
    struct gpu_chunk chunk = {.bytes = 77};

    ck_assert_int_eq(
        gpu->ops->chunk_import_borrow(gpu, gpu->devices[0], &shareable, 1, &chunk, &error),
        -EINVAL);
    shareable = (struct gpu_shareable){.type = GPU_HANDLE_POSIX_FD, .fd = -1};
    ck_assert_int_eq(
        gpu->ops->chunk_import_borrow(gpu, gpu->devices[0], &shareable, 1, &chunk, &error),
        -EINVAL);
    shareable.fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    ck_assert_int_lt(
        gpu->ops->chunk_import_borrow(gpu, gpu->devices[0], &shareable, 1, &chunk, &error), 0);
    ck_assert_int_ge(fcntl(shareable.fd, F_GETFD), 0);
    (void) close(shareable.fd);
    ck_assert_uint_eq(chunk.bytes, 77);
    gpu_close(gpu);
}
END_TEST

/* Two chunks side by side at a stable address, as libgmb maps a lease that grows. */
START_TEST(client_maps_chunks_into_one_range)
{
    struct gpu *gpu = gpu_new(GPU_ROLE_CLIENT);
    const struct gpu_device *at = gpu->devices[0];
    uint64_t bytes = at->granularity_bytes, base, placed;
    struct gpu_chunk chunks[2];
    struct CUctx_st *retained;

    ck_assert_int_eq(gpu->ops->context_retain(gpu, at, &retained, &error), 0);
    ck_assert_int_eq(gpu->ops->range_reserve(gpu, 4 * bytes, bytes, &base, &error), 0);
    for (size_t i = 0; i < 2; i++) {
        chunks[i] = chunk_create(gpu, bytes);
        ck_assert_int_eq(
            gpu->ops->chunk_map(gpu, &chunks[i], base + i * bytes, &placed, &error), 0);
        ck_assert_uint_eq(placed, base + i * bytes);
    }
    ck_assert_int_eq(
        gpu->ops->span_set_access(gpu, at, base, 2 * bytes, GPU_ACCESS_READ_WRITE, &error), 0);
    cu_ok(gpu->cuda->ctx_set_current(retained));
    cu_ok(gpu->cuda->memset_d8(base + bytes - 1, 0x5a, 2));
    cu_ok(gpu->cuda->ctx_set_current(NULL));
    ck_assert_int_eq(gpu->ops->context_synchronize(gpu, retained, &error), 0);
    cu_ok(gpu->cuda->ctx_get_current(&context));
    ck_assert_ptr_null(context);

    ck_assert_int_eq(gpu->ops->span_unmap(gpu, base, bytes / 2, &error), -EINVAL);
    ck_assert_str_eq(error.text, "cuMemUnmap: CUDA_ERROR_INVALID_VALUE (1)");
    ck_assert_int_eq(gpu->ops->span_unmap(gpu, base, 2 * bytes, &error), 0);
    ck_assert_int_eq(gpu->ops->span_unmap(gpu, base, bytes, &error), -EINVAL);
    for (size_t i = 0; i < 2; i++)
        ck_assert_int_eq(gpu->ops->chunk_release(gpu, &chunks[i], &error), 0);
    ck_assert_int_eq(gpu->ops->range_free(gpu, base, 4 * bytes, &error), 0);
    ck_assert_int_eq(gpu->ops->context_release(gpu, at, &error), 0);
    ck_assert_int_eq(gpu->ops->context_release(gpu, at, &error), -ENXIO);
    gpu_close(gpu);
}
END_TEST

START_TEST(client_has_no_nvml)
{
    struct gpu *gpu = gpu_new(GPU_ROLE_CLIENT);
    struct gpu_process process;
    struct gpu_memory memory;
    size_t count;

    ck_assert_int_eq(gpu->ops->memory_info(gpu, gpu->devices[0], &memory, &error), -EOPNOTSUPP);
    ck_assert_int_eq(
        gpu->ops->processes(gpu, gpu->devices[0], 1, &process, &count, &error), -EOPNOTSUPP);
    gpu_close(gpu);
}
END_TEST

START_TEST(processes_are_those_with_a_context)
{
    struct gpu *gpu = gpu_new(GPU_ROLE_BROKER);
    struct gpu_process list[64];
    struct CUctx_st *retained;
    size_t count = 99, with_context;

    ck_assert_int_eq(
        gpu->ops->processes(gpu, gpu->devices[0], ARRAY_SIZE(list), list, &count, &error), 0);
    ck_assert_int_eq(gpu->ops->context_retain(gpu, gpu->devices[0], &retained, &error), 0);
    ck_assert_int_eq(
        gpu->ops->processes(gpu, gpu->devices[0], ARRAY_SIZE(list), list, &with_context, &error),
        0);
    if (on_simulator) {
        ck_assert_uint_eq(count, 0);
        ck_assert_uint_eq(with_context, 1);
        ck_assert_int_eq(list[0].pid, getpid());
        ck_assert(list[0].known);
        ck_assert_int_eq(
            gpu->ops->processes(gpu, gpu->devices[0], 0, list, &count, &error), -E2BIG);
    }
    ck_assert_int_eq(gpu->ops->context_release(gpu, gpu->devices[0], &error), 0);
    gpu_close(gpu);
}
END_TEST

START_TEST(driver_may_be_opened_again)
{
    struct gpu *first = gpu_new(GPU_ROLE_BROKER), *second = gpu_new(GPU_ROLE_CLIENT);

    ck_assert_str_eq(first->devices[0]->uuid, second->devices[0]->uuid);
    gpu_close(first);
    gpu_close(second);
    second = gpu_new(GPU_ROLE_BROKER);
    ck_assert_uint_gt(free_bytes(second), 0);
    ck_assert_ptr_null(gpu_close(second));
    ck_assert_ptr_null(gpu_close(NULL));
}
END_TEST

CONFORMANCE_MAIN("seam", devices_are_listed_by_uuid, broker_side_creates_no_context,
    chunk_is_charged_from_create_to_release, full_device_is_an_outcome_and_broken_calls_are_errors,
    exported_fds_are_new_and_close_on_exec, import_refuses_what_is_no_chunk,
    client_maps_chunks_into_one_range, client_has_no_nvml, processes_are_those_with_a_context,
    driver_may_be_opened_again)
