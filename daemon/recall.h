/* Empty chunks go back: workers are told, reminded by the log, and, as the last resort, killed. */
#pragma once

#include "daemon/arena.h"

struct hosting;

/* The chunk, CLOSING and in no list, is vacant: its worker is told at the end of this turn. */
void recall_add(struct arena_chunk *chunk);
/* Tells the workers; looks at deadlines. */
void recall_turn(struct hosting *hosting);
