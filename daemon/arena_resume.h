/* A holder that comes back over a new connection to an arena that the broker has gone on with. */
#pragma once

#include "daemon/arena_holder.h"

/*
 * The holder has not mapped what lies in [from, first), and has mapped what lies in [first, end):
 * the one is taken back, the other may be asked for again. No job may be left that
 * arena_leaving_busy() tells of. False when it says that it has what it wasn't granted, or there is
 * no memory. Steps the core.
 */
bool arena_resume(struct arena_holder *holder, uint32_t from, uint32_t first, uint32_t end);
/* All of that was said and its session is ACTIVE: it is sent, and told, what it missed. */
void arena_resume_end(struct arena_holder *holder);
