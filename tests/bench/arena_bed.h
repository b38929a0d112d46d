/* An arena for measurements: the real one of libgmb, without a session behind it. Every chunk is
 * live. */
#pragma once

#include "client/arena.h"

/* -ENOMEM, -EINVAL. */
int arena_bed_make(uint32_t pages_per_chunk, uint32_t chunks, struct gmb_arena **ret);
void arena_bed_free(struct gmb_arena *arena);
