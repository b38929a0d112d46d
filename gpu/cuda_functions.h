/*
 * Every driver function that we call or simulate, in one list.
 *
 *     X(need, since, symbol, member, parameters)
 *
 *   need     REQUIRED: without it there is no usable driver. OPTIONAL: the member may be NULL
 *   since    the driver version that brought the symbol, as cuDriverGetVersion counts (10020: 10.2)
 *   symbol   exactly what dlsym must be asked for, version suffix included. The unsuffixed names of
 *            many of them exist too and take 32-bit arguments: asking for those truncates sizes
 *   member   name of the pointer in `struct cuda_api`
 *
 * All return CUresult. The list names types and defines none, so that it can be held against
 * cuda.h in a translation unit that doesn't see cuda_abi.h. Symbols stay unexpanded (`#symbol`
 * and `symbol##`) or are used where cuda.h's renaming macros are off.
 */
#pragma once

#define CUDA_FUNCTIONS_DEVICE(X)                                                                   \
    X(REQUIRED, 2000, cuInit, init, (unsigned int flags))                                          \
    X(REQUIRED, 2020, cuDriverGetVersion, driver_get_version, (int *version))                      \
    X(REQUIRED, 6000, cuGetErrorName, get_error_name, (CUresult error, const char **name))         \
    X(REQUIRED, 6000, cuGetErrorString, get_error_string, (CUresult error, const char **text))     \
    X(OPTIONAL, 12000, cuGetProcAddress_v2, get_proc_address,                                      \
        (const char *symbol, void **function, int version, cuuint64_t flags,                       \
            CUdriverProcAddressQueryResult *status))                                               \
    X(REQUIRED, 2000, cuDeviceGet, device_get, (CUdevice * device, int ordinal))                   \
    X(REQUIRED, 2000, cuDeviceGetCount, device_get_count, (int *count))                            \
    X(REQUIRED, 2000, cuDeviceGetName, device_get_name, (char *name, int length, CUdevice device)) \
    X(REQUIRED, 11040, cuDeviceGetUuid_v2, device_get_uuid, (CUuuid * uuid, CUdevice device))      \
    X(REQUIRED, 3020, cuDeviceTotalMem_v2, device_total_mem, (size_t * bytes, CUdevice device))    \
    X(REQUIRED, 2000, cuDeviceGetAttribute, device_get_attribute,                                  \
        (int *value, CUdevice_attribute attribute, CUdevice device))                               \
    X(REQUIRED, 7000, cuDevicePrimaryCtxRetain, primary_ctx_retain,                                \
        (CUcontext * context, CUdevice device))                                                    \
    X(REQUIRED, 11000, cuDevicePrimaryCtxRelease_v2, primary_ctx_release, (CUdevice device))       \
    X(OPTIONAL, 11000, cuDevicePrimaryCtxReset_v2, primary_ctx_reset, (CUdevice device))           \
    X(OPTIONAL, 7000, cuDevicePrimaryCtxGetState, primary_ctx_get_state,                           \
        (CUdevice device, unsigned int *flags, int *active))                                       \
    X(OPTIONAL, 3020, cuCtxCreate_v2, ctx_create,                                                  \
        (CUcontext * context, unsigned int flags, CUdevice device))                                \
    X(OPTIONAL, 4000, cuCtxDestroy_v2, ctx_destroy, (CUcontext context))                           \
    X(REQUIRED, 4000, cuCtxPushCurrent_v2, ctx_push_current, (CUcontext context))                  \
    X(REQUIRED, 4000, cuCtxPopCurrent_v2, ctx_pop_current, (CUcontext * context))                  \
    X(REQUIRED, 4000, cuCtxSetCurrent, ctx_set_current, (CUcontext context))                       \
    X(REQUIRED, 4000, cuCtxGetCurrent, ctx_get_current, (CUcontext * context))                     \
    X(REQUIRED, 2000, cuCtxGetDevice, ctx_get_device, (CUdevice * device))                         \
    X(REQUIRED, 2000, cuCtxSynchronize, ctx_synchronize, (void) )

#define CUDA_FUNCTIONS_VMM(X)                                                                      \
    X(REQUIRED, 10020, cuMemGetAllocationGranularity, mem_get_allocation_granularity,              \
        (size_t * granularity, const CUmemAllocationProp *properties,                              \
            CUmemAllocationGranularity_flags option))                                              \
    X(REQUIRED, 10020, cuMemCreate, mem_create,                                                    \
        (CUmemGenericAllocationHandle * handle, size_t size,                                       \
            const CUmemAllocationProp *properties, unsigned long long flags))                      \
    X(REQUIRED, 10020, cuMemRelease, mem_release, (CUmemGenericAllocationHandle handle))           \
    X(REQUIRED, 10020, cuMemAddressReserve, mem_address_reserve,                                   \
        (CUdeviceptr * address, size_t size, size_t alignment, CUdeviceptr hint,                   \
            unsigned long long flags))                                                             \
    X(REQUIRED, 10020, cuMemAddressFree, mem_address_free, (CUdeviceptr address, size_t size))     \
    X(REQUIRED, 10020, cuMemMap, mem_map,                                                          \
        (CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle,     \
            unsigned long long flags))                                                             \
    X(REQUIRED, 10020, cuMemUnmap, mem_unmap, (CUdeviceptr address, size_t size))                  \
    X(REQUIRED, 10020, cuMemSetAccess, mem_set_access,                                             \
        (CUdeviceptr address, size_t size, const CUmemAccessDesc *access, size_t count))           \
    X(REQUIRED, 10020, cuMemGetAccess, mem_get_access,                                             \
        (unsigned long long *flags, const CUmemLocation *location, CUdeviceptr address))           \
    X(REQUIRED, 10020, cuMemExportToShareableHandle, mem_export_to_shareable_handle,               \
        (void *shareable, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,     \
            unsigned long long flags))                                                             \
    X(REQUIRED, 10020, cuMemImportFromShareableHandle, mem_import_from_shareable_handle,           \
        (CUmemGenericAllocationHandle * handle, void *shareable, CUmemAllocationHandleType type))  \
    X(OPTIONAL, 11000, cuMemRetainAllocationHandle, mem_retain_allocation_handle,                  \
        (CUmemGenericAllocationHandle * handle, void *address))                                    \
    X(REQUIRED, 10020, cuMemGetAllocationPropertiesFromHandle, mem_get_allocation_properties,      \
        (CUmemAllocationProp * properties, CUmemGenericAllocationHandle handle))

#define CUDA_FUNCTIONS_MEMORY(X)                                                                   \
    X(REQUIRED, 3020, cuMemGetInfo_v2, mem_get_info, (size_t * available, size_t * total))         \
    X(REQUIRED, 3020, cuMemAlloc_v2, mem_alloc, (CUdeviceptr * address, size_t size))              \
    X(REQUIRED, 3020, cuMemFree_v2, mem_free, (CUdeviceptr address))                               \
    X(REQUIRED, 3020, cuMemGetAddressRange_v2, mem_get_address_range,                              \
        (CUdeviceptr * base, size_t * size, CUdeviceptr address))                                  \
    X(REQUIRED, 4010, cuIpcGetMemHandle, ipc_get_mem_handle,                                       \
        (CUipcMemHandle * handle, CUdeviceptr address))                                            \
    X(REQUIRED, 11000, cuIpcOpenMemHandle_v2, ipc_open_mem_handle,                                 \
        (CUdeviceptr * address, CUipcMemHandle handle, unsigned int flags))                        \
    X(REQUIRED, 4010, cuIpcCloseMemHandle, ipc_close_mem_handle, (CUdeviceptr address))            \
    X(REQUIRED, 2020, cuMemHostAlloc, mem_host_alloc,                                              \
        (void **address, size_t size, unsigned int flags))                                         \
    X(REQUIRED, 2000, cuMemFreeHost, mem_free_host, (void *address))                               \
    X(REQUIRED, 6050, cuMemHostRegister_v2, mem_host_register,                                     \
        (void *address, size_t size, unsigned int flags))                                          \
    X(REQUIRED, 4000, cuMemHostUnregister, mem_host_unregister, (void *address))                   \
    X(OPTIONAL, 3020, cuMemHostGetDevicePointer_v2, mem_host_get_device_pointer,                   \
        (CUdeviceptr * device_address, void *address, unsigned int flags))                         \
    X(REQUIRED, 4000, cuPointerGetAttribute, pointer_get_attribute,                                \
        (void *value, CUpointer_attribute attribute, CUdeviceptr address))                         \
    X(REQUIRED, 7000, cuPointerGetAttributes, pointer_get_attributes,                              \
        (unsigned int count, CUpointer_attribute *attributes, void **values, CUdeviceptr address))

#define CUDA_FUNCTIONS_COPY(X)                                                                     \
    X(REQUIRED, 3020, cuMemcpyHtoD_v2, memcpy_htod,                                                \
        (CUdeviceptr target, const void *source, size_t size))                                     \
    X(REQUIRED, 3020, cuMemcpyDtoH_v2, memcpy_dtoh,                                                \
        (void *target, CUdeviceptr source, size_t size))                                           \
    X(REQUIRED, 3020, cuMemcpyDtoD_v2, memcpy_dtod,                                                \
        (CUdeviceptr target, CUdeviceptr source, size_t size))                                     \
    X(REQUIRED, 3020, cuMemcpyHtoDAsync_v2, memcpy_htod_async,                                     \
        (CUdeviceptr target, const void *source, size_t size, CUstream stream))                    \
    X(REQUIRED, 3020, cuMemcpyDtoHAsync_v2, memcpy_dtoh_async,                                     \
        (void *target, CUdeviceptr source, size_t size, CUstream stream))                          \
    X(REQUIRED, 3020, cuMemcpyDtoDAsync_v2, memcpy_dtod_async,                                     \
        (CUdeviceptr target, CUdeviceptr source, size_t size, CUstream stream))                    \
    X(OPTIONAL, 12080, cuMemcpyBatchAsync, memcpy_batch_async_v1,                                  \
        (CUdeviceptr * targets, CUdeviceptr * sources, size_t * sizes, size_t count,               \
            CUmemcpyAttributes * attributes, size_t * attribute_starts, size_t attribute_count,    \
            size_t * failed, CUstream stream))                                                     \
    X(OPTIONAL, 13000, cuMemcpyBatchAsync_v2, memcpy_batch_async,                                  \
        (CUdeviceptr * targets, CUdeviceptr * sources, size_t * sizes, size_t count,               \
            CUmemcpyAttributes * attributes, size_t * attribute_starts, size_t attribute_count,    \
            CUstream stream))                                                                      \
    X(REQUIRED, 3020, cuMemsetD8_v2, memset_d8,                                                    \
        (CUdeviceptr target, unsigned char value, size_t count))                                   \
    X(REQUIRED, 3020, cuMemsetD32_v2, memset_d32,                                                  \
        (CUdeviceptr target, unsigned int value, size_t count))                                    \
    X(REQUIRED, 3020, cuMemsetD8Async, memset_d8_async,                                            \
        (CUdeviceptr target, unsigned char value, size_t count, CUstream stream))                  \
    X(REQUIRED, 3020, cuMemsetD32Async, memset_d32_async,                                          \
        (CUdeviceptr target, unsigned int value, size_t count, CUstream stream))

#define CUDA_FUNCTIONS_STREAM(X)                                                                   \
    X(REQUIRED, 2000, cuStreamCreate, stream_create, (CUstream * stream, unsigned int flags))      \
    X(REQUIRED, 2000, cuStreamQuery, stream_query, (CUstream stream))                              \
    X(REQUIRED, 2000, cuStreamSynchronize, stream_synchronize, (CUstream stream))                  \
    X(REQUIRED, 3020, cuStreamWaitEvent, stream_wait_event,                                        \
        (CUstream stream, CUevent event, unsigned int flags))                                      \
    X(REQUIRED, 4000, cuStreamDestroy_v2, stream_destroy, (CUstream stream))                       \
    X(REQUIRED, 2000, cuEventCreate, event_create, (CUevent * event, unsigned int flags))          \
    X(REQUIRED, 2000, cuEventRecord, event_record, (CUevent event, CUstream stream))               \
    X(REQUIRED, 2000, cuEventQuery, event_query, (CUevent event))                                  \
    X(REQUIRED, 2000, cuEventSynchronize, event_synchronize, (CUevent event))                      \
    X(OPTIONAL, 12080, cuEventElapsedTime_v2, event_elapsed_time,                                  \
        (float *milliseconds, CUevent start, CUevent end))                                         \
    X(REQUIRED, 4000, cuEventDestroy_v2, event_destroy, (CUevent event))                           \
    X(REQUIRED, 10000, cuLaunchHostFunc, launch_host_func,                                         \
        (CUstream stream, CUhostFn function, void *data))                                          \
    X(REQUIRED, 2000, cuModuleLoadData, module_load_data, (CUmodule * module, const void *image))  \
    X(REQUIRED, 2000, cuModuleUnload, module_unload, (CUmodule module))                            \
    X(REQUIRED, 2000, cuModuleGetFunction, module_get_function,                                    \
        (CUfunction * function, CUmodule module, const char *name))                                \
    X(REQUIRED, 4000, cuLaunchKernel, launch_kernel,                                               \
        (CUfunction function, unsigned int grid_x, unsigned int grid_y, unsigned int grid_z,       \
            unsigned int block_x, unsigned int block_y, unsigned int block_z,                      \
            unsigned int shared_bytes, CUstream stream, void **parameters, void **extra))

#define CUDA_FUNCTIONS(X)                                                                          \
    CUDA_FUNCTIONS_DEVICE(X)                                                                       \
    CUDA_FUNCTIONS_VMM(X)                                                                          \
    CUDA_FUNCTIONS_MEMORY(X)                                                                       \
    CUDA_FUNCTIONS_COPY(X)                                                                         \
    CUDA_FUNCTIONS_STREAM(X)
