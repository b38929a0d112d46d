/* Devices that share their memory over CUDA IPC: their slab processes, and the death of one. */
#pragma once

#include "daemon/broker.h"

/*
 * Says of each device how its memory is shared, and starts the slab processes; before the first
 * job of the executor. -ENOMEM.
 */
int slab_devices_start(struct broker *broker) _must_check_;
/* Ends the processes: no call on their slabs waits any more. Some may still be released. */
void slab_devices_stop(struct broker *broker);
void slab_devices_free(struct broker *broker);

/* Whether the device is one of them: nothing can be evicted from slabs. */
static inline bool slab_device(const struct broker *broker, uint32_t device)
{
    return broker->devices[device].sharing == GPU_HANDLE_IPC;
}
/* How often all that was leased there was lost. */
uint64_t slab_device_losses(const struct broker *broker, uint32_t device);
