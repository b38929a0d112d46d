/* Freed numbers form a list through the objects; a new number is cut only when it is empty. Changed
 * objects form another through the same member: one in both is in that of changes first. */
#include "daemon/core/slots.h"

#include <errno.h>
#include <string.h>

#define NO_SLOT UINT32_MAX

void slots_init(struct slots *slots, size_t item_bytes, uint32_t limit)
{
    *slots = (struct slots){
        .item_bytes = item_bytes,
        .limit = limit,
        .first_free = NO_SLOT,
        .changed_first = NO_SLOT,
        .changed_last = NO_SLOT,
    };
}

void slots_done(struct slots *slots)
{
    for (uint32_t i = 0; i < slots->page_count; i++)
        free(slots->pages[i]);
    free(slots->pages);
    *slots = (struct slots){0};
}

static struct slot *slot_of(const struct slots *slots, uint32_t number)
{
    char *page = slots->pages[number / SLOTS_PAGE_ITEMS];

    return (void *) (page + (number % SLOTS_PAGE_ITEMS) * slots->item_bytes);
}

static int page_add(struct slots *slots)
{
    void **pages = reallocarray(slots->pages, slots->page_count + 1, sizeof(void *));

    if (!pages)
        return -ENOMEM;
    slots->pages = pages;
    pages[slots->page_count] = calloc(SLOTS_PAGE_ITEMS, slots->item_bytes);
    if (!pages[slots->page_count])
        return -ENOMEM;
    slots->page_count++;
    return 0;
}

int slots_take(struct slots *slots, void **ret_item)
{
    uint32_t number = slots->first_free, generation = 1;
    struct slot *slot;

    if (slots->used >= slots->limit)
        return SLOTS_FULL;
    if (number == NO_SLOT) {
        if (slots->high >= slots->limit)
            return SLOTS_FULL; /* numbers wait in the list of changes */
        if (slots->high / SLOTS_PAGE_ITEMS == slots->page_count) {
            int r = page_add(slots);
            if (r < 0)
                return r;
        }
        number = slots->high++;
        slot = slot_of(slots, number);
    } else {
        slot = slot_of(slots, number);
        generation = slot->generation;
        slots->first_free = slot->next;
    }
    memset(slot, 0, slots->item_bytes);
    *slot = (struct slot){.number = number, .generation = generation, .used = true};
    slots->used++;
    *ret_item = slot;
    return SLOTS_OK;
}

static void slot_free(struct slots *slots, struct slot *slot)
{
    slot->next = slots->first_free;
    slots->first_free = slot->number;
}

void slots_give(struct slots *slots, void *item)
{
    struct slot *slot = item;

    slot->used = false;
    slot->generation = slot->generation == UINT32_MAX ? 1 : slot->generation + 1;
    slots->used--;
    if (!slot->changed)
        slot_free(slots, slot);
}

void slots_change(struct slots *slots, void *item)
{
    struct slot *slot = item;

    if (slot->changed)
        return;
    slot->changed = true;
    slot->next = NO_SLOT;
    if (slots->changed_last == NO_SLOT)
        slots->changed_first = slot->number;
    else
        slot_of(slots, slots->changed_last)->next = slot->number;
    slots->changed_last = slot->number;
}

const void *slots_changed_next(struct slots *slots)
{
    struct slot *slot;

    if (slots->changed_first == NO_SLOT)
        return NULL;
    slot = slot_of(slots, slots->changed_first);
    slots->changed_first = slot->next;
    if (slots->changed_first == NO_SLOT)
        slots->changed_last = NO_SLOT;
    slot->changed = false;
    if (!slot->used)
        slot_free(slots, slot);
    return slot;
}

int slots_restore(
    struct slots *slots, uint32_t number, uint32_t generation, bool used, void **ret_item)
{
    struct slot *slot;

    if (number >= slots->limit || generation == 0)
        return -EINVAL;
    while (number / SLOTS_PAGE_ITEMS >= slots->page_count) {
        int r = page_add(slots);

        if (r < 0)
            return r;
    }
    slots->high = MAX(slots->high, number + 1);
    slot = slot_of(slots, number);
    if (slot->generation != 0)
        return -EEXIST;
    *slot = (struct slot){.number = number, .generation = generation, .used = used};
    slots->used += used;
    *ret_item = slot;
    return 0;
}

void slots_restore_end(struct slots *slots, uint32_t generation)
{
    for (uint32_t i = slots->high; i-- > 0;) {
        struct slot *slot = slot_of(slots, i);

        if (slot->used || slot->changed)
            continue;
        slot->number = i;
        if (slot->generation == 0)
            slot->generation = generation;
        slot_free(slots, slot);
    }
}

void *slots_at(const struct slots *slots, uint32_t number)
{
    struct slot *slot;

    if (number >= slots->high)
        return NULL;
    slot = slot_of(slots, number);
    return slot->used ? slot : NULL;
}

void *slots_item(const struct slots *slots, uint32_t number)
{
    return slot_of(slots, number);
}

void *slots_find(const struct slots *slots, uint64_t id)
{
    struct slot *slot;

    if ((uint32_t) id == 0)
        return NULL;
    slot = slots_at(slots, (uint32_t) id - 1);
    return slot && slot->generation == id >> 32 ? slot : NULL;
}
