/*
 * A growing array of slots with a free list through it. A handle is
 * generation (32 bits) | slot + 1 (28 bits) | type (4 bits); a slot's generation counts its
 * removals.
 */
#include "gpu/sim/handle.h"

#include <assert.h>

#define TYPE_BITS 4
#define SLOT_BITS 28
#define SLOTS_MAX ((1u << SLOT_BITS) - 1)

static_assert(SIM_HANDLE_MAX <= 1 << TYPE_BITS, "a type fits in its bits");

struct slot {
    void *object; /* NULL: free */
    enum sim_handle_type type;
    uint32_t generation;
    uint32_t next_free; /* slot + 1, 0 at the end */
};

static struct slot *slots;
static uint32_t slots_count;
static uint32_t slots_room;
static uint32_t first_free; /* slot + 1, 0: none */

static bool slots_grow(void)
{
    uint32_t room = slots_room == 0 ? 64 : slots_room * 2;
    struct slot *grown;

    if (room > SLOTS_MAX)
        return false;
    grown = realloc(slots, room * sizeof(*slots));
    if (grown == NULL)
        return false;
    slots = grown;
    slots_room = room;
    return true;
}

static struct slot *slot_take(void)
{
    struct slot *slot;

    if (first_free != 0) {
        slot = &slots[first_free - 1];
        first_free = slot->next_free;
        return slot;
    }
    if (slots_count == slots_room && !slots_grow())
        return NULL;
    slot = &slots[slots_count++];
    *slot = (struct slot){0};
    return slot;
}

static struct slot *slot_find(enum sim_handle_type type, const void *handle)
{
    uint64_t value = (uintptr_t) handle;
    uint64_t number = value >> TYPE_BITS & SLOTS_MAX;
    struct slot *slot;

    if (number == 0 || number > slots_count || (value & ((1u << TYPE_BITS) - 1)) != type)
        return NULL;
    slot = &slots[number - 1];
    if (slot->object == NULL || slot->type != type || slot->generation != value >> 32)
        return NULL;
    return slot;
}

void *sim_handle_add(enum sim_handle_type type, void *object)
{
    struct slot *slot = slot_take();
    uint64_t number;

    assert(object != NULL);
    if (slot == NULL)
        return NULL;
    slot->object = object;
    slot->type = type;
    number = (uint64_t) (slot - slots) + 1;
    return (void *) (uintptr_t) ((uint64_t) slot->generation << 32 | number << TYPE_BITS | type);
}

void *sim_handle_get(enum sim_handle_type type, const void *handle)
{
    struct slot *slot = slot_find(type, handle);

    return slot == NULL ? NULL : slot->object;
}

void *sim_handle_remove(enum sim_handle_type type, const void *handle)
{
    struct slot *slot = slot_find(type, handle);

    if (slot == NULL)
        return NULL;
    slot->generation++;
    slot->next_free = first_free;
    first_free = (uint32_t) (slot - slots) + 1;
    return TAKE_PTR(slot->object);
}
