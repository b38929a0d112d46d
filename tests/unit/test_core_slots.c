/* slots.h: numbers come back, ids don't; the limit holds; objects stay where they are. */
#include "daemon/core/slots.h"

#include <errno.h>

#include "tests/unit/unit.h"

struct thing {
    struct slot slot;
    uint64_t value;
};

static struct thing *take(struct slots *slots)
{
    void *item = NULL;

    ck_assert_int_eq(slots_take(slots, &item), SLOTS_OK);
    return item;
}

START_TEST(an_id_is_never_mistaken_for_its_successor)
{
    struct slots slots;
    struct thing *first, *second;
    uint64_t id;

    slots_init(&slots, sizeof(struct thing), 10);
    first = take(&slots);
    id = slot_id(&first->slot);
    ck_assert_uint_ne(id, 0);
    ck_assert_ptr_eq(slots_find(&slots, id), first);
    first->value = 42;
    slots_give(&slots, first);
    ck_assert_ptr_null(slots_find(&slots, id));
    second = take(&slots);
    ck_assert_ptr_eq(second, first); /* the same place … */
    ck_assert_uint_eq(second->value, 0);
    ck_assert_uint_ne(slot_id(&second->slot), id); /* … under another id */
    ck_assert_ptr_null(slots_find(&slots, id));
    slots_done(&slots);
}
END_TEST

START_TEST(the_limit_is_exact)
{
    struct slots slots;
    struct thing *last = NULL;
    void *item;

    slots_init(&slots, sizeof(struct thing), 2 * SLOTS_PAGE_ITEMS + 1);
    for (unsigned i = 0; i < 2 * SLOTS_PAGE_ITEMS + 1; i++)
        last = take(&slots);
    ck_assert_int_eq(slots_take(&slots, &item), SLOTS_FULL);
    slots_give(&slots, last);
    ck_assert_ptr_eq(take(&slots), last);
    slots_done(&slots);
}
END_TEST

START_TEST(ids_without_an_object_find_nothing)
{
    struct slots slots;

    slots_init(&slots, sizeof(struct thing), 10);
    ck_assert_ptr_null(slots_find(&slots, 0));
    ck_assert_ptr_null(slots_find(&slots, 1));
    (void) take(&slots);
    ck_assert_ptr_null(slots_find(&slots, 0));
    ck_assert_ptr_null(slots_find(&slots, UINT64_C(1) << 32));
    ck_assert_ptr_null(slots_find(&slots, UINT64_MAX));
    ck_assert_ptr_null(slots_find(&slots, (UINT64_C(2) << 32) | 1));
    ck_assert_ptr_nonnull(slots_find(&slots, (UINT64_C(1) << 32) | 1));
    ck_assert_ptr_null(slots_at(&slots, UINT32_MAX));
    slots_done(&slots);
}
END_TEST

START_TEST(generations_skip_zero_when_they_wrap)
{
    struct slots slots;
    struct thing *thing;

    slots_init(&slots, sizeof(struct thing), 10);
    thing = take(&slots);
    thing->slot.generation = UINT32_MAX;
    slots_give(&slots, thing);
    ck_assert_uint_eq(take(&slots)->slot.generation, 1);
    slots_done(&slots);
}
END_TEST

START_TEST(changes_come_in_order_and_once)
{
    struct thing *a, *b, *c;
    struct slots slots;

    slots_init(&slots, sizeof(struct thing), 3);
    a = take(&slots);
    b = take(&slots);
    c = take(&slots);
    slots_change(&slots, b);
    slots_change(&slots, a);
    slots_change(&slots, b);
    ck_assert_ptr_eq(slots_changed_next(&slots), b);
    slots_change(&slots, c);
    ck_assert_ptr_eq(slots_changed_next(&slots), a);
    ck_assert_ptr_eq(slots_changed_next(&slots), c);
    ck_assert_ptr_null(slots_changed_next(&slots));
    slots_done(&slots);
}
END_TEST

START_TEST(a_number_is_free_only_when_its_change_was_taken)
{
    const struct slot *changed;
    struct thing *a, *b;
    struct slots slots;
    void *item;

    slots_init(&slots, sizeof(struct thing), 2);
    a = take(&slots);
    b = take(&slots);
    slots_change(&slots, a);
    slots_give(&slots, a);
    ck_assert_ptr_null(slots_at(&slots, 0));
    ck_assert_int_eq(slots_take(&slots, &item), SLOTS_FULL);
    changed = slots_changed_next(&slots);
    ck_assert_ptr_eq(changed, a);
    ck_assert(!changed->used);
    ck_assert_uint_eq(changed->generation, 2);
    ck_assert_ptr_eq(take(&slots), a);
    ck_assert_ptr_ne(a, b);
    slots_done(&slots);
}
END_TEST

START_TEST(a_table_is_filled_from_records)
{
    struct slots slots;
    void *item;

    slots_init(&slots, sizeof(struct thing), 2000);
    ck_assert_int_eq(slots_restore(&slots, 1000, 7, true, &item), 0);
    ck_assert_int_eq(slots_restore(&slots, 1000, 7, true, &item), -EEXIST);
    ck_assert_int_eq(slots_restore(&slots, 2, 5, false, &item), 0);
    ck_assert_int_eq(slots_restore(&slots, 2000, 1, true, &item), -EINVAL);
    ck_assert_int_eq(slots_restore(&slots, 3, 0, true, &item), -EINVAL);
    slots_restore_end(&slots, 100);
    ck_assert_uint_eq(slots.used, 1);
    ck_assert_ptr_nonnull(slots_find(&slots, UINT64_C(7) << 32 | 1001));
    ck_assert_uint_eq(take(&slots)->slot.generation, 100);
    ck_assert_uint_eq(take(&slots)->slot.number, 1);
    ck_assert_uint_eq(take(&slots)->slot.generation, 5);
    slots_done(&slots);
}
END_TEST

UNIT_MAIN("core_slots", an_id_is_never_mistaken_for_its_successor, the_limit_is_exact,
    ids_without_an_object_find_nothing, generations_skip_zero_when_they_wrap,
    changes_come_in_order_and_once, a_number_is_free_only_when_its_change_was_taken,
    a_table_is_filled_from_records)
