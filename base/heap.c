/* The textbook array heap: item i has its children at 2i + 1 and 2i + 2. */
#include "base/heap.h"

#include <assert.h>
#include <errno.h>

static void heap_put(struct heap *heap, size_t index, struct heap_node *node)
{
    heap->items[index] = node;
    node->place = index + 1;
}

static void heap_rise(struct heap *heap, size_t index, struct heap_node *node)
{
    while (index > 0) {
        size_t parent = (index - 1) / 2;

        if (heap->items[parent]->key <= node->key)
            break;
        heap_put(heap, index, heap->items[parent]);
        index = parent;
    }
    heap_put(heap, index, node);
}

static void heap_sink(struct heap *heap, size_t index, struct heap_node *node)
{
    for (;;) {
        size_t child = 2 * index + 1;

        if (child >= heap->count)
            break;
        if (child + 1 < heap->count && heap->items[child + 1]->key < heap->items[child]->key)
            child++;
        if (heap->items[child]->key >= node->key)
            break;
        heap_put(heap, index, heap->items[child]);
        index = child;
    }
    heap_put(heap, index, node);
}

int heap_reserve(struct heap *heap, size_t count)
{
    size_t capacity = MAX(heap->capacity, (size_t) 64);
    struct heap_node **items;

    if (count <= heap->capacity)
        return 0;
    while (capacity < count) {
        if (__builtin_mul_overflow(capacity, (size_t) 2, &capacity))
            return -ENOMEM;
    }
    items = reallocarray(heap->items, capacity, sizeof(struct heap_node *));
    if (!items)
        return -ENOMEM;
    heap->items = items;
    heap->capacity = capacity;
    return 0;
}

void heap_push(struct heap *heap, struct heap_node *node, uint64_t key)
{
    assert(!heap_linked(node));
    assert(heap->count < heap->capacity);
    node->key = key;
    heap->count++;
    heap_rise(heap, heap->count - 1, node);
}

void heap_remove(struct heap *heap, struct heap_node *node)
{
    size_t index = node->place - 1;
    struct heap_node *last;

    if (!heap_linked(node))
        return;
    node->place = 0;
    last = heap->items[--heap->count];
    if (last == node)
        return;
    if (index > 0 && heap->items[(index - 1) / 2]->key > last->key)
        heap_rise(heap, index, last);
    else
        heap_sink(heap, index, last);
}

void heap_done(struct heap *heap)
{
    free(heap->items);
    *heap = (struct heap){0};
}
