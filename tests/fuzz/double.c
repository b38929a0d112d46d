/* See double.h. */
#include "tests/fuzz/double.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>

#include "tests/fuzz/fuzz.h"

enum { CREATED = 1, IMPORTED }; /* handles */

uint64_t fuzz_gpu_used;

static int fake_memory(struct gpu *gpu, const struct gpu_device *device, struct gpu_memory *ret,
    struct gpu_error *error)
{
    (void) gpu;
    (void) error;
    ret->total_bytes = device->total_bytes;
    ret->free_bytes = device->total_bytes - __atomic_load_n(&fuzz_gpu_used, __ATOMIC_RELAXED);
    return 0;
}

static int fake_create(struct gpu *gpu, const struct gpu_device *device, uint64_t bytes,
    struct gpu_chunk *ret, struct gpu_error *error)
{
    (void) gpu;
    (void) error;
    (void) __atomic_add_fetch(&fuzz_gpu_used, bytes, __ATOMIC_RELAXED);
    *ret = (struct gpu_chunk){.device = device, .handle = CREATED, .bytes = bytes};
    return 0;
}

static int fake_export(struct gpu *gpu, const struct gpu_chunk *chunk, struct gpu_shareable *ret,
    struct gpu_error *error)
{
    (void) gpu;
    (void) chunk;
    (void) error;
    *ret = (struct gpu_shareable){.fd = eventfd(0, EFD_CLOEXEC)};
    return ret->fd < 0 ? -errno : 0;
}

/* What an fd brings stays counted: the record that says its size may be wrong. */
static int fake_import(struct gpu *gpu, const struct gpu_device *device,
    const struct gpu_shareable *shareable, uint64_t bytes, struct gpu_chunk *ret,
    struct gpu_error *error)
{
    (void) gpu;
    (void) shareable;
    (void) error;
    *ret = (struct gpu_chunk){.device = device, .handle = IMPORTED, .bytes = bytes};
    return 0;
}

static int fake_release(struct gpu *gpu, struct gpu_chunk *chunk, struct gpu_error *error)
{
    (void) gpu;
    (void) error;
    if (chunk->handle == CREATED)
        (void) __atomic_sub_fetch(&fuzz_gpu_used, chunk->bytes, __ATOMIC_RELAXED);
    *chunk = (struct gpu_chunk){0};
    return 0;
}

static const struct gpu_ops fake_ops = {
    .memory_info = fake_memory,
    .chunk_create = fake_create,
    .chunk_export = fake_export,
    .chunk_import_borrow = fake_import,
    .chunk_release = fake_release,
};
static const struct gpu_device fake_device = {
    .uuid = "GPU-00000000-0000-0000-0000-000000000001",
    .name = "double",
    .total_bytes = FUZZ_GPU_BYTES,
    .granularity_bytes = FUZZ_GPU_CHUNK,
    .vmm = true,
    .posix_fd = true,
};
static const struct gpu_device *const fake_devices[] = {&fake_device};
struct gpu fuzz_gpu = {
    .ops = &fake_ops, .driver = GPU_DRIVER_SIM, .device_count = 1, .devices = fake_devices};

struct broker *fuzz_broker_new(struct event_base *base, const char *text)
{
    struct config_device devices[LIMIT_DEVICES];
    size_t count = broker_config_devices(&fuzz_gpu, devices);
    char error[CONFIG_ERROR_BYTES] = "";
    struct broker *broker = NULL;
    struct config *config;

    FUZZ_CHECK(config_load_text("fuzz", text, strlen(text), devices, count, &config, error) == 0);
    if (broker_new(base, &clock_monotonic, &fuzz_gpu, config, &broker, error) < 0)
        (void) fprintf(stderr, "the broker doesn't start: %s\n", error);
    FUZZ_CHECK(broker != NULL);
    return broker;
}
