/*
 * Rows of `./dev bench`: a value, what it is held against, and whether the budget is met. A floor
 * is measured in the same run as the value, so that the ratio means the same on every machine.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct bench_row {
    const char *name; /* of static storage, like `unit`; never renamed */
    double value;
    const char *unit;
    double floor; /* in the same unit */
    double ratio; /* value / floor */
    double budget;
    bool met;
};

/*
 * Each measures and fills rows, at most `max`; how many, or a negative errno. Blocks for a second
 * or so.
 */

/*
 * `core_step_scaling`: ns for a lease request and a release, two steps of the core, at 10^2 to 10^5
 * existing leases; the value is the slowest, the floor the fastest of the four.
 */
int bench_core_step_scaling(struct bench_row *rows, size_t max);
