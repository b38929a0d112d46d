/*
 * Emptying chunks that a plan has chosen: close, copy, and hand over to be recalled; or, where a
 * page can't leave, open again.
 */
#pragma once

#include "daemon/arena.h"

struct hosting;

/*
 * Closes a MAPPED chunk for `beneficiary` (the core's tenant index, UINT32_MAX: an operator) and
 * queues it; `drops` of its pages may be dropped where the tier is full. False when it isn't LIVE
 * any more.
 */
bool evict_start(struct arena_chunk *chunk, uint32_t drops, uint32_t beneficiary);
/* Empties queued chunks as far as the mover takes jobs; a bounded number. */
void evict_turn(struct hosting *hosting);
/* The chunk is no longer on its way: it leaves the device's lists and counts. Idempotent. */
void evict_leave(struct arena_chunk *chunk);
/* Gives the attempt up: pages may be allocated there again. */
void evict_reopen(struct arena_chunk *chunk);

/* One page's copy is done: `checksum` of its slot, NULL when it failed. */
void evict_page_done(struct arena_chunk *chunk, uint32_t page, const uint64_t *checksum);
/* One job that named the chunk is. */
void evict_chunk_done(struct arena_chunk *chunk);
