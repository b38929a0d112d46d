/* Page-locked host memory of this process: cuMemHostAlloc and cuMemHostRegister. */
#pragma once

#include "gpu/sim/sim.h"

struct sim_host_info {
    void *base;
    uint64_t bytes;
    CUcontext context; /* that it was made in */
};

/* The range that holds `address`; false when it is in none. Takes the lock of stream.h. */
bool sim_host_find(const void *address, struct sim_host_info *ret);
/* Whether one range holds all of [address, address + bytes). Takes the lock of stream.h. */
bool sim_host_covers(const void *address, uint64_t bytes);
