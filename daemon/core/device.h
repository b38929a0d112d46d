/* Devices: what happens on one in every step. */
#pragma once

#include "daemon/core/types.h"

void device_add_event(struct core *core, const struct core_event *event);
void device_drain_event(struct core *core, const struct core_event *event);
void device_fail_event(struct core *core, const struct core_event *event);
void device_hold_event(struct core *core, const struct core_event *event);
/* Looks at every chunk that there is. */
void device_stale_event(struct core *core, const struct core_event *event);
struct device *device_free_object(struct device *device);
/* In each step: timers that are due; then, behind the queues of all devices, jobs for the shell. */
void device_wake(struct core *core, struct device *device);
void device_work(struct core *core, struct device *device);
/* When these have something to do without any event. */
uint64_t device_due(const struct device *device);
