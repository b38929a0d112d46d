/* Intrusive doubly linked list with a sentinel head; a node that is in no list points at itself. */
#pragma once

#include "base/macro.h"

struct list {
    struct list *prev;
    struct list *next;
};

static inline void list_init(struct list *node)
{
    node->prev = node;
    node->next = node;
}

static inline bool list_empty(const struct list *head)
{
    return head->next == head;
}

/* Also says whether a node is in some list. */
static inline bool list_linked(const struct list *node)
{
    return node->next != node;
}

/* Puts `node`, which must be in no list, after `where`. */
static inline void list_insert_after(struct list *where, struct list *node)
{
    node->prev = where;
    node->next = where->next;
    where->next->prev = node;
    where->next = node;
}

static inline void list_append(struct list *head, struct list *node)
{
    list_insert_after(head->prev, node);
}

/* Idempotent: a node in no list stays so. */
static inline void list_remove(struct list *node)
{
    node->prev->next = node->next;
    node->next->prev = node->prev;
    list_init(node);
}

#define list_first(head, type, member)                                                             \
    (list_empty(head) ? NULL : container_of((head)->next, type, member))

#define list_for_each(it, head, type, member)                                                      \
    for (type *it = container_of((head)->next, type, member); &it->member != (head);               \
         it = container_of(it->member.next, type, member))

/* As list_for_each, and `it` may be removed or freed in the body. */
#define list_for_each_safe(it, head, type, member)                                                 \
    for (type *it = container_of((head)->next, type, member),                                      \
              *it##_next = container_of(it->member.next, type, member);                            \
         &it->member != (head);                                                                    \
         it = it##_next, it##_next = container_of(it->member.next, type, member))
