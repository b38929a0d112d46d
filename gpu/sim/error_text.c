/* Names and texts of the driver's results. */
#include "gpu/sim/sim.h"

#include <string.h>

struct error_text {
    CUresult error;
    const char *name, *text;
};

#define ERROR(name, text)                                                                          \
    {                                                                                              \
        CUDA_ERROR_##name, "CUDA_ERROR_" #name, text                                               \
    }

static const struct error_text errors[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    ERROR(INVALID_VALUE, "invalid argument"),
    ERROR(OUT_OF_MEMORY, "out of memory"),
    ERROR(NOT_INITIALIZED, "initialization error"),
    ERROR(DEINITIALIZED, "driver shutting down"),
    ERROR(STUB_LIBRARY, "CUDA driver is a stub library"),
    ERROR(DEVICE_UNAVAILABLE, "CUDA-capable device(s) is/are busy or unavailable"),
    ERROR(NO_DEVICE, "no CUDA-capable device is detected"),
    ERROR(INVALID_DEVICE, "invalid device ordinal"),
    ERROR(INVALID_IMAGE, "device kernel image is invalid"),
    ERROR(INVALID_CONTEXT, "invalid device context"),
    ERROR(MAP_FAILED, "mapping of buffer object failed"),
    ERROR(UNMAP_FAILED, "unmapping of buffer object failed"),
    ERROR(ALREADY_MAPPED, "resource already mapped"),
    ERROR(NO_BINARY_FOR_GPU, "no kernel image is available for execution on the device"),
    ERROR(NOT_MAPPED, "resource not mapped"),
    ERROR(PEER_ACCESS_UNSUPPORTED, "peer access is not supported between these two devices"),
    ERROR(INVALID_PTX, "a PTX JIT compilation failed"),
    ERROR(UNSUPPORTED_PTX_VERSION, "the provided PTX was compiled with an unsupported toolchain."),
    ERROR(OPERATING_SYSTEM, "OS call failed or operation not supported on this OS"),
    ERROR(INVALID_HANDLE, "invalid resource handle"),
    ERROR(ILLEGAL_STATE, "the operation cannot be performed in the present state"),
    ERROR(NOT_FOUND, "named symbol not found"),
    ERROR(NOT_READY, "device not ready"),
    ERROR(ILLEGAL_ADDRESS, "an illegal memory access was encountered"),
    ERROR(CONTEXT_IS_DESTROYED, "context is destroyed"),
    ERROR(TOO_MANY_PEERS, "peer mapping resources exhausted"),
    ERROR(HOST_MEMORY_ALREADY_REGISTERED,
        "part or all of the requested memory range is already mapped"),
    ERROR(HOST_MEMORY_NOT_REGISTERED, "pointer does not correspond to a registered memory region"),
    ERROR(LAUNCH_FAILED, "unspecified launch failure"),
    ERROR(NOT_PERMITTED, "operation not permitted"),
    ERROR(NOT_SUPPORTED, "operation not supported"),
    ERROR(SYSTEM_NOT_READY, "system not yet initialized"),
    ERROR(
        SYSTEM_DRIVER_MISMATCH, "system has unsupported display driver / cuda driver combination"),
    ERROR(
        COMPAT_NOT_SUPPORTED_ON_DEVICE, "forward compatibility was attempted on non supported HW"),
    ERROR(MPS_CONNECTION_FAILED,
        "MPS client failed to connect to the MPS control daemon or the MPS server"),
    ERROR(MPS_RPC_FAILURE,
        "the remote procedural call between the MPS server and the MPS client failed"),
    ERROR(MPS_SERVER_NOT_READY, "MPS server is not ready to accept new MPS client requests"),
    ERROR(MPS_MAX_CLIENTS_REACHED,
        "the hardware resources required to create MPS client have been exhausted"),
    ERROR(MPS_MAX_CONNECTIONS_REACHED,
        "the hardware resources required to support device connections have been exhausted"),
    ERROR(MPS_CLIENT_TERMINATED, "the MPS client has been terminated by the server"),
    ERROR(UNKNOWN, "unknown error"),
};

static const struct error_text *find(CUresult error)
{
    for (size_t i = 0; i < ARRAY_SIZE(errors); i++) {
        if (errors[i].error == error)
            return &errors[i];
    }
    return NULL;
}

CUresult cuGetErrorName(CUresult error, const char **name)
{
    const struct error_text *found = find(error);
    CUresult result = sim_inject(__func__);

    if (result != CUDA_SUCCESS)
        return result;
    if (name == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *name = found != NULL ? found->name : NULL;
    return found != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

CUresult cuGetErrorString(CUresult error, const char **text)
{
    const struct error_text *found = find(error);
    CUresult result = sim_inject(__func__);

    if (result != CUDA_SUCCESS)
        return result;
    if (text == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *text = found != NULL ? found->text : NULL;
    return found != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
