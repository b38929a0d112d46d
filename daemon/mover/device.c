/*
 * NVML is opened for one question alone: how much free memory fell when the context was made. The
 * broker counts it on the device's reserve.
 */
#include "daemon/mover/device.h"

#include <errno.h>
#include <stdio.h>

#include "kernels/kernels.h"

static int kernels_load(struct device *device, struct gpu_error *error)
{
    const struct {
        const char *name;
        CUfunction *function;
    } kernels[] = {
        {"page_copy", &device->copy},
        {"page_checksum", &device->checksum},
        {"page_scrub", &device->scrub},
        {"page_quantize", &device->quantize},
        {"page_dequantize", &device->dequantize},
    };
    int r = device_check(device, device->cuda->module_load_data(&device->module, kernels_ptx),
        "cuModuleLoadData", error);

    for (size_t i = 0; r == 0 && i < ARRAY_SIZE(kernels); i++)
        r = device_check(device,
            device->cuda->module_get_function(kernels[i].function, device->module, kernels[i].name),
            kernels[i].name, error);
    return r;
}

static uint64_t free_bytes(const struct device *device)
{
    struct gpu_memory memory;

    if (device->gpu->ops->memory_info(device->gpu, device->info, &memory, NULL) < 0)
        return 0;
    return memory.free_bytes;
}

static const struct gpu_device *device_find(const struct gpu *gpu, const uint8_t uuid[16])
{
    char text[GPU_UUID_SIZE];
    char *at = text + sprintf(text, "GPU-");

    for (size_t i = 0; i < 16; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            *at++ = '-';
        at += sprintf(at, "%02x", uuid[i]);
    }
    return gpu_device_find(gpu, text);
}

int device_open(
    enum gpu_driver driver, const uint8_t uuid[16], struct device *ret, struct gpu_error *error)
{
    struct device device = {0};
    int r = gpu_open(driver, GPU_ROLE_BROKER, &device.gpu, error);

    if (r < 0)
        return r;
    device.cuda = device.gpu->cuda;
    device.info = device_find(device.gpu, uuid);
    if (device.info == NULL) {
        gpu_error_set(error, 0, "the device is not visible here");
        device_close(&device);
        return -ENODEV;
    }
    device.free_bytes = free_bytes(&device);
    r = device.gpu->ops->context_retain(device.gpu, device.info, &device.context, error);
    if (r == 0)
        r = device_enter(&device, error);
    if (r == 0)
        r = kernels_load(&device, error);
    if (r < 0) {
        device_close(&device);
        return r;
    }
    *ret = device;
    return 0;
}

uint64_t device_taken_bytes(const struct device *device)
{
    return sub_saturate(device->free_bytes, free_bytes(device));
}

void device_close(struct device *device)
{
    if (device->module != NULL)
        (void) device->cuda->module_unload(device->module);
    if (device->context != NULL)
        (void) device->gpu->ops->context_release(device->gpu, device->info, NULL);
    gpu_close(device->gpu);
    *device = (struct device){0};
}

int device_enter(const struct device *device, struct gpu_error *error)
{
    return device_check(
        device, device->cuda->ctx_set_current(device->context), "cuCtxSetCurrent", error);
}

bool device_usable(const struct device *device, int result)
{
    /* -EIO says so by itself; another code may have hidden that the context is gone. */
    return result != -EIO &&
           device->gpu->ops->context_synchronize(device->gpu, device->context, NULL) == 0;
}
