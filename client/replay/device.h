/*
 * What a worker does with device memory: writes patterns over it and checks them, by kernels on a
 * stream of its own, through the driver's own functions.
 *
 * Errors are negative errno with text in `error`; after -EIO the process has to end. Not
 * thread-safe: the context is made current for the thread that opens the device, and for those that
 * enter.
 */
#pragma once

#include "client/replay/pattern.h"
#include "gpu/gpu.h"

struct device;

/* `driver` is what the broker uses, `uuid` one of its devices. Blocks as gpu_open() does. */
int device_open(enum gpu_driver driver, const char *uuid, struct device **ret,
    struct gpu_error *error) _must_check_;
/* Waits for what runs. Accepts NULL, returns NULL. */
struct device *device_close(struct device *device);

static inline void device_close_ptr(struct device **device)
{
    *device = device_close(*device);
}

/* Makes its context current for the calling thread, which may then use the device, one thread at a
 * time. */
int device_enter(struct device *device, struct gpu_error *error) _must_check_;

/* A run of chunks of one lease, and whose they are. */
struct device_span {
    uint64_t address; /* of chunk `first` */
    uint64_t chunk_bytes;
    uint64_t first, count;
    const struct pattern_owner *owner;
};

/* Queues, for memory just received: looks for other tenants' bytes, then writes the pattern. */
int device_receive(
    struct device *device, const struct device_span *span, struct gpu_error *error) _must_check_;
/* Queues, before memory is given back: compares every byte with the pattern. */
int device_check(
    struct device *device, const struct device_span *span, struct gpu_error *error) _must_check_;

/* Waits for what was queued; bytes found since the last call, by either. */
int device_settle(struct device *device, uint64_t *ret_foreign, uint64_t *ret_differing,
    struct gpu_error *error) _must_check_;
