/* Inside of the two backends: what their files share. Only files of this folder include it. */
#pragma once

#include "gpu/driver_text.h"
#include "gpu/gpu.h"
#include "gpu/loader.h"

struct vmm_device {
    struct gpu_device base;
    CUdevice ordinal;
    nvmlDevice_t nvml; /* NULL in a client */
    CUcontext context; /* the primary one, once it was retained; atomic */
};

struct vmm_gpu {
    struct gpu base;
    struct cuda_api cuda;
    struct nvml_api nvml; /* library NULL in a client */
    bool cuda_entered;    /* cuInit was called, whatever it said */
    bool nvml_initialised;
    struct vmm_device *devices;             /* base.device_count of them */
    const struct gpu_device **device_bases; /* what base.devices points at */
};

static inline struct vmm_gpu *vmm_from_gpu(struct gpu *gpu)
{
    return container_of(gpu, struct vmm_gpu, base);
}

static inline const struct vmm_device *vmm_from_device(const struct gpu_device *device)
{
    return container_of(device, const struct vmm_device, base);
}

/* ipc.c */
extern const struct gpu_ops ipc_ops;

/* vmm.c */
extern const struct gpu_ops vmm_ops;
int vmm_context_retain(struct gpu *gpu, const struct gpu_device *device,
    struct CUctx_st **ret_context, struct gpu_error *error);
int vmm_context_release(struct gpu *gpu, const struct gpu_device *device, struct gpu_error *error);
int vmm_context_synchronize(struct gpu *gpu, struct CUctx_st *context, struct gpu_error *error);
void vmm_close(struct gpu *gpu);
/* The properties with which every chunk of the device is created. */
CUmemAllocationProp vmm_chunk_properties(const struct vmm_device *device);

/* device.c: fills `devices`; in the broker joins NVML's handles by UUID. */
int vmm_devices_list(struct vmm_gpu *gpu, struct gpu_error *error);

/* nvml.c */
int vmm_nvml_open(struct vmm_gpu *gpu, struct gpu_error *error);
void vmm_nvml_close(struct vmm_gpu *gpu);
/* Finds the device's NVML handle and corrects the prefix of its UUID text. */
int vmm_nvml_join(struct vmm_gpu *gpu, struct vmm_device *device, struct gpu_error *error);
int vmm_memory_info(struct gpu *gpu, const struct gpu_device *device, struct gpu_memory *ret,
    struct gpu_error *error);
int vmm_processes(struct gpu *gpu, const struct gpu_device *device, size_t capacity,
    struct gpu_process *ret_processes, size_t *ret_count, struct gpu_error *error);
