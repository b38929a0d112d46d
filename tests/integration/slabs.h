/* For tests of devices that share their memory over CUDA IPC: slabs, their process, and a driver of
 * the test's own process, as any program has one. */
#pragma once

#include "gpu/loader.h"
#include "tests/integration/raw.h"

#define MIB(n) ((uint64_t) (n) << 20)

/* The environment of a broker whose devices can do nothing else. */
extern const char *const slabs_only[];

/* A lease of so many bytes, with the bytes of its slab's handle. */
uint64_t slab_take(struct raw *raw, uint64_t bytes, CUipcMemHandle *ret_handle);
/* Kills the process that has the memory of the broker's only such device. */
void slab_kill(const struct harness *harness);
/* How often the first device's memory was lost. */
uint64_t slab_losses(const struct harness *harness);

extern struct cuda_api slab_driver;
/* Makes a context on the first device and the calling thread's. */
void slab_driver_begin(void);
CUresult slab_open(const CUipcMemHandle *handle, CUdeviceptr *ret);
