/* Which devices are in service. */
#pragma once

#include "daemon/broker.h"

/* What a driver call on the device gave: 0, GPU_NO_MEMORY or -errno, with the driver's `text`.
 * Takes a device that is lost or broken out of service. Not from within an action. */
void device_heard(struct broker *broker, uint32_t device, int result, const char *text);
