/* See mover_held.h: a hash table by number, in which a number stands once. */
#include "daemon/mover_held.h"

#include <errno.h>

void mover_holdings_init(struct mover_holdings *holdings)
{
    *holdings = (struct mover_holdings){0};
    list_init(&holdings->forgetting);
}

static struct mover_held *number_find(const struct mover_holdings *holdings, uint32_t number)
{
    struct mover_held *held = holdings->buckets[number % MOVER_HELD_BUCKETS];

    while (held != NULL && held->number != number)
        held = held->next;
    return held;
}

struct mover_held *mover_holdings_find(
    const struct mover_holdings *holdings, uint32_t number, uint32_t generation)
{
    struct mover_held *held = number_find(holdings, number);

    return held != NULL && held->generation == generation ? held : NULL;
}

int mover_holdings_add(
    struct mover_holdings *holdings, uint32_t number, uint32_t generation, uint64_t bytes)
{
    struct mover_held *held = number_find(holdings, number);
    struct mover_held **bucket = &holdings->buckets[number % MOVER_HELD_BUCKETS];

    /* One that is awaited stays until the mover says so; its number can't be new yet. */
    if (held != NULL && held->awaited)
        return -EBUSY;
    if (held == NULL) {
        held = calloc(1, sizeof(*held));
        if (held == NULL)
            return -ENOMEM;
        list_init(&held->link);
        held->number = number;
        held->next = *bucket;
        *bucket = held;
        holdings->count++;
    }
    if (held->generation != generation)
        held->told = 0;
    held->generation = generation;
    held->bytes = bytes;
    held->forgetting = false;
    list_remove(&held->link);
    return 0;
}

/* It stands in no bucket any more. */
static void held_end(struct mover_held *held, struct list *gone)
{
    list_remove(&held->link);
    if (held->awaited)
        list_append(gone, &held->link);
    else
        free(held);
}

void mover_holdings_remove(
    struct mover_holdings *holdings, struct mover_held *held, struct list *gone)
{
    struct mover_held **at = &holdings->buckets[held->number % MOVER_HELD_BUCKETS];

    while (*at != held)
        at = &(*at)->next;
    *at = held->next;
    holdings->count--;
    held_end(held, gone);
}

void mover_holdings_clear(struct mover_holdings *holdings, struct list *gone)
{
    for (size_t i = 0; i < MOVER_HELD_BUCKETS; i++) {
        while (holdings->buckets[i] != NULL) {
            struct mover_held *held = holdings->buckets[i];

            holdings->buckets[i] = held->next;
            held_end(held, gone);
        }
    }
    holdings->count = 0;
}
