/*
 * Levels of pressure: how near a tenant or a device is to having nothing left.
 *
 * A pure function of what the ledger says, with hysteresis and a dwell time: a level rises at once
 * and falls one by one, when the figures have been below its threshold less the hysteresis for the
 * dwell time without a break. Shares are in millionths, sizes in bytes, times in ns; time that goes
 * back is no time.
 */
#pragma once

#include "base/macro.h"

#define PRESSURE_WHOLE 1000000u

enum pressure_level {
    PRESSURE_NONE,
    PRESSURE_LOW,
    PRESSURE_MEDIUM,
    PRESSURE_CRITICAL,
    PRESSURE_LEVEL_MAX
};

const char *pressure_level_name(enum pressure_level level);

struct pressure_thresholds {
    uint32_t share[PRESSURE_LEVEL_MAX]; /* a level holds from its share on; that of NONE is 0 … */
    uint32_t stall[PRESSURE_LEVEL_MAX]; /* … or from so much `some avg10` on */
    uint32_t hysteresis;                /* of the share; a stall falls at half its threshold */
    uint64_t dwell_ns;
};

/* Shares that rise from level to level, the lowest above the hysteresis: else a level that was
 * reached could never fall again. */
bool pressure_thresholds_sane(const struct pressure_thresholds *thresholds);

/* What one instant says. */
struct pressure_figures {
    uint32_t share;
    uint32_t stall;
    bool above_high; /* above MemoryHigh: at least MEDIUM */
};

/* The level that these figures lift to. */
enum pressure_level pressure_reached(
    const struct pressure_thresholds *thresholds, const struct pressure_figures *figures);

/* Zeroed: NONE. */
struct pressure_state {
    uint8_t level;       /* enum pressure_level */
    bool falling;        /* the figures are below the level's threshold less the hysteresis … */
    uint64_t falling_ns; /* … since then */
};

/* True when the level changed. */
bool pressure_update(struct pressure_state *state, const struct pressure_thresholds *thresholds,
    const struct pressure_figures *figures, uint64_t now_ns);
/* When it will fall if the figures stay as they are: CLOCK_NEVER if they hold it up. */
uint64_t pressure_due(
    const struct pressure_state *state, const struct pressure_thresholds *thresholds);

/* One tenant on one device. */
struct pressure_view {
    uint64_t used;   /* charged to it, what it gave back and is kept for it included, what is on
                        its way to the device not */
    uint64_t cached; /* that part of it */
    uint64_t min, max;
    uint64_t ready;             /* of the device: what nobody owns, what comes back to it, and what
                                   the broker alone has to let go of, `cached` not counted */
    uint64_t others_unused_min; /* sum of max(0, MemoryMin - used) of the other tenants */
    uint64_t reserved;          /* asked for by waiting requests that go before its own */
};

/* What admission would grant it now without anybody giving anything. */
uint64_t pressure_headroom(const struct pressure_view *view);
/* used / (used + left), in millionths; all of it where there is neither. Rounded down. */
uint32_t pressure_share(uint64_t used, uint64_t left);
