/* Life of a chunk outside leases: made, kept ready in a pool, discarded. */
#pragma once

#include "daemon/core/types.h"

/* A CREATING chunk charged to `account`. SLOTS_FULL at LIMIT_CHUNKS_TOTAL, -ENOMEM. */
int chunk_new(
    struct core *core, struct account *account, uint64_t bytes, struct chunk **ret) _must_check_;
/* CREATING or RELEASED → NONE. */
void chunk_end(struct core *core, struct chunk *chunk);
struct chunk *chunk_find(struct core *core, uint32_t number, uint32_t generation);

/* Puts a chunk that is part of nothing into its account's pool: CACHED, or CLEAN with nobody. */
void chunk_keep(struct core *core, struct chunk *chunk, struct account *account);
/* When a chunk that lies ready goes back to the driver: at once where the device is drained. */
uint64_t chunk_expires(const struct core *core, const struct chunk *chunk);
/* A LEASED one is never granted again: it goes to the driver when it is returned. */
void chunk_forsake(struct chunk *chunk);
/* Sends a LEASED, CACHED or CLEAN chunk on its way back to the driver; its account keeps paying. */
void chunk_discard(struct core *core, struct chunk *chunk);
/* Puts a RELEASING chunk into the list of those that go to the driver. */
void chunk_release_later(struct chunk *chunk);

/* A CREATING chunk whose request is gone: nobody pays, and it will be CLEAN once it is there. */
void chunk_disown(struct chunk *chunk);

struct pool *pool_find(struct core *core, struct account *account, uint64_t chunk_bytes);
/* Chunks of that size that lie ready on the account. */
uint32_t pool_count(struct core *core, struct account *account, uint64_t chunk_bytes);
/* The chunk returned last, out of its pool and still in its state; NULL when there is none. */
struct chunk *pool_take(struct core *core, struct account *account, uint64_t chunk_bytes);
