/*
 * The ladder: what a tenant's workers are asked to do at each level of pressure.
 *
 * Each level has a rung of steps. A rung's steps hold as well as those of the rungs below it; of
 * the same step the higher rung's value holds. The rung in force rises to the tenant's level at
 * once and comes down one by one, each after the dwell time in which the level was below it.
 *
 * Pure: time is an argument, in ns, and time that goes back is no time.
 */
#pragma once

#include "policies/pressure.h"

/* As DegradeAction of proto/gmb.proto. */
enum ladder_action {
    LADDER_NONE,
    LADDER_REDUCE_BATCH,
    LADDER_QUANTIZE_KV,
    LADDER_SHRINK_CONTEXT,
    LADDER_DROP_PREFIX_CACHE,
    LADDER_REJECT_BELOW_PRIORITY,
    LADDER_PAUSE_NEW,
    LADDER_ACTION_MAX
};

enum ladder_format { LADDER_INT8 = 1, LADDER_FP8 = 2 };

/* As they are written in the configuration; "none" and "unknown" are no steps. */
const char *ladder_action_name(enum ladder_action action);

/* Steps together; zeroed: none. Compared with memcmp(). */
struct ladder_rung {
    uint32_t present;        /* a bit for each enum ladder_action */
    uint32_t batch_factor;   /* REDUCE_BATCH: millionths, above 0 and below all */
    uint32_t prefix_share;   /* DROP_PREFIX_CACHE: millionths, above 0 */
    uint32_t format;         /* QUANTIZE_KV: enum ladder_format */
    uint32_t context_tokens; /* SHRINK_CONTEXT: above 0 */
    uint32_t reject_below;   /* REJECT_BELOW_PRIORITY: above 0 */
};

/* By level; that of NONE stays empty. */
struct ladder {
    struct ladder_rung rungs[PRESSURE_LEVEL_MAX];
};

#define LADDER_REASON_BYTES 192

/*
 * Steps as `reduce-batch 0.75, drop-prefix-cache 0.5`; "" is none. -EINVAL with a sentence in
 * `reason` that names the step that is to blame; `ret` is written on success only.
 */
int ladder_rung_parse(
    const char *text, struct ladder_rung *ret, char reason[LADDER_REASON_BYTES]) _must_check_;

static inline bool ladder_rung_has(const struct ladder_rung *rung, enum ladder_action action)
{
    return (rung->present >> action & 1) != 0;
}

/* What holds on `rung`: its steps and those below it. */
struct ladder_rung ladder_merge(const struct ladder *ladder, enum pressure_level rung);

/* Zeroed: on no rung. */
struct ladder_state {
    uint8_t rung; /* enum pressure_level */
    bool falling; /* the level is below it … */
    uint64_t falling_ns;
};

/* True when the rung changed. */
bool ladder_update(
    struct ladder_state *state, enum pressure_level level, uint64_t dwell_ns, uint64_t now_ns);
/* When it will come down if the level stays: CLOCK_NEVER if that holds it. */
uint64_t ladder_due(const struct ladder_state *state, uint64_t dwell_ns);
