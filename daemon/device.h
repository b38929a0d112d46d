/* Which devices are in service. */
#pragma once

#include "daemon/broker.h"

struct session;

/* Whether the driver's last call there did what it was to; the status pages say so, too. */
void device_healthy_set(struct broker *broker, uint32_t device, bool healthy);
/* What a driver call on the device gave: 0, GPU_NO_MEMORY or -errno, with the driver's `text`.
 * Takes a device that is lost or broken out of service. Not from within an action. */
void device_heard(struct broker *broker, uint32_t device, int result, const char *text);
/* One that is ACTIVE again: of devices that have failed since its Welcome. */
void device_failures_tell(struct session *session);
