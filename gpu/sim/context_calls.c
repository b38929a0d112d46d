/* The exported context calls: arguments checked, then context.c. */
#include "gpu/sim/context.h"

CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    CUresult result = sim_enter(__func__);

    if (result != CUDA_SUCCESS)
        return result;
    if (context == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (sim_device_index(device) < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    return sim_primary_retain(device, context);
}

CUresult cuDevicePrimaryCtxRelease_v2(CUdevice device)
{
    CUresult result = sim_enter(__func__);

    if (result != CUDA_SUCCESS)
        return result;
    if (sim_device_index(device) < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    return sim_primary_release(device, false);
}

CUresult cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    CUresult result = sim_enter(__func__);

    if (result != CUDA_SUCCESS)
        return result;
    if (sim_device_index(device) < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    return sim_primary_release(device, true);
}

CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned int *flags, int *active)
{
    CUresult result = sim_enter(__func__);
    bool alive;

    if (result != CUDA_SUCCESS)
        return result;
    if (flags == NULL || active == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (sim_device_index(device) < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    sim_primary_state(device, flags, &alive);
    *active = alive;
    return CUDA_SUCCESS;
}

CUresult cuCtxCreate_v2(CUcontext *context, unsigned int flags, CUdevice device)
{
    CUresult result = sim_enter(__func__);

    if (result != CUDA_SUCCESS)
        return result;
    if (context == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (sim_device_index(device) < 0)
        return CUDA_ERROR_INVALID_DEVICE;
    return sim_context_create(device, flags, context);
}

CUresult cuCtxDestroy_v2(CUcontext context)
{
    CUresult result = sim_enter(__func__);

    if (result != CUDA_SUCCESS)
        return result;
    if (context == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    return sim_context_destroy(context);
}

CUresult cuCtxPushCurrent_v2(CUcontext context)
{
    CUresult result = sim_enter(__func__);

    if (result != CUDA_SUCCESS)
        return result;
    if (context == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    return sim_context_push(context);
}

CUresult cuCtxPopCurrent_v2(CUcontext *context)
{
    CUresult result = sim_enter(__func__);
    CUcontext popped;

    if (result != CUDA_SUCCESS)
        return result;
    result = sim_context_pop(&popped);
    if (result == CUDA_SUCCESS && context != NULL)
        *context = popped;
    return result;
}

CUresult cuCtxSetCurrent(CUcontext context)
{
    CUresult result = sim_enter(__func__);

    return result != CUDA_SUCCESS ? result : sim_context_set(context);
}

CUresult cuCtxGetCurrent(CUcontext *context)
{
    CUresult result = sim_enter(__func__);

    if (result != CUDA_SUCCESS)
        return result;
    if (context == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *context = sim_context_top();
    return CUDA_SUCCESS;
}

CUresult cuCtxGetDevice(CUdevice *device)
{
    CUcontext context;
    CUresult result = sim_enter_context(__func__, &context);

    if (result != CUDA_SUCCESS)
        return result;
    if (device == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *device = sim_context_device(context);
    return CUDA_SUCCESS;
}

CUresult cuCtxSynchronize(void)
{
    CUcontext context;
    CUresult result = sim_enter_context(__func__, &context);

    return result != CUDA_SUCCESS ? result : sim_context_synchronize(context);
}
