/* Devices: what happens on one in every step. */
#pragma once

#include "daemon/core/types.h"

void device_add_event(struct core *core, const struct core_event *event);
void device_drain_event(struct core *core, const struct core_event *event);
struct device *device_free_object(struct device *device);
/* Timers that are due, then the queue, then jobs for the shell. */
void device_work(struct core *core, struct device *device);
/* When device_work() has something to do without any event. */
uint64_t device_due(const struct device *device);
