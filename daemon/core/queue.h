/* Who waits for memory, and who is next. */
#pragma once

#include "daemon/core/types.h"

/* A new request: refused at once if it can never be, else last in its tenant's queue. */
void queue_enter(struct core *core, struct request *request);
/* One that was admitted and could not be supplied goes back to where its arrival puts it. */
void queue_requeue(struct core *core, struct request *request);
/* Takes it out of the queue and of all timers. Idempotent. */
void queue_remove(struct core *core, struct request *request);
/* Deadlines and wake-ups that are due. */
void queue_time(struct core *core);
/* Admits what the limits and the device allow, by rank. */
void queue_drain(struct core *core, struct device *device);
