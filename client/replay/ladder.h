/*
 * What a worker does about advice, as arithmetic: how large its batch may be, what a token costs,
 * how much of a prompt is read, which of the finished sequences go. Pure; the worker's lock guards
 * it.
 */
#pragma once

#include "base/macro.h"
#include "client/gmb.h"

#define LADDER_STEPS (GMB_DEGRADE_PAUSE_NEW + 1) /* by enum gmb_degrade; 0 is none */

struct ladder {
    uint32_t batch_limit;    /* as the worker was told when it began; UINT32_MAX: none */
    uint32_t batch;          /* requests that may run at once now */
    double batch_factor;     /* 1: not reduced */
    unsigned density;        /* tokens in the place of one: 2 with 8-bit KV */
    uint64_t context_tokens; /* of a prompt at most; UINT64_MAX: all */
    double drop_share;       /* of finished sequences, 0 to 1 */
    double drop_debt;        /* what of that is not a whole sequence yet */
    bool paused;             /* nothing new begins */
    bool in_force[LADDER_STEPS];
};

void ladder_init(struct ladder *ladder, uint32_t batch_limit);

/* Takes over all of an advice: what isn't in it is as if it never was. `running` is the number of
 * requests that run now, from which a batch without limit is reduced. */
void ladder_apply(struct ladder *ladder, const struct gmb_advice *advice, uint32_t running);

/* Of `count` finished sequences, those that are to go at once. */
size_t ladder_drop_now(const struct ladder *ladder, size_t count);
/* Whether the sequence that has just finished is to go: the share of them, evenly. */
bool ladder_drop_next(struct ladder *ladder);
