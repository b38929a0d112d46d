/* The clock is an argument. clock.c is the one file that reads the real one. */
#pragma once

#include <stdint.h>

#define NSEC_PER_USEC UINT64_C(1000)
#define NSEC_PER_MSEC UINT64_C(1000000)
#define NSEC_PER_SEC UINT64_C(1000000000)

/* "Never": a deadline that no clock reaches. */
#define CLOCK_NEVER UINT64_MAX

/*
 * Nanoseconds since an arbitrary point; never goes back. `now` must be callable from any thread.
 * Tests and the simulation put their own here.
 */
struct clock {
    uint64_t (*now)(const struct clock *clock);
};

static inline uint64_t clock_now(const struct clock *clock)
{
    return clock->now(clock);
}

/* CLOCK_MONOTONIC. */
extern const struct clock clock_monotonic;
