/* An arena for measurements: the real one of libgmb, without a session behind it. Every chunk is
 * live. */
#pragma once

#include "client/arena.h"

/* `flags` as for arena_table_layout(): of a shared one this process is the only holder. -ENOMEM,
 * -EINVAL. */
int arena_bed_make(
    uint32_t pages_per_chunk, uint32_t chunks, uint32_t flags, struct gmb_arena **ret);
void arena_bed_free(struct gmb_arena *arena);
