/* Asking for pages that aren't on the device. */
#pragma once

#include "client/arena.h"

/* Names those of the pages that are evicted to the broker. They are pinned. Takes the session's
 * lock. */
int arena_want(struct gmb_arena *arena, size_t n, const uint32_t *pages, struct outcome *outcome);
/* Asks anew for every pinned page that is evicted. The session's lock is held. */
void arena_want_again(struct gmb_arena *arena);
