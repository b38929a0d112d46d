/*
 * Doubly linked lists of slots in two shared arrays of links: half the size of pointers, and one
 * allocation for all. A slot is in at most one list.
 */
#pragma once

#include "policies/eviction.h"

struct slot_links {
    uint32_t *prev, *next; /* by slot */
};

struct slot_list {
    uint32_t head, tail; /* oldest, youngest */
    uint32_t count;
};

#define SLOT_LIST_EMPTY ((struct slot_list){EVICTION_NONE, EVICTION_NONE, 0})

static inline void slot_list_push_tail(
    struct slot_links *links, struct slot_list *list, uint32_t slot)
{
    links->prev[slot] = list->tail;
    links->next[slot] = EVICTION_NONE;
    if (list->tail == EVICTION_NONE)
        list->head = slot;
    else
        links->next[list->tail] = slot;
    list->tail = slot;
    list->count++;
}

static inline void slot_list_push_head(
    struct slot_links *links, struct slot_list *list, uint32_t slot)
{
    links->next[slot] = list->head;
    links->prev[slot] = EVICTION_NONE;
    if (list->head == EVICTION_NONE)
        list->tail = slot;
    else
        links->prev[list->head] = slot;
    list->head = slot;
    list->count++;
}

static inline void slot_list_remove(struct slot_links *links, struct slot_list *list, uint32_t slot)
{
    uint32_t prev = links->prev[slot], next = links->next[slot];

    if (prev == EVICTION_NONE)
        list->head = next;
    else
        links->next[prev] = next;
    if (next == EVICTION_NONE)
        list->tail = prev;
    else
        links->prev[next] = prev;
    list->count--;
}

static inline int slot_links_new(struct slot_links *links, uint32_t slots)
{
    links->prev = calloc(slots, sizeof(*links->prev));
    links->next = calloc(slots, sizeof(*links->next));
    return links->prev == NULL || links->next == NULL ? -1 : 0;
}

static inline void slot_links_free(struct slot_links *links)
{
    free(links->prev);
    free(links->next);
}
