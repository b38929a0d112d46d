/*
 * What an eviction policy learns of reuse: for each class of pages, how likely a page is used
 * again, by the time since its last use; and from that, what a place in the cache is worth to it.
 *
 * A life begins with a use of a page and ends with its next use (a hit, whether the page was cached
 * or not) or is cut off when the page is forgotten. With lives that still go on counted up to their
 * present age, hits ÷ lives that reached an age is the hazard there (Kaplan & Meier 1958), drawn
 * towards that of all classes together while a class has seen little.
 *
 * The worth of a page of age a is its Gittins index (Gittins 1979): the best ratio, over all
 * horizons w, of the chance of a hit within w to the expected time that the place is held until
 * then. Keeping the pages of largest index maximises hits per place and time.
 */
#pragma once

#include "base/macro.h"

#define GITTINS_CLASSES 81
#define GITTINS_BINS                                                                               \
    48 /* of age, each 1.3 times as wide as the one before: up to 10^6 time units */

struct gittins_model {
    double edges[GITTINS_BINS + 1];                 /* age where a bin starts */
    double hits[GITTINS_CLASSES][GITTINS_BINS];     /* lives that ended in a use */
    double cut[GITTINS_CLASSES][GITTINS_BINS];      /* lives that were cut off */
    uint32_t going[GITTINS_CLASSES][GITTINS_BINS];  /* lives that go on: set before learning */
    uint16_t rank[GITTINS_CLASSES][GITTINS_BINS];   /* by worth: 0 goes first */
    uint16_t state[GITTINS_CLASSES * GITTINS_BINS]; /* by rank: class × GITTINS_BINS + bin */
};

void gittins_model_init(struct gittins_model *model);
unsigned gittins_model_bin(const struct gittins_model *model, uint64_t age);
/* Computes `rank` from what was counted, then lets the past fade by a hundredth. */
void gittins_model_learn(struct gittins_model *model);
