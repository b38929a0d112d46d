/*
 * Page-locked memory between the device and the tier's disk: pages lie in it one behind the other,
 * as the copies of a job do. Each belongs to one thread.
 */
#pragma once

#include "daemon/mover/device.h"
#include "daemon/mover/job.h"
#include "daemon/mover/slabs.h"

struct bounce {
    char *host;       /* NULL: not there yet */
    uint64_t address; /* of it, on the device */
    uint64_t bytes;
};

/* Room for a whole slab, unless it is there already. The driver's errors. */
int bounce_need(struct bounce *bounce, const struct device *device, const struct slabs *slabs,
    struct gpu_error *error) _must_check_;
/* Accepts a zero one. */
void bounce_close(struct bounce *bounce, const struct device *device);

/* So many copies of a job, all of the disk; their slots fit. */
struct bounce_span {
    const struct job *job;
    uint32_t first, count;
};

/* To the disk, or from there. See slabs_disk_write() and slabs_disk_read(). */
int bounce_write(const struct bounce *bounce, struct slabs *slabs, const struct bounce_span *span,
    struct gpu_error *error) _must_check_;
int bounce_read(const struct bounce *bounce, struct slabs *slabs, const struct bounce_span *span,
    struct gpu_error *error) _must_check_;
