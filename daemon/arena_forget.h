/*
 * What is left in the table of a shared arena when something is gone: bits of holders who left, and
 * pages of chunks that nobody has any more.
 *
 * A table has up to ARENA_PAGES_MAX pages, so that this is done a bounded number of pages in a
 * turn, and looks at parts that nobody ever wrote without filling them with memory. Everything here
 * belongs to the loop's thread and doesn't block.
 */
#pragma once

#include "daemon/arena.h"

struct hosting;

/*
 * Nobody has the index any more. What other holders' pages were there is lost: at once if few pages
 * were looked at since the last turn, else the index is LOSING, and empty when its turn was there.
 */
void arena_index_emptied(struct arena *arena, uint32_t index);

/* Goes on with what is LOSING, then clears what holders have left that are gone. */
void arena_forget_turn(struct hosting *hosting);
