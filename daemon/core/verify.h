/* Releases, and whether the memory really came back. */
#pragma once

#include "daemon/core/types.h"

/* Starts what is due: an epoch of releases, the next look of one, a routine look. */
void verify_work(struct core *core, struct device *device);
/* When verify_work() has something to do without any event; CLOCK_NEVER if not before one. */
uint64_t verify_due(const struct device *device);
/* The driver let go of a chunk. */
void verify_released(struct core *core, struct chunk *chunk);
/* Free memory as the driver sees it, in order with creates and releases; above total: unknown. */
void verify_observed(struct core *core, struct device *device, uint64_t free_bytes);
/* Asks for a look soon: the ledger was contradicted. */
void verify_look_soon(struct core *core, struct device *device);
