/*
 * Which slots of a slab are free: a tree of bitmaps, 64 bits to a word, each bit of a higher level
 * saying that the word below has a free slot. Four levels cover TIER_SLOTS_MAX: taking and giving
 * back look at four words, whatever the number of slots.
 */
#pragma once

#include "base/macro.h"

#define TIER_SLOTS_LEVELS 4
#define TIER_SLOTS_MAX (UINT32_C(1) << 24)

struct tier_slots {
    uint32_t count, used;
    uint64_t *levels[TIER_SLOTS_LEVELS]; /* [0]: one bit a slot, set when free; one allocation */
};

/* `count` free slots, 1 to TIER_SLOTS_MAX. -ENOMEM. */
int tier_slots_init(struct tier_slots *slots, uint32_t count) _must_check_;
void tier_slots_done(struct tier_slots *slots);

/* The lowest free slot; at least one must be free. */
uint32_t tier_slots_take(struct tier_slots *slots);
/* That one. -EINVAL when it is taken, or none. */
int tier_slots_claim(struct tier_slots *slots, uint32_t slot) _must_check_;
/* -EINVAL when `slot` isn't taken. */
int tier_slots_give(struct tier_slots *slots, uint32_t slot) _must_check_;
