/*
 * Two closed sets of result codes become errnos. Codes that we don't know are -EIO: something
 * broke, and nobody here can tell what.
 */
#include "gpu/driver_text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "gpu/loader.h"

struct result_errno {
    int code;
    int error;
};

static const struct result_errno cuda_errnos[] = {
    {CUDA_SUCCESS, 0},
    {CUDA_ERROR_INVALID_VALUE, EINVAL},
    {CUDA_ERROR_OUT_OF_MEMORY, ENOMEM},
    {CUDA_ERROR_NOT_INITIALIZED, ENODEV},
    {CUDA_ERROR_DEINITIALIZED, ENODEV},
    {CUDA_ERROR_STUB_LIBRARY, ENODEV},
    {CUDA_ERROR_DEVICE_UNAVAILABLE, EBUSY},
    {CUDA_ERROR_NO_DEVICE, ENODEV},
    {CUDA_ERROR_INVALID_DEVICE, ENODEV},
    {CUDA_ERROR_INVALID_CONTEXT, ENXIO},
    {CUDA_ERROR_ALREADY_MAPPED, EBUSY},
    {CUDA_ERROR_NOT_MAPPED, ENOENT},
    {CUDA_ERROR_INVALID_HANDLE, EBADF},
    {CUDA_ERROR_NOT_FOUND, ENOENT},
    {CUDA_ERROR_NOT_READY, EAGAIN},
    {CUDA_ERROR_NOT_PERMITTED, EPERM},
    {CUDA_ERROR_NOT_SUPPORTED, EOPNOTSUPP},
    {CUDA_ERROR_SYSTEM_NOT_READY, ENODEV},
    {CUDA_ERROR_SYSTEM_DRIVER_MISMATCH, ENOSYS},
    {CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE, ENOSYS},
};

static const struct result_errno nvml_errnos[] = {
    {NVML_SUCCESS, 0},
    {NVML_ERROR_UNINITIALIZED, ENODEV},
    {NVML_ERROR_INVALID_ARGUMENT, EINVAL},
    {NVML_ERROR_NOT_SUPPORTED, EOPNOTSUPP},
    {NVML_ERROR_NO_PERMISSION, EPERM},
    {NVML_ERROR_NOT_FOUND, ENOENT},
    {NVML_ERROR_INSUFFICIENT_SIZE, E2BIG},
    {NVML_ERROR_DRIVER_NOT_LOADED, ENODEV},
    {NVML_ERROR_TIMEOUT, ETIMEDOUT},
    {NVML_ERROR_LIBRARY_NOT_FOUND, ENODEV},
    {NVML_ERROR_FUNCTION_NOT_FOUND, EOPNOTSUPP},
    {NVML_ERROR_GPU_IS_LOST, ENODEV},
    {NVML_ERROR_LIB_RM_VERSION_MISMATCH, ENOSYS},
    {NVML_ERROR_ARGUMENT_VERSION_MISMATCH, EOPNOTSUPP},
};

static int errno_lookup(const struct result_errno *table, size_t count, int code)
{
    for (size_t i = 0; i < count; i++) {
        if (table[i].code == code)
            return -table[i].error;
    }
    return -EIO;
}

int cuda_result_errno(CUresult result)
{
    return errno_lookup(cuda_errnos, ARRAY_SIZE(cuda_errnos), (int) result);
}

int nvml_result_errno(nvmlReturn_t result)
{
    return errno_lookup(nvml_errnos, ARRAY_SIZE(nvml_errnos), (int) result);
}

void gpu_error_set(struct gpu_error *error, int code, const char *format, ...)
{
    va_list arguments;

    if (error == NULL)
        return;
    error->code = code;
    va_start(arguments, format);
    (void) vsnprintf(error->text, sizeof(error->text), format, arguments);
    va_end(arguments);
}

int cuda_result_check(
    const struct cuda_api *api, CUresult result, const char *call, struct gpu_error *error)
{
    const char *name = NULL;

    if (result == CUDA_SUCCESS)
        return 0;
    if (api->get_error_name(result, &name) != CUDA_SUCCESS || name == NULL)
        name = "unknown error";
    gpu_error_set(error, (int) result, "%s: %s (%d)", call, name, (int) result);
    return cuda_result_errno(result);
}

int nvml_result_check(nvmlReturn_t result, const char *call, struct gpu_error *error)
{
    if (result == NVML_SUCCESS)
        return 0;
    gpu_error_set(error, (int) result, "%s: NVML error %d", call, (int) result);
    return nvml_result_errno(result);
}
