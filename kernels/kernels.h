/*
 * The device kernels, as PTX for any driver and as functions for the simulator.
 *
 * A program passes `kernels_ptx` to cuModuleLoadData() and launches by name; each kernel takes one
 * parameter, its `struct NAME_args` (pages.h, pattern.h, quantize.h), by value. It needn't know
 * which driver it talks to.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "kernels/kernel.h"

/* NUL-terminated PTX for sm_70 and later; the driver compiles it for the GPU at hand. */
extern const char kernels_ptx[];

/* A kernel compiled for the CPU. */
struct kernel_info {
    const char *name;
    uint64_t params_bytes; /* size of its parameter */
    void (*thread)(const struct kernel_index *index, const void *params);
};

/* NULL when there is no kernel of that name. Any thread. */
const struct kernel_info *kernel_find(const char *name);

/*
 * Runs every thread of a launch, one after the other, on the calling thread. `params` is the
 * kernel's parameter struct, aligned as it wants; all dimensions are >= 1. Any thread. Touches
 * nothing but the memory that `params` points at and holds no resource, so that a fault handler
 * may leave it by siglongjmp().
 */
void kernel_run(const struct kernel_info *kernel, const struct kernel_dim *grid,
    const struct kernel_dim *block, const void *params);
