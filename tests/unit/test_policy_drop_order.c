/* Which page goes first, in small forests, and in what is none. */
#include "policies/drop_order.h"

#include <stdlib.h>
#include <string.h>

#include "tests/unit/unit.h"

#define COUNT 8

static struct drop_page pages[COUNT];

static void add(uint32_t page, uint32_t parent, bool droppable)
{
    const struct drop_page what = {.generation = 7, .position = page, .droppable = droppable};

    (void) drop_order_add(pages, COUNT, page, parent, &what);
}

static void setup(void)
{
    memset(pages, 0, sizeof(pages));
}

START_TEST(a_chain_goes_from_its_end)
{
    setup();
    /* 3 continues 1, that 0; added as they lie, and the one in the middle last. */
    add(0, DROP_NONE, true);
    add(3, 1, true);
    add(1, 0, true);
    for (uint32_t i = 0; i < 4; i++)
        ck_assert_int_eq(drop_order_allows(pages, i, 7), i != 2);
    ck_assert_uint_eq(drop_order_first(pages, 0, 0), 3);
    drop_order_gone(pages, 3);
    ck_assert_uint_eq(drop_order_first(pages, 1, 0), 1);
    drop_order_gone(pages, 1);
    ck_assert_uint_eq(drop_order_first(pages, 0, 0), 0);
    ck_assert(!drop_order_allows(pages, 3, 7));
}
END_TEST

static void add_resident(uint32_t page, uint32_t parent, bool apart)
{
    const struct drop_page what = {
        .generation = 7, .droppable = true, .resident = true, .apart = apart};

    (void) drop_order_add(pages, COUNT, page, parent, &what);
}

START_TEST(what_lies_below_pages_on_the_device_carries_them)
{
    setup();
    /* 0 ← 1 ← 2 (on the device, another chunk) ← 3 (there too), and 0 ← 4; parents come last. */
    add_resident(3, 2, false);
    add_resident(2, 1, true);
    add(4, 0, true);
    add(1, 0, true);
    add(0, DROP_NONE, true);
    ck_assert(pages[0].carries && pages[1].carries && pages[2].carries);
    ck_assert(!pages[3].carries && !pages[4].carries);
    ck_assert(pages[1].torn && !pages[0].torn && !pages[2].torn);
    /* Parents first. */
    setup();
    add(0, DROP_NONE, true);
    add(1, 0, true);
    add_resident(2, 1, false);
    ck_assert(pages[0].carries && pages[1].carries && !pages[2].carries && !pages[1].torn);
    /* What lies elsewhere and not on the device tears nothing. */
    setup();
    (void) drop_order_add(
        pages, COUNT, 1, 0, &(struct drop_page){.generation = 7, .droppable = true, .apart = true});
    ck_assert(!pages[0].torn && !pages[0].carries);
}
END_TEST

START_TEST(every_branch_goes_before_what_it_continues)
{
    setup();
    add(0, DROP_NONE, true);
    add(1, 0, true);
    add(2, 0, true);
    drop_order_gone(pages, 1);
    ck_assert_uint_eq(drop_order_first(pages, 0, 0), 2);
    drop_order_gone(pages, 2);
    ck_assert_uint_eq(drop_order_first(pages, 0, 0), 0);
}
END_TEST

START_TEST(what_must_stay_blocks_all_that_it_continues)
{
    setup();
    add(0, DROP_NONE, true);
    add(1, 0, true);
    add(4, 0, true);
    add(2, 1, false);
    ck_assert(!drop_order_allows(pages, 2, 7) && !drop_order_allows(pages, 1, 7));
    ck_assert(!drop_order_allows(pages, 0, 7));
    ck_assert(drop_order_allows(pages, 4, 7));
    /* Also where what it continues is seen after it. */
    setup();
    add(2, 1, false);
    add(1, 0, true);
    add(0, DROP_NONE, true);
    ck_assert(!drop_order_allows(pages, 1, 7) && !drop_order_allows(pages, 0, 7));
    ck_assert_uint_eq(drop_order_first(pages, 0, 0), DROP_NONE);
}
END_TEST

START_TEST(one_that_could_not_be_dropped_keeps_its_line_and_no_other)
{
    setup();
    add(0, DROP_NONE, true);
    add(1, 0, true);
    add(2, 1, true);
    add(3, 2, true);
    ck_assert_uint_eq(drop_order_first(pages, 1, 1), 3);
    drop_order_refused(pages, 3, 1);
    ck_assert(!drop_order_allows(pages, 2, 7) && !drop_order_allows(pages, 1, 7));
    ck_assert_uint_eq(drop_order_first(pages, 0, 0), DROP_NONE);
    ck_assert(!drop_order_allows(pages, 0, 7));
}
END_TEST

START_TEST(pages_that_continue_each_other_are_never_dropped)
{
    setup();
    add(0, 2, true);
    add(1, 0, true);
    add(2, 1, true);
    add(5, 5, true);
    ck_assert_uint_eq(drop_order_first(pages, 0, 0), DROP_NONE);
    ck_assert(!drop_order_allows(pages, 0, 7));
    ck_assert_uint_eq(drop_order_first(pages, 5, 5), DROP_NONE);
    /* One that must stay is found again behind itself, once. */
    setup();
    add(0, 2, true);
    add(1, 0, true);
    ck_assert_uint_eq(drop_order_add(pages, COUNT, 2, 1, &(struct drop_page){.generation = 7}), 3);
}
END_TEST

START_TEST(unknown_pages_and_later_generations_stay)
{
    setup();
    add(0, COUNT, true);
    ck_assert_uint_eq(pages[0].parent, 0);
    ck_assert(drop_order_allows(pages, 0, 7));
    ck_assert(!drop_order_allows(pages, 0, 8));
    ck_assert(!drop_order_allows(pages, 1, 0));
    ck_assert_uint_eq(drop_order_first(pages, 1, 1), DROP_NONE);
}
END_TEST

START_TEST(a_chain_of_as_many_steps_as_there_may_be_goes_and_a_longer_one_stays)
{
    struct drop_page *chain = calloc(DROP_STEPS_MAX + 1, sizeof(*chain));
    const struct drop_page what = {.droppable = true};

    ck_assert_ptr_nonnull(chain);
    for (uint32_t i = 0; i <= DROP_STEPS_MAX; i++)
        (void) drop_order_add(chain, DROP_STEPS_MAX + 1, i, i > 0 ? i - 1 : DROP_NONE, &what);
    ck_assert_uint_eq(drop_order_first(chain, 1, 1), DROP_STEPS_MAX);
    ck_assert_uint_eq(drop_order_first(chain, 0, 0), DROP_NONE);
    free(chain);
}
END_TEST

START_TEST(the_deepest_that_can_go_is_sorted_to_the_end)
{
    setup();
    add(0, DROP_NONE, true);
    add(1, DROP_NONE, false);
    add(2, DROP_NONE, true);
    ck_assert_int_lt(drop_order_compare(&pages[0], &pages[2]), 0);
    ck_assert_int_gt(drop_order_compare(&pages[0], &pages[1]), 0);
    pages[0].position = 2;
    ck_assert_int_gt(drop_order_compare(&pages[2], &pages[0]), 0);
    pages[0].position = 3;
    ck_assert_int_gt(drop_order_compare(&pages[0], &pages[2]), 0);
    ck_assert_int_eq(drop_order_compare(&pages[0], &pages[0]), 0);
}
END_TEST

UNIT_MAIN("policy_drop_order", a_chain_goes_from_its_end,
    what_lies_below_pages_on_the_device_carries_them, every_branch_goes_before_what_it_continues,
    what_must_stay_blocks_all_that_it_continues,
    one_that_could_not_be_dropped_keeps_its_line_and_no_other,
    pages_that_continue_each_other_are_never_dropped, unknown_pages_and_later_generations_stay,
    a_chain_of_as_many_steps_as_there_may_be_goes_and_a_longer_one_stays,
    the_deepest_that_can_go_is_sorted_to_the_end)
