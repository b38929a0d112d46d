/*
 * The averages are the kernel's fixed point, calc_load() and calc_load_n() with psi.c's constants;
 * but a sample is taken as a share of 2^11 × 100 and not rounded to whole percents first.
 */
#include "policies/stall.h"

#include "base/clock.h"

#define SHIFT 11
#define FIXED_1 (UINT64_C(1) << SHIFT)
#define WHOLE (100 * FIXED_1)

/* exp(-2 s / 10 s), exp(-2 / 60), exp(-2 / 300), each × FIXED_1: EXP_10s … of psi.c. */
static const uint64_t decay[STALL_AVERAGE_MAX] = {
    [STALL_AVG10] = 1677,
    [STALL_AVG60] = 1981,
    [STALL_AVG300] = 2034,
};

/* calc_load(): a1 = a0 × e + a × (1 − e), rounded up while it rises. */
static uint32_t load_next(uint32_t load, uint64_t factor, uint64_t sample)
{
    uint64_t next = load * factor + sample * (FIXED_1 - factor);

    if (sample >= load)
        next += FIXED_1 - 1;
    return (uint32_t) (next / FIXED_1);
}

/* fixed_power_int(): factor^n, rounded at each step. */
static uint64_t power(uint64_t factor, uint64_t n)
{
    uint64_t result = FIXED_1;

    for (; n > 0; n >>= 1) {
        if ((n & 1) != 0)
            result = (result * factor + (FIXED_1 >> 1)) >> SHIFT;
        factor = (factor * factor + (FIXED_1 >> 1)) >> SHIFT;
    }
    return result;
}

static void period_close(struct stall *stall)
{
    for (unsigned line = 0; line < STALL_LINE_MAX; line++) {
        uint64_t sample = stall->sample_ns[line] * WHOLE / STALL_PERIOD_NS;

        for (unsigned i = 0; i < STALL_AVERAGE_MAX; i++)
            stall->average[line][i] = load_next(stall->average[line][i], decay[i], sample);
        stall->sample_ns[line] = 0;
    }
    stall->elapsed_ns = 0;
}

/* Whole periods in which nothing was stalled. */
static void periods_pass(struct stall *stall, uint64_t count)
{
    for (unsigned i = 0; i < STALL_AVERAGE_MAX; i++) {
        uint64_t factor = power(decay[i], count);

        for (unsigned line = 0; line < STALL_LINE_MAX; line++)
            stall->average[line][i] = (uint32_t) (stall->average[line][i] * factor >> SHIFT);
    }
}

/* Time within the period that runs. */
static void time_pass(struct stall *stall, uint64_t ns)
{
    stall->elapsed_ns += (uint32_t) ns;
    for (unsigned line = 0; line < STALL_LINE_MAX; line++) {
        if (stall->on[line])
            stall->sample_ns[line] += (uint32_t) ns;
    }
}

void stall_advance(struct stall *stall, uint64_t now_ns)
{
    uint64_t left = sub_saturate(now_ns, stall->at_ns);

    if (left == 0)
        return;
    stall->at_ns = now_ns;
    for (unsigned line = 0; line < STALL_LINE_MAX; line++) {
        if (stall->on[line])
            stall->total_ns[line] += left;
    }
    if (left >= STALL_PERIOD_NS - stall->elapsed_ns) {
        uint64_t rest = STALL_PERIOD_NS - stall->elapsed_ns;

        left -= rest;
        time_pass(stall, rest);
        period_close(stall);
        if (!stall->on[STALL_SOME]) {
            periods_pass(stall, left / STALL_PERIOD_NS);
        } else if (left >= STALL_PERIOD_NS) {
            time_pass(stall, STALL_PERIOD_NS);
            period_close(stall);
        }
        left %= STALL_PERIOD_NS;
    }
    time_pass(stall, left);
}

void stall_change(struct stall *stall, uint64_t now_ns, uint32_t stalled, uint32_t active)
{
    stall_advance(stall, now_ns);
    stall->on[STALL_SOME] = stalled > 0;
    stall->on[STALL_FULL] = stalled > 0 && stalled >= active;
}

uint32_t stall_average(const struct stall *stall, enum stall_line line, enum stall_average average)
{
    return (uint32_t) ((uint64_t) stall->average[line][average] * 1000000 / WHOLE);
}

uint64_t stall_due(const struct stall *stall)
{
    if (!stall->on[STALL_SOME] && stall->sample_ns[STALL_SOME] == 0 &&
        stall->average[STALL_SOME][STALL_AVG10] == 0 &&
        stall->average[STALL_SOME][STALL_AVG60] == 0)
        return CLOCK_NEVER;
    return add_saturate(stall->at_ns, STALL_PERIOD_NS - stall->elapsed_ns);
}

void stall_window_reset(struct stall_window *window, uint64_t now_ns, uint64_t value)
{
    window->start_ns = now_ns;
    window->start_value = value;
    window->previous_growth = 0;
}

uint64_t stall_window_update(struct stall_window *window, uint64_t now_ns, uint64_t value)
{
    uint64_t elapsed = sub_saturate(now_ns, window->start_ns);
    uint64_t growth = sub_saturate(value, window->start_value);

    if (elapsed > window->size_ns) {
        stall_window_reset(window, now_ns, value);
        window->previous_growth = growth;
        return growth;
    }
    return add_saturate(growth, (uint64_t) ((unsigned __int128) window->previous_growth *
                                            (window->size_ns - elapsed) / window->size_ns));
}
