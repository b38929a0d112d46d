/*
 * Requests of our own, where there is no trace. Seeded: the same parameters give the same requests
 * on every machine whose libm rounds alike.
 *
 *   arrivals   a Poisson process whose rate switches between calm (`rate`) and burst
 *              (`burst_factor` × `rate`); the time spent in each is exponential
 *   prompt     lognormal tokens, clipped to [1, prompt_max]
 *   answer     lognormal tokens, clipped to [1, answer_max]
 *
 * The defaults are near the chat trace that Azure published in 2023 (mean prompt 1,155 tokens, mean
 * answer 211, mean rate 5.5/s, peak 16/s): prompts with median 650 and sigma 1.1, answers with
 * median 140 and sigma 0.9, 4.5/s calm for 30 s on average, bursts of 3 × for 5 s.
 */
#pragma once

#include "client/replay/trace.h"

struct generator_params {
    uint64_t seed;
    uint64_t requests;
    double rate; /* requests/s while it is calm */
    double burst_factor;
    double calm_s, burst_s; /* mean lengths */
    double prompt_median, prompt_sigma;
    double answer_median, answer_sigma;
    uint64_t prompt_max, answer_max;
};

extern const struct generator_params generator_defaults;

/* -ENOMEM. */
int generator_new(const struct generator_params *params, struct trace_reader **ret) _must_check_;
