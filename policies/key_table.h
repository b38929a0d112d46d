/*
 * A bounded table of keys in order of use: what a policy remembers of pages, cached or gone. A new
 * key in a full table takes the place of the oldest. Entries are numbers below the capacity, so
 * that a policy keeps what it knows of each in an array of its own.
 */
#pragma once

#include "policies/slot_list.h"

struct key_table {
    uint32_t capacity;
    uint32_t fresh;    /* entries never used yet start here */
    uint32_t released; /* first of a chain of entries that were removed */
    uint32_t mask;     /* buckets − 1 */
    uint32_t *bucket;  /* first entry of a hash chain */
    uint32_t *chain;   /* next entry of it */
    uint64_t *keys;
    struct slot_links links;
    struct slot_list order; /* oldest first */
};

/* `capacity` from 1 to 2^31. -ENOMEM; the table is to be freed then, too. */
int key_table_init(struct key_table *table, uint32_t capacity) _must_check_;
void key_table_clear(struct key_table *table);

/* EVICTION_NONE when the key is unknown. */
uint32_t key_table_find(const struct key_table *table, uint64_t key);
/* Adds an unknown key as the youngest. `ret_replaced` says that the entry held another key before.
 */
uint32_t key_table_add(struct key_table *table, uint64_t key, bool *ret_replaced);
/* Makes an entry the youngest. */
void key_table_refresh(struct key_table *table, uint32_t entry);
/* Forgets an entry before its turn. */
void key_table_remove(struct key_table *table, uint32_t entry);
