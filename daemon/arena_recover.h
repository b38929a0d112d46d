/* Arenas of a broker before, from the fds in the store and their leases in the core. */
#pragma once

#include "base/macro.h"

struct arena;
struct broker;

/*
 * Goes on with every arena that it has all of. What isn't there stays a lease without an arena: its
 * holders hear that it is lost. At start, behind the core's records and the deaths. What is found
 * and what is lost, of pages that lay in the host tier, too, is counted in the broker's recovery.
 */
void arenas_recover(struct broker *broker);
/* Its place in the device's tier, for pages in this format (enum mover_format). None where they
 * don't fit there, or there is no tier. -ENOMEM. */
int arena_space_make(struct arena *arena, uint32_t format) _must_check_;
