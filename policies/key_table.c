/* Hash chains over parallel arrays, order by a slot list. See key_table.h. */
#include "policies/key_table.h"

#include <errno.h>
#include <string.h>

/* Finalizer of splitmix64: keys are often small numbers, which must not share buckets. */
static uint32_t key_bucket(const struct key_table *table, uint64_t key)
{
    key = (key ^ (key >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    key = (key ^ (key >> 27)) * UINT64_C(0x94d049bb133111eb);
    return (uint32_t) (key ^ (key >> 31)) & table->mask;
}

int key_table_init(struct key_table *table, uint32_t capacity)
{
    uint32_t buckets = 16;

    memset(table, 0, sizeof(*table));
    while (buckets < capacity && buckets < UINT32_C(1) << 31)
        buckets *= 2;
    table->capacity = capacity;
    table->mask = buckets - 1;
    table->bucket = malloc(buckets * sizeof(*table->bucket));
    table->chain = malloc(capacity * sizeof(*table->chain));
    table->keys = malloc(capacity * sizeof(*table->keys));
    if (slot_links_new(&table->links, capacity) < 0 || table->bucket == NULL ||
        table->chain == NULL || table->keys == NULL)
        return -ENOMEM;
    memset(table->bucket, 0xff, buckets * sizeof(*table->bucket)); /* EVICTION_NONE */
    table->released = EVICTION_NONE;
    table->order = SLOT_LIST_EMPTY;
    return 0;
}

void key_table_clear(struct key_table *table)
{
    free(table->bucket);
    free(table->chain);
    free(table->keys);
    slot_links_free(&table->links);
    memset(table, 0, sizeof(*table));
}

uint32_t key_table_find(const struct key_table *table, uint64_t key)
{
    uint32_t entry = table->bucket[key_bucket(table, key)];

    while (entry != EVICTION_NONE && table->keys[entry] != key)
        entry = table->chain[entry];
    return entry;
}

static void chain_remove(struct key_table *table, uint32_t entry)
{
    uint32_t *at = &table->bucket[key_bucket(table, table->keys[entry])];

    while (*at != entry)
        at = &table->chain[*at];
    *at = table->chain[entry];
}

/* An entry that holds no key: one that was removed, a fresh one, or else the oldest. */
static uint32_t entry_take(struct key_table *table, bool *ret_replaced)
{
    uint32_t entry = table->order.head;

    *ret_replaced = table->order.count == table->capacity;
    if (*ret_replaced) {
        chain_remove(table, entry);
        slot_list_remove(&table->links, &table->order, entry);
    } else if (table->released != EVICTION_NONE) {
        entry = table->released;
        table->released = table->chain[entry];
    } else {
        entry = table->fresh++;
    }
    return entry;
}

uint32_t key_table_add(struct key_table *table, uint64_t key, bool *ret_replaced)
{
    uint32_t entry = entry_take(table, ret_replaced);
    uint32_t *first = &table->bucket[key_bucket(table, key)];

    table->keys[entry] = key;
    table->chain[entry] = *first;
    *first = entry;
    slot_list_push_tail(&table->links, &table->order, entry);
    return entry;
}

void key_table_refresh(struct key_table *table, uint32_t entry)
{
    slot_list_remove(&table->links, &table->order, entry);
    slot_list_push_tail(&table->links, &table->order, entry);
}

void key_table_remove(struct key_table *table, uint32_t entry)
{
    chain_remove(table, entry);
    slot_list_remove(&table->links, &table->order, entry);
    table->chain[entry] = table->released;
    table->released = entry;
}
