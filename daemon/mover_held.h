/*
 * Which chunks the mover at hand holds, as far as we told it: it is sent an fd of each once.
 * Bounded by what was sent since it started; it may hold fewer, and says so.
 */
#pragma once

#include "base/list.h"
#include "base/macro.h"

struct mover_held {
    struct list link; /* in `forgetting`, if it is to be forgotten */
    struct mover_held *next;
    uint32_t number, generation;
    uint64_t bytes;
    uint32_t told;   /* FORGETs on their way that name it */
    bool forgetting; /* to be forgotten, unless a job needs it after all … */
    bool awaited;    /* … which none may: the owner is to be told when it is gone */
};

#define MOVER_HELD_BUCKETS 1024

struct mover_holdings {
    size_t count;
    struct list forgetting; /* to be told to the mover */
    struct mover_held *buckets[MOVER_HELD_BUCKETS];
};

void mover_holdings_init(struct mover_holdings *holdings);
/* NULL when this generation of the chunk isn't held. */
struct mover_held *mover_holdings_find(
    const struct mover_holdings *holdings, uint32_t number, uint32_t generation);
/* An entry for a chunk of a job; another generation of it is replaced, and it is no longer to be
 * forgotten. -EBUSY when the owner waits for that, -ENOMEM. */
int mover_holdings_add(struct mover_holdings *holdings, uint32_t number, uint32_t generation,
    uint64_t bytes) _must_check_;
/* Takes the entry out. One that is awaited goes to `gone`, to be freed with free(3) by the caller;
 * any other is freed. */
void mover_holdings_remove(
    struct mover_holdings *holdings, struct mover_held *held, struct list *gone);
/* Empties the table: what is awaited goes to `gone`, the rest is freed. */
void mover_holdings_clear(struct mover_holdings *holdings, struct list *gone);
