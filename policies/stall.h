/*
 * Stall accounting as the kernel's PSI has it (kernel/sched/psi.c, include/linux/sched/loadavg.h).
 *
 * Two lines: `some`, while at least one client is stalled, and `full`, while at least one is and no
 * active one isn't. Each has a total and three running averages, sampled once each STALL_PERIOD_NS.
 *
 * Where the kernel's worker looks every 2 s, this is brought up to date by whoever changes the
 * state or wants to read it: between two changes the state is constant, so that every period in
 * between can be closed afterwards with its exact sample. Only while a line is on must somebody
 * look once a period: a gap of several periods then is a clock that jumped or a broker that was
 * stopped. Its time counts for the total, and for the averages as one period beyond the one that
 * runs.
 *
 * Pure: time is an argument, in ns, and time that goes back is no time.
 */
#pragma once

#include "base/macro.h"

#define STALL_PERIOD_NS UINT64_C(2000000000)

enum stall_line { STALL_SOME, STALL_FULL, STALL_LINE_MAX };
enum stall_average { STALL_AVG10, STALL_AVG60, STALL_AVG300, STALL_AVERAGE_MAX };

/* Zeroed but for `at_ns`: no stall ever. */
struct stall {
    uint64_t at_ns; /* up to date until then */
    uint64_t total_ns[STALL_LINE_MAX];
    uint32_t sample_ns[STALL_LINE_MAX];                  /* in the period that runs … */
    uint32_t elapsed_ns;                                 /* … which is that old */
    uint32_t average[STALL_LINE_MAX][STALL_AVERAGE_MAX]; /* percent × 2^11 */
    bool on[STALL_LINE_MAX];
};

/* Brings it up to date. */
void stall_advance(struct stall *stall, uint64_t now_ns);
/* The same, and from now on so many of the active clients are stalled. */
void stall_change(struct stall *stall, uint64_t now_ns, uint32_t stalled, uint32_t active);
/* A running average in millionths of the time, up to date as of the last call. */
uint32_t stall_average(const struct stall *stall, enum stall_line line, enum stall_average average);
/* When to look again at the latest: the end of the period while a line is on or an average that is
 * shown (avg10, avg60) is above zero; else CLOCK_NEVER. */
uint64_t stall_due(const struct stall *stall);

/*
 * A trigger's window, as struct psi_window: growth within the last `size_ns`, where the part that
 * lies before the current window counts as far as it still reaches into it.
 */
struct stall_window {
    uint64_t size_ns, start_ns, start_value, previous_growth;
};

void stall_window_reset(struct stall_window *window, uint64_t now_ns, uint64_t value);
/* Growth of `value` (a total, in any unit) over the window that ends now. */
uint64_t stall_window_update(struct stall_window *window, uint64_t now_ns, uint64_t value);
