/*
 * Several sequences at once, as a serving engine runs them: a batch of them is held and computed
 * for some tokens, then the next. What isn't in the batch is cold, and its bytes may go elsewhere.
 */
#pragma once

#include "tests/compute/kv_arena.h"
#include "tests/compute/sequence.h"

struct engine_params {
    uint32_t sequences, length; /* tokens of each in the end */
    uint32_t batch;             /* held together */
    uint32_t turn;              /* tokens of each before the next batch */
    uint32_t pause_ms;          /* between turns: a slower model */
    bool progress;              /* a line each second on standard error */
    bool compare;               /* with the same on plain memory, step by step */
};

struct engine {
    struct engine_params params;
    const struct transformer *model; /* borrowed */
    struct kv_space *space;          /* borrowed; NULL: plain memory */
    struct sequence *sequences;
    uint64_t recomputed; /* sequences that began anew */
};

/* 0 or -ENOMEM; engine_done() in any case. */
int engine_init(struct engine *engine, const struct engine_params *params,
    const struct transformer *model, struct kv_space *space) _must_check_;
void engine_done(struct engine *engine);
/* To the end of all sequences. 0, -EIO, or -ETIMEDOUT when no sequence got memory for a minute. */
int engine_run(struct engine *engine) _must_check_;
