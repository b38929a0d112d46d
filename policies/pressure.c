/* See pressure.h. */
#include "policies/pressure.h"

#include <assert.h>

#include "base/clock.h"

static const char *const names[] = {
    [PRESSURE_NONE] = "none",
    [PRESSURE_LOW] = "low",
    [PRESSURE_MEDIUM] = "medium",
    [PRESSURE_CRITICAL] = "critical",
};
static_assert(ARRAY_SIZE(names) == PRESSURE_LEVEL_MAX, "every level has a name");

const char *pressure_level_name(enum pressure_level level)
{
    return (unsigned) level < PRESSURE_LEVEL_MAX ? names[level] : "unknown";
}

bool pressure_thresholds_sane(const struct pressure_thresholds *thresholds)
{
    for (unsigned level = PRESSURE_LOW; level < PRESSURE_LEVEL_MAX; level++) {
        if (thresholds->share[level] > PRESSURE_WHOLE || thresholds->stall[level] == 0 ||
            thresholds->share[level] <= MAX(thresholds->share[level - 1], thresholds->hysteresis) ||
            thresholds->stall[level] <= thresholds->stall[level - 1])
            return false;
    }
    return true;
}

/* Highest level that the figures reach; with `fall`, that they hold once it is reached. */
static unsigned level_of(
    const struct pressure_thresholds *thresholds, const struct pressure_figures *figures, bool fall)
{
    uint32_t slack = fall ? thresholds->hysteresis : 0;
    uint32_t part = fall ? 2 : 1;

    for (unsigned level = PRESSURE_CRITICAL; level > PRESSURE_NONE; level--) {
        if (figures->share >= sub_saturate(thresholds->share[level], slack) ||
            figures->stall >= MAX(thresholds->stall[level] / part, 1u) ||
            (level <= PRESSURE_MEDIUM && figures->above_high))
            return level;
    }
    return PRESSURE_NONE;
}

enum pressure_level pressure_reached(
    const struct pressure_thresholds *thresholds, const struct pressure_figures *figures)
{
    return (enum pressure_level) level_of(thresholds, figures, false);
}

bool pressure_update(struct pressure_state *state, const struct pressure_thresholds *thresholds,
    const struct pressure_figures *figures, uint64_t now_ns)
{
    unsigned reached = level_of(thresholds, figures, false);

    if (reached > state->level) {
        *state = (struct pressure_state){.level = (uint8_t) reached};
        return true;
    }
    if (level_of(thresholds, figures, true) >= state->level) {
        state->falling = false;
        return false;
    }
    if (!state->falling) {
        state->falling = true;
        state->falling_ns = now_ns;
    }
    if (sub_saturate(now_ns, state->falling_ns) < thresholds->dwell_ns)
        return false;
    state->level--;
    state->falling = level_of(thresholds, figures, true) < state->level;
    state->falling_ns = now_ns;
    return true;
}

uint64_t pressure_due(
    const struct pressure_state *state, const struct pressure_thresholds *thresholds)
{
    if (!state->falling)
        return CLOCK_NEVER;
    return add_saturate(state->falling_ns, thresholds->dwell_ns);
}

uint64_t pressure_headroom(const struct pressure_view *view)
{
    uint64_t own = MIN(sub_saturate(view->min, view->used), view->ready);
    uint64_t shared =
        sub_saturate(sub_saturate(view->ready, view->others_unused_min), view->reserved);
    uint64_t grantable = MAX(own, shared);

    return add_saturate(view->cached, MIN(sub_saturate(view->max, view->used), grantable));
}

uint32_t pressure_share(uint64_t used, uint64_t left)
{
    unsigned __int128 whole = (unsigned __int128) used + left;

    return whole == 0 ? PRESSURE_WHOLE
                      : (uint32_t) ((unsigned __int128) used * PRESSURE_WHOLE / whole);
}
