/* Where an admitted request's chunks come from. */
#pragma once

#include "daemon/core/types.h"

/* How many chunks of the request come from where, as things are now. */
struct supply_plan {
    uint32_t cached; /* the tenant's own, returned */
    uint32_t clean;
    uint32_t create;
};

struct supply_plan supply_plan_make(struct core *core, const struct request *request);
/*
 * Charges the tenant and begins: the request is CREATING, or already granted when all chunks lay
 * ready. On failure (SLOTS_FULL, -ENOMEM) nothing has changed.
 */
int supply_start(
    struct core *core, struct request *request, const struct supply_plan *plan) _must_check_;
/* Takes everything back: chunks made so far are kept ready, the tenant pays for none. */
void supply_undo(struct core *core, struct request *request);
/* Asks the shell for chunks, in windows, as far as there is room. */
void supply_work(struct core *core, struct device *device);
void supply_created(struct core *core, struct chunk *chunk);
void supply_failed(struct core *core, struct chunk *chunk, bool out_of_memory);
/*
 * Has clean chunks made: for the first who waits for the device, out of what is free for it, so
 * that creation goes on beside the release of what it still lacks; while nobody waits,
 * prefetch_bytes.
 */
void supply_prefetch(struct core *core, struct device *device);
/* Bytes of clean chunks that are ready for the first who waits. */
/* A chunk that stands in the request can't be granted: what it has is given back, and it is put
 * together anew, or refused if it may not wait. */
void supply_again(struct core *core, struct request *request);
uint64_t supply_ahead_ready(struct core *core, struct device *device);
