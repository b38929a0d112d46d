/*
 * When the broker is started again. Pure: the clock is an argument.
 *
 * After systemd's words: a service that ends with status 0 has done what it was to do; every other
 * end calls for another start. The first comes at once, since workers wait; one that ends within
 * STEADY_NS makes the next pause twice as long, so that a broker which can't start doesn't keep a
 * core busy.
 */
#pragma once

#include "base/clock.h"
#include "base/macro.h"

#define RESTART_FIRST_NS (100 * NSEC_PER_MSEC)
#define RESTART_MAX_NS (10 * NSEC_PER_SEC)
#define RESTART_STEADY_NS (10 * NSEC_PER_SEC)

struct restart {
    uint64_t started_ns;
    uint64_t pause_ns; /* before the next start; 0: none was needed yet */
};

void restart_started(struct restart *restart, uint64_t now_ns);
/* When to start again what ended at `now_ns`. */
uint64_t restart_at(struct restart *restart, uint64_t now_ns);
