/* The one place that reads the real clock. */
#include "base/clock.h"

#include <time.h>

static uint64_t monotonic_now(const struct clock *clock)
{
    struct timespec ts;

    (void) clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t) ts.tv_sec * NSEC_PER_SEC + (uint64_t) ts.tv_nsec;
}

const struct clock clock_monotonic = {.now = monotonic_now};
