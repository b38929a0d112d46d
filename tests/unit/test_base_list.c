/* The intrusive list keeps order and both directions through insertion and removal. */
#include "base/list.h"

#include "tests/unit/unit.h"

struct item {
    int value;
    struct list node;
};

static void assert_values(struct list *head, const int *expected, size_t count)
{
    size_t i = 0;

    list_for_each(it, head, struct item, node)
    {
        ck_assert_uint_lt(i, count);
        ck_assert_int_eq(it->value, expected[i++]);
        ck_assert_ptr_eq(it->node.next->prev, &it->node);
        ck_assert_ptr_eq(it->node.prev->next, &it->node);
    }
    ck_assert_uint_eq(i, count);
}

START_TEST(a_new_list_is_empty)
{
    struct list head;

    list_init(&head);
    ck_assert(list_empty(&head));
    ck_assert_ptr_null(list_first(&head, struct item, node));
    assert_values(&head, NULL, 0);
}
END_TEST

START_TEST(append_keeps_the_order)
{
    struct item items[3] = {{.value = 1}, {.value = 2}, {.value = 3}};
    struct list head;

    list_init(&head);
    for (size_t i = 0; i < ARRAY_SIZE(items); i++)
        list_append(&head, &items[i].node);
    assert_values(&head, (const int[]){1, 2, 3}, 3);
    ck_assert_int_eq(list_first(&head, struct item, node)->value, 1);
}
END_TEST

START_TEST(insert_after_puts_the_node_behind)
{
    struct item items[3] = {{.value = 1}, {.value = 2}, {.value = 3}};
    struct list head;

    list_init(&head);
    list_append(&head, &items[0].node);
    list_append(&head, &items[2].node);
    list_insert_after(&items[0].node, &items[1].node);
    assert_values(&head, (const int[]){1, 2, 3}, 3);
}
END_TEST

START_TEST(remove_is_idempotent_and_unlinks)
{
    struct item items[3] = {{.value = 1}, {.value = 2}, {.value = 3}};
    struct list head;

    list_init(&head);
    for (size_t i = 0; i < ARRAY_SIZE(items); i++)
        list_append(&head, &items[i].node);
    list_remove(&items[1].node);
    ck_assert(!list_linked(&items[1].node));
    list_remove(&items[1].node);
    assert_values(&head, (const int[]){1, 3}, 2);
    list_remove(&items[2].node);
    list_remove(&items[0].node);
    ck_assert(list_empty(&head));
    ck_assert(!list_linked(&head));
}
END_TEST

START_TEST(a_node_can_be_appended_again)
{
    struct item items[2] = {{.value = 1}, {.value = 2}};
    struct list head;

    list_init(&head);
    list_append(&head, &items[0].node);
    list_append(&head, &items[1].node);
    list_remove(&items[0].node);
    list_append(&head, &items[0].node);
    assert_values(&head, (const int[]){2, 1}, 2);
}
END_TEST

START_TEST(the_safe_walk_allows_freeing_each_node)
{
    struct list head;
    int sum = 0;

    list_init(&head);
    for (int i = 1; i <= 4; i++) {
        struct item *item = calloc(1, sizeof(*item));

        ck_assert_ptr_nonnull(item);
        item->value = i;
        list_append(&head, &item->node);
    }
    list_for_each_safe(it, &head, struct item, node)
    {
        sum += it->value;
        list_remove(&it->node);
        free(it);
    }
    ck_assert_int_eq(sum, 10);
    ck_assert(list_empty(&head));
}
END_TEST

UNIT_MAIN("base list", a_new_list_is_empty, append_keeps_the_order,
    insert_after_puts_the_node_behind, remove_is_idempotent_and_unlinks,
    a_node_can_be_appended_again, the_safe_walk_allows_freeing_each_node)
