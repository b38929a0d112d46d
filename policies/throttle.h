/*
 * MemoryHigh: growth above it is slowed down, not refused.
 *
 * After Linux's memory.high (mm/memcontrol.c, calculate_high_delay): the pause grows with the
 * square of the overage relative to the limit, so that a tenant a little above it hardly notices
 * and one far above it is all but stopped.
 */
#pragma once

#include "base/macro.h"

/* No pause is longer; the kernel stops at 2 s, for a task that can't be asked to shed load. */
#define THROTTLE_MAX_NS UINT64_C(1000000000)

/*
 * Pause, in ns, before `growth_bytes` are granted to a tenant that uses `used_bytes`, of whom
 * `high_bytes` is the limit: 64 s x overage^2, where overage = (used + growth - high) / high; 0 at
 * or below the limit, THROTTLE_MAX_NS from 12.5 % over it. A limit of 0 always pauses for the
 * longest.
 */
uint64_t throttle_delay_ns(uint64_t used_bytes, uint64_t growth_bytes, uint64_t high_bytes);
