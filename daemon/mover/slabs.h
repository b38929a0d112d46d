/*
 * The host tier in this process: mapped once, page-locked slab by slab when a job first needs one.
 * Any thread.
 */
#pragma once

#include "daemon/mover/device.h"

struct slabs;

/*
 * Maps the broker's memfd (borrowed). -EINVAL when it isn't `tier_bytes` long, whole slabs, and
 * sealed against shrinking: a tier that shrank would end this process by SIGBUS.
 */
int slabs_new(const struct device *device, int tier_fd, uint64_t tier_bytes, uint64_t slab_bytes,
    struct slabs **ret) _must_check_;
/* No work may use them. Accepts NULL, returns NULL. */
struct slabs *slabs_free(struct slabs *slabs);

/*
 * The device address of a byte of the tier; the slab that it lies in is page-locked first if need
 * be, which blocks for milliseconds. The driver's errors: -ENOMEM when no more can be locked.
 */
int slabs_address(struct slabs *slabs, uint64_t offset, uint64_t *ret_address,
    struct gpu_error *error) _must_check_;
