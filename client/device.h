/* The devices of a session: told by the broker, joined with what this process sees. */
#pragma once

#include "client/session.h"

/* Fills the session's table. PROTOCOL for entries that make no sense. */
int devices_load(struct gmb_session *session, const Gmb__Welcome *welcome, struct outcome *outcome);

/* Whether a broker that came back has the same devices in the same order; which of them are out of
 * service is taken from it. */
bool devices_same(struct gmb_session *session, const Gmb__Welcome *welcome);

/* The device named by UUID text (NULL: the first one). NOT_FOUND when the broker or this process
 * doesn't have it. */
int device_find(
    struct gmb_session *session, const char *uuid, struct device **ret, struct outcome *outcome);

/* The broker says that a device is out of service. */
void device_failed_take(struct gmb_session *session, const Gmb__DeviceFailed *told);

/* Makes sure of the device's context. GPU when it can't be made. Blocks for the making at first. */
int device_retain(struct gmb_session *session, struct device *device, struct outcome *outcome);

/* Gives the contexts back. */
void devices_release(struct gmb_session *session);
