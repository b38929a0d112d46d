/*
 * Dropping pages that can be computed again, where the host tier has no room: never one before all
 * that continue it (policies/drop_order.h), wherever in the arena those lie.
 *
 * Who continues whom is counted by each survey, from copies. What a worker links later to a page
 * that it doesn't pin is not seen before the next count. A page that was allocated since isn't
 * known, and not dropped.
 */
#pragma once

#include "daemon/arena.h"
#include "policies/drop_order.h"

/* Pages that are dropped in one turn of a device: each may lie anywhere in the table. */
#define DROP_TURN_PAGES 16384

enum drop_outcome {
    DROP_DONE,    /* the page, after what continued it */
    DROP_REFUSED, /* it, or what continues it, is in use or can't be computed again */
    DROP_LATER,   /* the turn has dropped enough */
    DROP_OUTCOME_MAX
};

/*
 * Adds the chunk's pages to the count in `*order`, which is made at the arena's first page that
 * matters: one entry for each page of its table, of which memory is used where chunks are. Returns
 * the steps that took, in pages; without memory nothing is counted, and nothing will be dropped.
 */
uint32_t drop_count(const struct arena_chunk *chunk, struct drop_page **order);

/* Whether the last complete count lets the page of the chunk go; `word` was read just now. */
bool drop_allows(const struct arena_chunk *chunk, uint32_t page, uint64_t word);

/* Whether pages on the device would go with it, and whether such a page of another chunk continues
 * it; as the last complete count has it. */
bool drop_carries(const struct arena_chunk *chunk, uint32_t page);
bool drop_torn(const struct arena_chunk *chunk, uint32_t page);

/* Makes it LOST, and first all that continues it; their slots go back. */
enum drop_outcome drop_page(struct arena_chunk *chunk, uint32_t page);
