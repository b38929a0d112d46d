/*
 * Seeded randomness for what must be repeatable: splitmix64, whose one word of state makes a
 * stream for each purpose cheap. Not for secrets.
 */
#pragma once

#include <math.h>

#include "kernels/pattern.h"

struct random {
    uint64_t seed;
    uint64_t drawn;
};

static inline uint64_t random_word(struct random *random)
{
    return pattern_word(random->seed, random->drawn++);
}

/* Uniform over (0, 1]: 53 bits, never 0, so that a logarithm of it is finite. */
static inline double random_unit(struct random *random)
{
    return ((double) (random_word(random) >> 11) + 1) * 0x1p-53;
}

static inline double random_exponential(struct random *random, double mean)
{
    return -mean * log(random_unit(random));
}

/* Box and Muller (1958); the second value of the pair is dropped. */
static inline double random_normal(struct random *random)
{
    double radius = sqrt(-2 * log(random_unit(random)));

    return radius * cos(2 * M_PI * random_unit(random));
}
