/*
 * Opening a driver: load its library, cuInit, list the devices. The object is built in that order
 * and torn down from any point of it by the one destructor.
 */
#include "gpu/gpu.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/backend.h"

static const char *const driver_names[] = {
    [GPU_DRIVER_CUDA] = "cuda",
    [GPU_DRIVER_SIM] = "sim",
};
_Static_assert(ARRAY_SIZE(driver_names) == GPU_DRIVER_MAX, "a name for each driver");

static const char *const handle_type_names[] = {
    [GPU_HANDLE_POSIX_FD] = "posix-fd",
    [GPU_HANDLE_IPC] = "ipc",
};
_Static_assert(ARRAY_SIZE(handle_type_names) == GPU_HANDLE_MAX, "a name for each handle type");

const char *gpu_driver_name(enum gpu_driver driver)
{
    return (unsigned) driver < GPU_DRIVER_MAX ? driver_names[driver] : "unknown";
}

const char *gpu_handle_type_name(enum gpu_handle_type type)
{
    return (unsigned) type < GPU_HANDLE_MAX ? handle_type_names[type] : "unknown";
}

enum gpu_handle_type gpu_device_sharing(const struct gpu_device *device)
{
    return device->vmm && device->posix_fd ? GPU_HANDLE_POSIX_FD : GPU_HANDLE_IPC;
}

/* Both are powers of two. */
uint64_t gpu_device_granularity(const struct gpu_device *device, enum gpu_handle_type type)
{
    return type == GPU_HANDLE_IPC ? MAX(device->granularity_bytes, GPU_SLAB_BYTES)
                                  : device->granularity_bytes;
}

int gpu_driver_parse(const char *name, enum gpu_driver *ret_driver)
{
    for (unsigned i = 0; i < GPU_DRIVER_MAX; i++) {
        if (strcmp(name, driver_names[i]) == 0) {
            *ret_driver = (enum gpu_driver) i;
            return 0;
        }
    }
    return -EINVAL;
}

/* What follows `GPU-` or `MIG-`, or the whole text where neither stands. */
static const char *uuid_digits(const char *uuid)
{
    return strncmp(uuid, "GPU-", 4) == 0 || strncmp(uuid, "MIG-", 4) == 0 ? uuid + 4 : uuid;
}

const struct gpu_device *gpu_device_find(const struct gpu *gpu, const char *uuid)
{
    for (size_t i = 0; i < gpu->device_count; i++) {
        if (strcasecmp(uuid_digits(gpu->devices[i]->uuid), uuid_digits(uuid)) == 0)
            return gpu->devices[i];
    }
    return NULL;
}

struct gpu *gpu_close(struct gpu *gpu)
{
    if (gpu != NULL)
        gpu->ops->close(gpu);
    return NULL;
}

static int driver_init(struct vmm_gpu *gpu, struct gpu_error *error)
{
    CUresult result = gpu->cuda.init(0);

    gpu->cuda_entered = true;
    if (result == CUDA_ERROR_STUB_LIBRARY) {
        gpu_error_set(error, (int) result, "cuInit: the library is a stub, there is no driver");
        return -ENODEV;
    }
    if (result == CUDA_ERROR_NO_DEVICE) {
        gpu_error_set(error, (int) result, "cuInit: the driver sees no device (100)");
        return -ENODEV;
    }
    return cuda_result_check(&gpu->cuda, result, "cuInit", error);
}

int gpu_open(enum gpu_driver driver, enum gpu_role role, struct gpu **ret, struct gpu_error *error)
{
    _cleanup_(gpu_close_ptr) struct gpu *owned = NULL;
    struct vmm_gpu *gpu = calloc(1, sizeof(*gpu));
    int r;

    gpu_error_set(error, 0, "out of host memory");
    if (gpu == NULL)
        return -ENOMEM;
    owned = &gpu->base;
    gpu->base.ops = &vmm_ops;
    gpu->base.driver = driver;
    gpu->base.ipc = &ipc_ops;
    r = cuda_load(driver, &gpu->cuda, error);
    if (r < 0)
        return r;
    gpu->base.cuda = &gpu->cuda;
    gpu->base.driver_version = gpu->cuda.version;
    r = driver_init(gpu, error);
    if (r < 0)
        return r;
    if (role == GPU_ROLE_BROKER) {
        r = vmm_nvml_open(gpu, error);
        if (r < 0)
            return r;
    }
    r = vmm_devices_list(gpu, error);
    if (r < 0)
        return r;
    *ret = TAKE_PTR(owned);
    return 0;
}
