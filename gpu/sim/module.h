/* Functions of loaded modules, as a launch sees them. */
#pragma once

#include "gpu/sim/ptx.h"
#include "gpu/sim/stream.h"
#include "kernels/kernels.h"

struct sim_function {
    CUcontext context;
    CUfunction handle;
    const struct kernel_info *kernel; /* static */
    const struct ptx_entry *entry;    /* of its module */
};

/* With the lock of stream.h; NULL when `handle` isn't a function of a loaded module. */
const struct sim_function *sim_function_find(CUfunction handle);
