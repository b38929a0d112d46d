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

/* Of nobody's chunks those stay that are ready for the first who waits. */
static uint32_t pool_spare(const struct pool *pool)
{
    const struct device *device = pool->account->device;
    uint64_t kept = 0;

    if (pool->account == &device->nobody && pool->chunk_bytes == device->ahead_chunk_bytes)
        kept = device->ahead_bytes / pool->chunk_bytes;
    return pool->count - (uint32_t) MIN(kept, pool->count);
}

static void reclaim_pools(
    struct core *core, struct account *account, uint64_t keep_bytes, struct budget *budget)
{
    list_for_each_safe(pool, &account->pools, struct pool, link)
    {
        uint32_t count = pool_spare(pool);

        if (pool->chunk_bytes == keep_bytes)
            continue;
        while (count-- > 0 && budget->bytes > 0 && budget->chunks > 0)
            discard(core, container_of(pool->chunks.prev, struct chunk, link), budget);
        if (budget->bytes == 0 || budget->chunks == 0)
            return;
    }
}

/* The oldest chunk of those tenants that stay above their MemoryMin without it, and unless `low` is
 * set above their MemoryLow. */
static struct chunk *oldest_of_others(struct account *requester, bool low)
{
    struct chunk *oldest = NULL;

    list_for_each(account, &requester->device->idle_accounts, struct account, idle_link)
    {
        struct chunk *chunk = list_first(&account->idle, struct chunk, age);
        uint64_t kept = sub_saturate(account->used, account_returning(account));
        const struct core_memory_limits *limits = &account->limits;
        uint64_t floor = low ? limits->min : MAX(limits->min, limits->low);

        if (account == requester || !account->tenant)
            continue;
        if (sub_saturate(kept, floor) < chunk->charge.bytes)
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

uint64_t reclaim_for(struct core *core, struct account *account, const struct reclaim_want *want)
{
    struct budget budget = {want->bytes, RECLAIM_CHUNKS};

    reclaim_pools(core, account, want->chunk_bytes, &budget);
    if (want->clean)
        reclaim_pools(core, &account->device->nobody, want->chunk_bytes, &budget);
    while (budget.bytes > 0 && budget.chunks > 0) {
        struct chunk *chunk = oldest_of_others(account, false);

        if (!chunk && want->low)
            chunk = oldest_of_others(account, true);
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

/* What is kept ready on purpose: clean chunks ahead of need, and those that came back early for a
 * request of their tenant. */
static bool kept_ready(struct core *core, struct chunk *chunk)
{
    struct account *account = chunk->charge.account;
    struct device *device = account->device;
    uint64_t bytes = chunk->charge.bytes, ready;
    const struct request *first;

    if (device_closed(device))
        return false;
    if (account != &device->nobody) {
        first = list_first(&account->waiting, struct request, queue_link);
        return first && first->lease->chunk_bytes == bytes;
    }
    ready = pool_count(core, account, bytes) * bytes;
    return (bytes == device->recent_chunk_bytes && ready <= core->options.prefetch_bytes) ||
           (bytes == device->ahead_chunk_bytes && ready <= device->ahead_bytes);
}

static void expire_account(struct core *core, struct account *account, struct budget *budget)
{
    while (budget->chunks > 0 && !list_empty(&account->idle)) {
        struct chunk *chunk = list_first(&account->idle, struct chunk, age);

        if (chunk_expires(core, chunk) > core->now_ns)
            return;
        if (!kept_ready(core, chunk)) {
            discard(core, chunk, budget);
            continue;
        }
        /* Its time starts anew. */
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
