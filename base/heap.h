/*
 * Binary min-heap of intrusive nodes, for deadlines: the smallest key is at hand in O(1), any node
 * goes in or out in O(log n). Nodes with equal keys come out in no particular order.
 *
 * Only heap_reserve() allocates, so that whoever reserved beforehand can never fail later.
 */
#pragma once

#include "base/macro.h"

struct heap_node {
    uint64_t key;
    size_t place; /* 1 + index in the heap; 0: in no heap */
};

struct heap {
    struct heap_node **items;
    size_t count, capacity;
};

/* Makes room for `count` nodes in all. -ENOMEM. */
int heap_reserve(struct heap *heap, size_t count) _must_check_;
/* Puts `node`, which must be in no heap, in; room must have been reserved. */
void heap_push(struct heap *heap, struct heap_node *node, uint64_t key);
/* Idempotent: a node in no heap stays so. */
void heap_remove(struct heap *heap, struct heap_node *node);
/* Frees the array; the nodes belong to their owners. */
void heap_done(struct heap *heap);

static inline bool heap_linked(const struct heap_node *node)
{
    return node->place != 0;
}

/* NULL when empty. */
static inline struct heap_node *heap_first(const struct heap *heap)
{
    return heap->count == 0 ? NULL : heap->items[0];
}
