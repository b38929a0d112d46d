/*
 * Ready chunks lie in two lists: by size, newest first, for whoever takes one, and by age over all
 * sizes of the account, oldest first, for whoever gives memory back. Pools are found by a hash of
 * account and size; one exists only while it has chunks, so their number is bounded by the chunks'.
 */
#include "daemon/core/chunk.h"

#include <assert.h>
#include <errno.h>

#include "daemon/core/account.h"
#include "daemon/core/change.h"
#include "daemon/core/states.h"

int chunk_new(struct core *core, struct account *account, uint64_t bytes, struct chunk **ret)
{
    void *item;
    struct chunk *chunk;
    int r = slots_take(&core->chunks, &item);

    if (r != SLOTS_OK)
        return r;
    chunk = item;
    list_init(&chunk->link);
    list_init(&chunk->age);
    assert(chunk_state_legal(chunk->state, CHUNK_CREATING));
    charge_take(&chunk->charge, account, CHUNK_CREATING, bytes);
    chunk->state = CHUNK_CREATING;
    *ret = chunk;
    return 0;
}

void chunk_end(struct core *core, struct chunk *chunk)
{
    list_remove(&chunk->link);
    chunk_set_state(chunk, CHUNK_NONE, NULL);
    slots_give(&core->chunks, chunk);
}

struct chunk *chunk_find(struct core *core, uint32_t number, uint32_t generation)
{
    struct chunk *chunk = slots_at(&core->chunks, number);

    return chunk && chunk->slot.generation == generation ? chunk : NULL;
}

static struct list *pool_bucket(struct core *core, struct account *account, uint64_t chunk_bytes)
{
    uint64_t hash = (uint64_t) (uintptr_t) account / sizeof(void *) + chunk_bytes / 4096;

    hash *= UINT64_C(0x9e3779b97f4a7c15); /* 2^64 / golden ratio: Knuth's multiplicative hash */
    return &core->pools[(hash >> 32) % POOL_BUCKETS];
}

struct pool *pool_find(struct core *core, struct account *account, uint64_t chunk_bytes)
{
    list_for_each(pool, pool_bucket(core, account, chunk_bytes), struct pool, hash_link)
    {
        if (pool->account == account && pool->chunk_bytes == chunk_bytes)
            return pool;
    }
    return NULL;
}

uint32_t pool_count(struct core *core, struct account *account, uint64_t chunk_bytes)
{
    struct pool *pool = pool_find(core, account, chunk_bytes);

    return pool ? pool->count : 0;
}

static struct pool *pool_new(struct core *core, struct account *account, uint64_t chunk_bytes)
{
    struct pool *pool = calloc(1, sizeof(*pool));

    if (!pool)
        return NULL;
    pool->account = account;
    pool->chunk_bytes = chunk_bytes;
    list_init(&pool->chunks);
    list_init(&pool->link);
    list_append(&account->pools, &pool->link);
    list_init(&pool->hash_link);
    list_insert_after(pool_bucket(core, account, chunk_bytes), &pool->hash_link);
    return pool;
}

static void pool_remove(struct pool *pool, struct chunk *chunk)
{
    struct account *account = pool->account;

    list_remove(&chunk->link);
    list_remove(&chunk->age);
    if (list_empty(&account->idle))
        list_remove(&account->idle_link);
    if (--pool->count > 0)
        return;
    list_remove(&pool->link);
    list_remove(&pool->hash_link);
    free(pool);
}

struct chunk *pool_take(struct core *core, struct account *account, uint64_t chunk_bytes)
{
    struct pool *pool = pool_find(core, account, chunk_bytes);
    struct chunk *chunk;

    if (!pool)
        return NULL;
    chunk = list_first(&pool->chunks, struct chunk, link);
    pool_remove(pool, chunk);
    return chunk;
}

uint64_t chunk_expires(const struct core *core, const struct chunk *chunk)
{
    if (device_closed(chunk->charge.account->device))
        return chunk->since_ns;
    return add_saturate(chunk->since_ns, core->options.recycle_idle_ns);
}

static void pool_put(struct core *core, struct pool *pool, struct chunk *chunk)
{
    struct account *account = pool->account;
    struct device *device = account->device;

    chunk->since_ns = core->now_ns;
    list_insert_after(&pool->chunks, &chunk->link);
    list_append(&account->idle, &chunk->age);
    pool->count++;
    if (!list_linked(&account->idle_link))
        list_append(&device->idle_accounts, &account->idle_link);
    device->expire_ns = MIN(device->expire_ns, chunk_expires(core, chunk));
    device->drain = true;
}

void chunk_keep(struct core *core, struct chunk *chunk, struct account *account)
{
    uint64_t bytes = chunk->charge.bytes;
    struct pool *pool = pool_find(core, account, bytes);

    if (chunk->stuck) { /* nobody could ever map it again */
        chunk_discard(core, chunk);
        return;
    }
    chunk->lease = NULL;
    chunk->request = NULL;
    if (!pool)
        pool = pool_new(core, account, bytes);
    chunk_set_state(chunk, account->tenant ? CHUNK_CACHED : CHUNK_CLEAN, account);
    if (!pool) { /* no host memory to remember it by */
        chunk_discard(core, chunk);
        return;
    }
    pool_put(core, pool, chunk);
}

void chunk_forsake(struct chunk *chunk)
{
    chunk->forsaken = true;
    change_chunk(chunk, CHUNK_LEASED);
}

/* The driver has nothing of it to let go: what its last holder lets go is free. */
static void chunk_unstick(struct core *core, struct chunk *chunk)
{
    struct account *account = chunk->charge.account;

    account->device->stuck -= chunk->charge.bytes;
    account->device->drain = true;
    chunk_set_state(chunk, CHUNK_RELEASING, account);
    chunk_set_state(chunk, CHUNK_RELEASED, account);
    chunk_end(core, chunk);
}

void chunk_release_later(struct chunk *chunk)
{
    struct account *account = chunk->charge.account;

    list_append(&account->releasing, &chunk->link);
    if (!list_linked(&account->releasing_link))
        list_append(&account->device->releasing_accounts, &account->releasing_link);
}

void chunk_discard(struct core *core, struct chunk *chunk)
{
    struct account *account = chunk->charge.account;

    if (list_linked(&chunk->age))
        pool_remove(pool_find(core, account, chunk->charge.bytes), chunk);
    chunk->lease = NULL;
    chunk->request = NULL;
    chunk->issued = false;
    if (chunk->stuck) {
        chunk_unstick(core, chunk);
        return;
    }
    chunk_set_state(chunk, CHUNK_RELEASING, account);
    chunk_release_later(chunk);
}

void chunk_disown(struct chunk *chunk)
{
    struct account *account = chunk->charge.account, *nobody = &account->device->nobody;

    assert(chunk->state == CHUNK_CREATING);
    account->issued -= chunk->issued;
    nobody->issued += chunk->issued;
    charge_move(&chunk->charge, nobody, CHUNK_CREATING);
    chunk->lease = NULL;
    chunk->request = NULL;
}
