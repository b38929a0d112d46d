/*
 * Which clients are stalled: one of their requests waits for memory on a device, or their pages are
 * waited for. A client is active on a device while it has a lease there or asks for one. Only
 * connected clients count: what a process does whose connection ended, nobody knows.
 */
#pragma once

#include "daemon/core/types.h"

/* A request of the client begins (1) or ends (-1) to wait on the account's device. */
void stalled_request(struct core *core, struct account *account, struct client *client, int by);
/* It has one lease more or less there, or asks for one. */
void stalled_lease(struct core *core, struct account *account, struct client *client, int by);
void stalled_restore_event(struct core *core, const struct core_event *event);
/* It is connected again: what it has counts. After its state changed. */
void stalled_enter(struct core *core, struct client *client);
/* Its connection ends: it counts nowhere any more. Before its state changes. */
void stalled_leave(struct core *core, struct client *client);
/* A request has waited, and what for is over. */
void stalled_waited(struct core *core, const struct request *request);
