/* The simulated driver in the test's own process, on the node of rig.h. */
#pragma once

#include "gpu/sim/sim.h"
#include "tests/simdriver/rig.h"

#define DRIVER_GRANULE (2 * MIB)

#define assert_cuda(expected, call) ck_assert_int_eq((call), (expected))
#define assert_ok(call) assert_cuda(CUDA_SUCCESS, (call))

/* Points the environment at the test's node; other variables are the test's to set before. */
void driver_environment(void);
/* driver_environment and cuInit. */
void driver_begin(void);
/* A context on device 0, current on this thread. */
CUcontext driver_context(void);

/* An exportable chunk of one granule on a device. */
CUresult driver_create(CUdevice device, CUmemGenericAllocationHandle *ret);
CUmemGenericAllocationHandle driver_chunk(void);
int driver_export(CUmemGenericAllocationHandle handle);
/* Bytes in use on device 0; needs a current context. */
uint64_t driver_used(void);
