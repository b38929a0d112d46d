/*
 * The host tier at a start: that of the broker before where there is one, for what was evicted lies
 * there, and else one as it is configured.
 *
 * What was left is looked for first, whatever the configuration says now: pages are worth more
 * than a size. Only when arenas are there again is it known whether anything lies there. If nothing
 * does, one as configured takes its place; else it goes on as it is, and of what the configuration
 * takes away nothing is used again.
 *
 * For start only: all of it blocks, on the store, the disk, and movers of the broker before.
 */
#pragma once

#include "base/macro.h"

struct hosting;

/* Before arenas are restored: `hosting->tier`, NULL where there is to be none. -ENOMEM, -errno. */
int tier_kept_begin(struct hosting *hosting) _must_check_;
/* After it. The same. */
int tier_kept_end(struct hosting *hosting) _must_check_;
