/*
 * The device as the mover uses it: driver, context, kernels. And the one way to tell a failure:
 * what the driver said, and whether the process is still of use.
 */
#pragma once

#include "gpu/driver_text.h"
#include "gpu/gpu.h"
#include "gpu/loader.h"

struct device {
    struct gpu *gpu; /* owned */
    const struct gpu_device *info;
    const struct cuda_api *cuda;
    CUcontext context;
    uint64_t free_bytes; /* before the context was made; 0 where nobody tells */
    CUmodule module;
    CUfunction copy, checksum, scrub, quantize, dequantize;
};

/* Opens the driver, makes the context, loads the kernels. -ENODEV when `uuid` isn't visible. */
int device_open(enum gpu_driver driver, const uint8_t uuid[16], struct device *ret,
    struct gpu_error *error) _must_check_;
/* Device memory that went since device_open() began: what this process costs, where nobody else
 * takes some meanwhile. */
uint64_t device_taken_bytes(const struct device *device);
/* Nothing of the device may be in use. Accepts a zero one. */
void device_close(struct device *device);

/* Makes the context the calling thread's. */
int device_enter(const struct device *device, struct gpu_error *error) _must_check_;

/* Checks the result of a call; as cuda_result_check(). */
#define device_check(device, call_result, call, error)                                             \
    cuda_result_check((device)->cuda, (call_result), (call), (error))

/* Whether the context is still good after `result`, a negative errno of a driver call. */
bool device_usable(const struct device *device, int result);
