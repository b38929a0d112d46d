/*
 * Table of objects under numbers that are used again, with a generation that tells an object from
 * its successor. Objects never move. Memory grows by pages as it is needed and is kept for reuse.
 */
#pragma once

#include "base/macro.h"

#define SLOTS_PAGE_ITEMS 256

/* First member of every object in a table. */
struct slot {
    uint32_t number;
    uint32_t generation; /* never 0 */
    uint32_t next;       /* number of the next changed or free one */
    bool used;
    bool changed; /* in the list of changes; free only once it was taken from there */
};

struct slots {
    size_t item_bytes;
    uint32_t limit; /* objects at most */
    uint32_t used;
    uint32_t high; /* numbers ever used are below it */
    uint32_t first_free;
    uint32_t changed_first, changed_last;
    uint32_t page_count;
    void **pages;
};

enum slots_result { SLOTS_OK, SLOTS_FULL };

void slots_init(struct slots *slots, size_t item_bytes, uint32_t limit);
/* Frees the memory; the objects must have let go of theirs. */
void slots_done(struct slots *slots);
/* Zeroed but for its slot. SLOTS_FULL at the limit, -ENOMEM. */
int slots_take(struct slots *slots, void **ret_item) _must_check_;
void slots_give(struct slots *slots, void *item);
/* Puts the object into the list of changes, unless it is there. O(1), needs no memory. */
void slots_change(struct slots *slots, void *item);
/*
 * Takes the first of the list, in the order of first changes; NULL when it is empty. One that was
 * given back since is not `used`, has the generation that its successor will have, and nothing but
 * its slot means anything.
 */
const void *slots_changed_next(struct slots *slots);

/*
 * To fill an empty table from records: the object under that number, zeroed but for its slot, or,
 * unless `used`, the generation of its successor. -EEXIST, -EINVAL for what can't be, -ENOMEM.
 * slots_restore_end() frees the numbers below the highest one that were not restored, and gives
 * those that nothing is known of this generation.
 */
int slots_restore(struct slots *slots, uint32_t number, uint32_t generation, bool used,
    void **ret_item) _must_check_;
void slots_restore_end(struct slots *slots, uint32_t generation);
/* NULL where there is none in use. */
void *slots_at(const struct slots *slots, uint32_t number);
/* Whatever was under a number that was ever used. */
void *slots_item(const struct slots *slots, uint32_t number);
void *slots_find(const struct slots *slots, uint64_t id);

/* Generation in the upper half, number + 1 in the lower: 0 is no id. */
static inline uint64_t slot_id(const struct slot *slot)
{
    return (uint64_t) slot->generation << 32 | ((uint64_t) slot->number + 1);
}
/* Number behind an id's own, for walks that go on where they stopped; 0 for id 0. */
static inline uint32_t slot_number_after(uint64_t id)
{
    return (uint32_t) id;
}
