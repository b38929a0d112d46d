/* Memory that lies ready and is in the way is given back. Nothing is taken from a lease here. */
#pragma once

#include "daemon/core/types.h"

struct reclaim_want {
    uint64_t chunk_bytes; /* ready chunks of this size are of use as they are */
    uint64_t bytes;
    bool clean; /* clean ones of other sizes are in the way */
    bool low;   /* nobody above its MemoryLow has anything else to give */
};

/*
 * Discards ready chunks of at least `bytes` for a request of `account`: the tenant's own of other
 * sizes, then (if `clean`) clean ones of other sizes that nobody before it waits for, then the
 * oldest of other tenants as far as these stay above their MemoryLow, and (if `low`) of those that
 * stay above their MemoryMin. A bounded number for each step; what is left over is asked for again
 * by the next drain of the device. Returns the bytes that nothing of this can supply: 0 while there
 * may be more.
 */
uint64_t reclaim_for(struct core *core, struct account *account, const struct reclaim_want *want);
/* The tenant's own alone, of any size but `chunk_bytes` (0: of any size). */
void reclaim_own(struct core *core, struct account *account, uint64_t chunk_bytes, uint64_t bytes);
/* As much as a limit that was lowered calls for. */
void reclaim_overage(struct core *core, struct account *account);
/* Discards what lay ready for too long. */
void reclaim_expired(struct core *core, struct device *device);
