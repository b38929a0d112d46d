/* heap.h: order, removal from anywhere, and no allocation but in heap_reserve(). */
#include "base/heap.h"

#include "tests/unit/unit.h"

START_TEST(nodes_come_out_by_key)
{
    static const uint64_t keys[] = {5, 3, UINT64_MAX, 0, 3, 9, 1, 7};
    static const uint64_t sorted[] = {0, 1, 3, 3, 5, 7, 9, UINT64_MAX};
    struct heap_node nodes[ARRAY_SIZE(keys)] = {0};
    struct heap heap = {0};

    ck_assert_int_eq(heap_reserve(&heap, ARRAY_SIZE(keys)), 0);
    for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
        heap_push(&heap, &nodes[i], keys[i]);
    for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
        struct heap_node *first = heap_first(&heap);

        ck_assert_uint_eq(first->key, sorted[i]);
        heap_remove(&heap, first);
        ck_assert(!heap_linked(first));
    }
    ck_assert_ptr_null(heap_first(&heap));
    heap_done(&heap);
}
END_TEST

START_TEST(a_node_leaves_from_anywhere_once)
{
    struct heap_node nodes[100] = {0};
    struct heap heap = {0};
    uint64_t last = 0;

    ck_assert_int_eq(heap_reserve(&heap, 100), 0);
    for (uint64_t i = 0; i < 100; i++)
        heap_push(&heap, &nodes[i], (i * 37) % 101);
    for (uint64_t i = 0; i < 100; i += 3) {
        heap_remove(&heap, &nodes[i]);
        heap_remove(&heap, &nodes[i]);
    }
    ck_assert_uint_eq(heap.count, 66);
    while (heap_first(&heap)) {
        struct heap_node *first = heap_first(&heap);

        ck_assert_uint_ge(first->key, last);
        last = first->key;
        ck_assert_int_ne((first - nodes) % 3, 0);
        heap_remove(&heap, first);
    }
    heap_done(&heap);
}
END_TEST

START_TEST(reserved_room_is_room)
{
    struct heap heap = {0};
    size_t before;

    ck_assert_int_eq(heap_reserve(&heap, 65), 0);
    before = heap.capacity;
    ck_assert_uint_ge(before, 65);
    ck_assert_int_eq(heap_reserve(&heap, before), 0);
    ck_assert_uint_eq(heap.capacity, before);
    ck_assert_int_lt(heap_reserve(&heap, SIZE_MAX), 0);
    ck_assert_uint_eq(heap.capacity, before);
    heap_done(&heap);
}
END_TEST

UNIT_MAIN(
    "base_heap", nodes_come_out_by_key, a_node_leaves_from_anywhere_once, reserved_room_is_room)
