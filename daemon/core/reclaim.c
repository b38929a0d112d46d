/*
 * The cheapest memory to recover is what lies ready: nobody maps it. Taking it from a tenant at or
 * below its MemoryMin would be in vain, since the guarantee would grow by the same bytes.
 */
#include "daemon/core/reclaim.h"

#include "daemon/core/account.h"
#include "daemon/core/chunk.h"

/* Chunks for each call: one epoch's worth, so that a step stays short. */
#define RECLAIM_CHUNKS 64

struct budget {
    uint64_t bytes;
    unsigned chunks;
};

static void discard(struct core *core, struct chunk *chunk, struct budget *budget)
{
    budget->bytes = sub_saturate(budget->bytes, chunk->charge.bytes);
    budget->chunks--;
    chunk_discard(core, chunk);
}

static void reclaim_pools(
    struct core *core, struct account *account, uint64_t keep_bytes, struct budget *budget)
{
    list_for_each_safe(pool, &account->pools, struct pool, link)
    {
        uint32_t count = pool->count;

        if (pool->chunk_bytes == keep_bytes)
            continue;
        while (count-- > 0 && budget->bytes > 0 && budget->chunks > 0)
            discard(core, container_of(pool->chunks.prev, struct chunk, link), budget);
        if (budget->bytes == 0 || budget->chunks == 0)
            return;
    }
}

/* The oldest chunk of those tenants that stay above their MemoryMin without it. */
static struct chunk *oldest_of_others(struct account *requester)
{
    struct chunk *oldest = NULL;

    list_for_each(account, &requester->device->idle_accounts, struct account, idle_link)
    {
        struct chunk *chunk = list_first(&account->idle, struct chunk, age);
        uint64_t kept = sub_saturate(account->used, account_returning(account));

        if (account == requester || !account->tenant)
            continue;
        if (sub_saturate(kept, account->limits.min) < chunk->charge.bytes)
            continue;
        if (!oldest || chunk->since_ns < oldest->since_ns)
            oldest = chunk;
    }
    return oldest;
}

static void budget_end(struct core *core, struct device *device, const struct budget *budget)
{
    if (budget->chunks > 0)
        return;
    device->drain = true;
    core->more = true;
}

uint64_t reclaim_for(
    struct core *core, struct account *account, uint64_t chunk_bytes, uint64_t bytes, bool clean)
{
    struct budget budget = {bytes, RECLAIM_CHUNKS};

    reclaim_pools(core, account, chunk_bytes, &budget);
    if (clean)
        reclaim_pools(core, &account->device->nobody, chunk_bytes, &budget);
    while (budget.bytes > 0 && budget.chunks > 0) {
        struct chunk *chunk = oldest_of_others(account);

        if (!chunk)
            break;
        discard(core, chunk, &budget);
    }
    budget_end(core, account->device, &budget);
    return budget.chunks > 0 ? budget.bytes : 0;
}

void reclaim_own(struct core *core, struct account *account, uint64_t chunk_bytes, uint64_t bytes)
{
    struct budget budget = {bytes, RECLAIM_CHUNKS};

    reclaim_pools(core, account, chunk_bytes, &budget);
    budget_end(core, account->device, &budget);
}

void reclaim_overage(struct core *core, struct account *account)
{
    bool configured = account->tenant->configured;
    uint64_t max = configured ? account->limits.max : 0;

    while (!list_empty(&account->idle) &&
           sub_saturate(account->used, account_returning(account)) > max)
        chunk_discard(core, list_first(&account->idle, struct chunk, age));
    /* What a tenant has that is no longer configured is not taken from it. */
    if (configured && sub_saturate(account->used, account_returning(account)) > max &&
        !list_linked(&account->over_link))
        list_append(&account->device->over_accounts, &account->over_link);
}

static bool prefetched(struct core *core, struct chunk *chunk)
{
    struct device *device = chunk->charge.account->device;
    uint64_t bytes = chunk->charge.bytes;

    if (chunk->charge.account != &device->nobody || bytes != device->recent_chunk_bytes ||
        device->draining)
        return false;
    return pool_count(core, &device->nobody, bytes) * bytes <= core->options.prefetch_bytes;
}

static void expire_account(struct core *core, struct account *account, struct budget *budget)
{
    while (budget->chunks > 0 && !list_empty(&account->idle)) {
        struct chunk *chunk = list_first(&account->idle, struct chunk, age);

        if (chunk_expires(core, chunk) > core->now_ns)
            return;
        if (!prefetched(core, chunk)) {
            discard(core, chunk, budget);
            continue;
        }
        /* Kept ready on purpose: its time starts anew. */
        list_remove(&chunk->age);
        list_append(&account->idle, &chunk->age);
        chunk->since_ns = core->now_ns;
        budget->chunks--;
    }
}

void reclaim_expired(struct core *core, struct device *device)
{
    struct budget budget = {UINT64_MAX, RECLAIM_CHUNKS};
    uint64_t next_ns = CLOCK_NEVER;

    list_for_each_safe(account, &device->idle_accounts, struct account, idle_link)
    {
        expire_account(core, account, &budget);
        if (!list_empty(&account->idle)) {
            struct chunk *first = list_first(&account->idle, struct chunk, age);

            next_ns = MIN(next_ns, chunk_expires(core, first));
        }
    }
    device->expire_ns = next_ns;
}
