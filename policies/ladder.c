/* See ladder.h. */
#include "policies/ladder.h"

#include "base/clock.h"

static void step_take(struct ladder_rung *to, const struct ladder_rung *from)
{
    to->present |= from->present;
    if (ladder_rung_has(from, LADDER_REDUCE_BATCH))
        to->batch_factor = from->batch_factor;
    if (ladder_rung_has(from, LADDER_DROP_PREFIX_CACHE))
        to->prefix_share = from->prefix_share;
    if (ladder_rung_has(from, LADDER_QUANTIZE_KV))
        to->format = from->format;
    if (ladder_rung_has(from, LADDER_SHRINK_CONTEXT))
        to->context_tokens = from->context_tokens;
    if (ladder_rung_has(from, LADDER_REJECT_BELOW_PRIORITY))
        to->reject_below = from->reject_below;
}

struct ladder_rung ladder_merge(const struct ladder *ladder, enum pressure_level rung)
{
    struct ladder_rung merged = {0};

    for (unsigned i = PRESSURE_LOW; i <= (unsigned) rung && i < PRESSURE_LEVEL_MAX; i++)
        step_take(&merged, &ladder->rungs[i]);
    return merged;
}

bool ladder_update(
    struct ladder_state *state, enum pressure_level level, uint64_t dwell_ns, uint64_t now_ns)
{
    if ((unsigned) level >= state->rung) {
        bool rises = (unsigned) level > state->rung;

        *state = (struct ladder_state){.rung = (uint8_t) level};
        return rises;
    }
    if (!state->falling) {
        state->falling = true;
        state->falling_ns = now_ns;
    }
    if (sub_saturate(now_ns, state->falling_ns) < dwell_ns)
        return false;
    state->rung--;
    state->falling = (unsigned) level < state->rung;
    state->falling_ns = now_ns;
    return true;
}

uint64_t ladder_due(const struct ladder_state *state, uint64_t dwell_ns)
{
    return state->falling ? add_saturate(state->falling_ns, dwell_ns) : CLOCK_NEVER;
}
