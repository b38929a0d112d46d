/* Arenas of a broker before, from the fds in the store and their leases in the core. */
#pragma once

#include "base/macro.h"

struct broker;

/*
 * Goes on with every arena that it has all of; how many. What isn't there stays a lease without an
 * arena: its holders hear that it is lost. At start, behind the core's records and the deaths.
 */
uint32_t arenas_recover(struct broker *broker);
