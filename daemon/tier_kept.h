/*
 * The host tier of a broker before: what was evicted lies there. For start only: all of it blocks.
 */
#pragma once

#include "daemon/tier.h"

struct broker;

/*
 * Takes over what is in the store for the device, once no mover of the broker before writes there
 * any more. `*disk_fd`, a new file, is closed and replaced where there is one from before, and
 * consumed. False, with nothing changed, where there is nothing to go on with.
 */
bool tier_kept_take(
    struct broker *broker, uint32_t device, int *disk_fd, uint64_t disk_bytes, struct tier **ret);
/* A new tier is put into the store, if there is one. Where it can't be, arenas don't outlive the
 * broker, which is logged. */
void tier_kept_put(struct broker *broker, uint32_t device, const struct tier *tier);
