/*
 * The NVML subset that the broker needs, as an ABI of our own. Names are NVML's; see cuda_abi.h
 * for how that is meant. The list has the form of cuda_functions.h; all functions return
 * nvmlReturn_t; `since` is the CUDA driver version for want of one of NVML's own.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

typedef struct nvmlDevice_st *nvmlDevice_t;

typedef enum nvmlReturn_t {
    NVML_SUCCESS = 0,
    NVML_ERROR_UNINITIALIZED = 1,
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_NO_PERMISSION = 4,
    NVML_ERROR_ALREADY_INITIALIZED = 5,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_INSUFFICIENT_POWER = 8,
    NVML_ERROR_DRIVER_NOT_LOADED = 9,
    NVML_ERROR_TIMEOUT = 10,
    NVML_ERROR_LIBRARY_NOT_FOUND = 12,
    NVML_ERROR_FUNCTION_NOT_FOUND = 13,
    NVML_ERROR_GPU_IS_LOST = 15,
    NVML_ERROR_LIB_RM_VERSION_MISMATCH = 18,
    NVML_ERROR_ARGUMENT_VERSION_MISMATCH = 25,
    NVML_ERROR_UNKNOWN = 999,
} nvmlReturn_t;

typedef enum nvmlEnableState_t {
    NVML_FEATURE_DISABLED = 0,
    NVML_FEATURE_ENABLED = 1,
} nvmlEnableState_t;

/* A figure of a process that the driver can't tell. */
#define NVML_VALUE_NOT_AVAILABLE UINT64_MAX
/* The instance ids of a process outside MIG. */
#define NVML_INSTANCE_NONE UINT32_MAX

#define NVML_DEVICE_UUID_V2_BUFFER_SIZE 96

typedef struct nvmlMemory_t {
    unsigned long long total;
    unsigned long long free;
    unsigned long long used;
} nvmlMemory_t;

typedef struct nvmlMemory_v2_t {
    unsigned int version; /* NVML_MEMORY_V2, set by the caller */
    unsigned long long total;
    unsigned long long reserved;
    unsigned long long free;
    unsigned long long used;
} nvmlMemory_v2_t;

#define NVML_MEMORY_V2 ((unsigned int) (sizeof(nvmlMemory_v2_t) | (2u << 24)))

typedef struct nvmlProcessInfo_t {
    unsigned int pid;
    unsigned long long usedGpuMemory; /* bytes, or NVML_VALUE_NOT_AVAILABLE */
    unsigned int gpuInstanceId;
    unsigned int computeInstanceId;
} nvmlProcessInfo_t;

#define NVML_FUNCTIONS(X)                                                                          \
    X(REQUIRED, 4000, nvmlInit_v2, init, (void) )                                                  \
    X(REQUIRED, 4000, nvmlShutdown, shutdown, (void) )                                             \
    X(REQUIRED, 5000, nvmlDeviceGetCount_v2, device_get_count, (unsigned int *count))              \
    X(REQUIRED, 5000, nvmlDeviceGetHandleByIndex_v2, device_get_handle_by_index,                   \
        (unsigned int index, nvmlDevice_t *device))                                                \
    X(REQUIRED, 5000, nvmlDeviceGetHandleByUUID, device_get_handle_by_uuid,                        \
        (const char *uuid, nvmlDevice_t *device))                                                  \
    X(REQUIRED, 5000, nvmlDeviceGetUUID, device_get_uuid,                                          \
        (nvmlDevice_t device, char *uuid, unsigned int length))                                    \
    X(REQUIRED, 5000, nvmlDeviceGetMemoryInfo, device_get_memory_info,                             \
        (nvmlDevice_t device, nvmlMemory_t * memory))                                              \
    X(OPTIONAL, 11040, nvmlDeviceGetMemoryInfo_v2, device_get_memory_info_v2,                      \
        (nvmlDevice_t device, nvmlMemory_v2_t * memory))                                           \
    X(OPTIONAL, 11050, nvmlDeviceGetComputeRunningProcesses_v3, device_get_processes,              \
        (nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *processes))                  \
    X(OPTIONAL, 5000, nvmlDeviceGetPersistenceMode, device_get_persistence_mode,                   \
        (nvmlDevice_t device, nvmlEnableState_t * mode))                                           \
    X(OPTIONAL, 11000, nvmlDeviceGetMigMode, device_get_mig_mode,                                  \
        (nvmlDevice_t device, unsigned int *current, unsigned int *pending))                       \
    X(OPTIONAL, 11000, nvmlDeviceGetMaxMigDeviceCount, device_get_max_mig_device_count,            \
        (nvmlDevice_t device, unsigned int *count))                                                \
    X(OPTIONAL, 11000, nvmlDeviceGetMigDeviceHandleByIndex, device_get_mig_device_by_index,        \
        (nvmlDevice_t device, unsigned int index, nvmlDevice_t *mig))

_Static_assert(sizeof(nvmlMemory_t) == 24, "layout");
_Static_assert(sizeof(nvmlMemory_v2_t) == 40, "layout");
_Static_assert(offsetof(nvmlMemory_v2_t, total) == 8, "layout");
_Static_assert(offsetof(nvmlMemory_v2_t, free) == 24, "layout");
_Static_assert(sizeof(nvmlProcessInfo_t) == 24, "layout");
_Static_assert(offsetof(nvmlProcessInfo_t, usedGpuMemory) == 8, "layout");
_Static_assert(offsetof(nvmlProcessInfo_t, gpuInstanceId) == 16, "layout");
