/*
 * Faults and latencies for single calls, from GMB_SIM_FAULTS and GMB_SIM_LATENCY
 * (docs/simulator.md has the grammar). Per process; counts are per call and over all threads.
 */
#pragma once

#include "gpu/cuda_abi.h"
#include "gpu/sim/config.h"

/* Reads both variables once. -EINVAL with a line in `error`, and nothing is injected, ever. */
int inject_load(char error[SIM_TEXT_BYTES]) _must_check_;
/*
 * Sleeps what the table says for the call on any device and returns the fault whose turn it is, or
 * CUDA_SUCCESS.
 */
CUresult inject(const char *call);
/* The same for what the table says of this device alone; for the calls that may be given with one.
 */
CUresult inject_device(const char *call, unsigned device);
