/*
 * One stream with what its jobs need on the device and in page-locked memory: tables of moves and
 * their sums. Each lane belongs to one thread.
 */
#pragma once

#include "daemon/mover/device.h"
#include "daemon/mover/job.h"
#include "daemon/mover/slabs.h"

struct lane;

/* Device memory of a lane. Little, since a mover starts when its device is full. */
#define LANE_BYTES (UINT64_C(32) << 10)

/* `memory`: LANE_BYTES on the device, borrowed. Its context must be current in the thread. */
int lane_new(const struct device *device, struct slabs *slabs, uint64_t memory, struct lane **ret,
    struct gpu_error *error) _must_check_;
/* Accepts NULL, returns NULL. */
struct lane *lane_free(struct lane *lane);

/*
 * Does the job (any but FORGET) and waits for it. `addresses`: where each of its chunks is mapped.
 * `ret_sums` (copy_count; NULL for SCRUB and PREPARE) are the checksums of the slots' bytes as they
 * were written or found; after a RESTORE, pages whose sum isn't the expected one are zero.
 * The driver's errors, and -EREMOTEIO of the disk's; the lane may be used again unless the device
 * isn't usable.
 */
int lane_run(struct lane *lane, const struct job *job, const uint64_t *addresses,
    uint64_t *ret_sums, struct gpu_error *error) _must_check_;
