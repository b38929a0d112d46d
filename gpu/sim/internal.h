/* Between the memory files of the simulator, on top of what sim.h gives to all. */
#pragma once

#include "gpu/sim/sim.h"

/* A negative errno of the ledger or the kernel as the driver would report it. */
CUresult sim_error(int error);

/* device.c: reads CUDA_VISIBLE_DEVICES. */
void sim_devices_init(const struct sim_hardware *hardware);

/* legacy.c, ipc.c: the memory of a context that ends. */
void sim_legacy_context_end(CUcontext context);
void sim_ipc_context_end(CUcontext context);

/* One cuMemAlloc allocation. */
struct sim_legacy_info {
    CUdeviceptr base;
    uint64_t bytes;
    uint64_t handle; /* of the chunk */
    uint64_t offset; /* in the chunk */
};
/* The allocation that holds the address; false when there is none. */
bool sim_legacy_find(CUdeviceptr address, struct sim_legacy_info *ret);
/* The imported allocation that holds the address (the bytes that its exporter allocated). */
bool sim_ipc_find(CUdeviceptr address, CUdeviceptr *ret_base, uint64_t *ret_bytes);
