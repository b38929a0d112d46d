/*
 * A prefix cache of a number of blocks, played over a trace that names the blocks of its prompts:
 * what share of them one eviction policy finds cached.
 */
#pragma once

#include "client/replay/trace.h"
#include "policies/eviction.h"

/* A policy numbers its slots up to here. */
#define PREFIX_CACHE_BLOCKS_MAX (UINT64_C(1) << 31)

struct prefix_result {
    uint64_t references; /* blocks of all requests */
    uint64_t distinct;   /* blocks that differ */
    uint64_t hits;       /* references that were cached, and all those before them in the prompt */
};

/* hits / references, from 0 to 1. */
double prefix_hit_ratio(const struct prefix_result *result);

/* Plays the whole trace with `blocks` (1 … PREFIX_CACHE_BLOCKS_MAX) cached at most. -ENODATA for a
 * trace without block ids, -E2BIG for more than a policy can number, -ENOMEM. */
int prefix_cache_play(const struct trace *trace, const struct eviction_ops *ops, uint64_t blocks,
    struct prefix_result *ret) _must_check_;
