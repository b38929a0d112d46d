/* See tier_slots.h. A bit above the lowest level is set if and only if the word below isn't 0. */
#include "daemon/tier_slots.h"

#include <errno.h>

_Static_assert(UINT64_C(1) << (6 * TIER_SLOTS_LEVELS) == TIER_SLOTS_MAX, "64 to the levels");

static uint32_t words_for(uint32_t bits)
{
    return bits / 64 + (bits % 64 != 0 ? 1 : 0);
}

static void bits_fill(uint64_t *words, uint32_t bits)
{
    for (uint32_t i = 0; i < bits / 64; i++)
        words[i] = UINT64_MAX;
    if (bits % 64 != 0)
        words[bits / 64] = UINT64_MAX >> (64 - bits % 64);
}

int tier_slots_init(struct tier_slots *slots, uint32_t count)
{
    uint64_t *words;
    size_t total = 0;

    if (count == 0 || count > TIER_SLOTS_MAX)
        return -EINVAL;
    for (uint32_t level = 0, bits = count; level < TIER_SLOTS_LEVELS; level++) {
        bits = words_for(bits);
        total += bits;
    }
    words = calloc(total, sizeof(*words));
    if (words == NULL)
        return -ENOMEM;
    *slots = (struct tier_slots){.count = count};
    for (uint32_t level = 0, bits = count; level < TIER_SLOTS_LEVELS; level++) {
        slots->levels[level] = words;
        bits_fill(words, bits);
        bits = words_for(bits);
        words += bits;
    }
    return 0;
}

void tier_slots_done(struct tier_slots *slots)
{
    free(slots->levels[0]);
    *slots = (struct tier_slots){0};
}

static void slot_take(struct tier_slots *slots, uint32_t slot)
{
    for (uint32_t level = 0, bit = slot; level < TIER_SLOTS_LEVELS; level++, bit /= 64) {
        uint64_t *word = &slots->levels[level][bit / 64];

        *word &= ~(UINT64_C(1) << bit % 64);
        if (*word != 0)
            break;
    }
    slots->used++;
}

uint32_t tier_slots_take(struct tier_slots *slots)
{
    uint32_t at = 0;

    for (unsigned level = TIER_SLOTS_LEVELS; level-- > 0;)
        at = at * 64 + (uint32_t) __builtin_ctzll(slots->levels[level][at]);
    slot_take(slots, at);
    return at;
}

int tier_slots_claim(struct tier_slots *slots, uint32_t slot)
{
    if (slot >= slots->count || (slots->levels[0][slot / 64] >> slot % 64 & 1) == 0)
        return -EINVAL;
    slot_take(slots, slot);
    return 0;
}

int tier_slots_give(struct tier_slots *slots, uint32_t slot)
{
    if (slot >= slots->count || (slots->levels[0][slot / 64] >> slot % 64 & 1) != 0)
        return -EINVAL;
    for (uint32_t level = 0, bit = slot; level < TIER_SLOTS_LEVELS; level++, bit /= 64)
        slots->levels[level][bit / 64] |= UINT64_C(1) << bit % 64;
    slots->used--;
    return 0;
}
