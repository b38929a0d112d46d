/*
 * A level's peak is raised by the process that raised the level, so that no peak is missed between
 * two looks. Bytes are added once they have been granted and taken off before they are given back,
 * so that no sum is ever above what the broker has leased.
 */
#include "client/replay/stats.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>

const char *worker_state_name(enum worker_state state)
{
    static const char *const names[] = {
        [WORKER_STATE_STARTING] = "starting",
        [WORKER_STATE_READY] = "running",
        [WORKER_STATE_FINISHED] = "finished",
        [WORKER_STATE_STOPPED] = "stopped",
        [WORKER_STATE_FAILED] = "failed",
    };
    static_assert(ARRAY_SIZE(names) == WORKER_STATE_MAX, "a state without a name");

    return (unsigned) state < WORKER_STATE_MAX ? names[state] : "unknown";
}

/* Places `count` elements behind what is placed already. */
static size_t place(size_t *offset, size_t count, size_t size)
{
    size_t at = *offset;

    *offset += (count * size + 63) / 64 * 64;
    return at;
}

int stats_new(uint32_t tenants, uint32_t workers, size_t requests, struct stats **ret)
{
    size_t bytes = 0, head, tenant_at, own_at, worker_at, request_at;
    struct stats *stats;
    char *base;

    head = place(&bytes, 1, sizeof(struct stats));
    tenant_at = place(&bytes, tenants, sizeof(struct stats_level));
    own_at = place(&bytes, workers, sizeof(struct stats_level));
    worker_at = place(&bytes, workers, sizeof(struct stats_worker));
    request_at = place(&bytes, requests, sizeof(struct stats_request));
    base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED)
        return -errno;
    stats = (struct stats *) (void *) (base + head);
    stats->bytes = bytes;
    stats->tenant_count = tenants;
    stats->worker_count = workers;
    stats->request_count = requests;
    stats->tenants = (void *) (base + tenant_at);
    stats->own = (void *) (base + own_at);
    stats->workers = (void *) (base + worker_at);
    stats->requests = (void *) (base + request_at);
    *ret = stats;
    return 0;
}

struct stats *stats_free(struct stats *stats)
{
    if (stats)
        (void) munmap(stats, stats->bytes);
    return NULL;
}

static void level_add(struct stats_level *level, uint64_t bytes)
{
    uint64_t now = atomic_fetch_add(&level->now, bytes) + bytes;
    uint64_t peak = atomic_load(&level->peak);

    while (now > peak && !atomic_compare_exchange_weak(&level->peak, &peak, now))
        continue;
}

void stats_phase(struct stats_worker *worker, struct stats_request *request, enum phase phase)
{
    enum phase from = (enum phase) atomic_load(&request->phase);

    if (!phase_may_follow(from, phase))
        abort();
    if (phase == PHASE_WAITING || phase == PHASE_STALLED)
        atomic_fetch_add(&worker->waiting, 1);
    if (from == PHASE_WAITING || from == PHASE_STALLED)
        atomic_fetch_sub(&worker->waiting, 1);
    if (phase_is_final(phase))
        atomic_fetch_sub(&worker->in_flight, 1);
    if (phase == PHASE_COMPLETED)
        atomic_fetch_add(&worker->done, 1);
    if (phase == PHASE_REFUSED)
        atomic_fetch_add(&worker->refused, 1);
    atomic_store(&request->phase, phase);
}

void stats_take(struct stats *stats, uint32_t worker, uint64_t bytes)
{
    level_add(&stats->own[worker], bytes);
    level_add(&stats->tenants[worker % stats->tenant_count], bytes);
    level_add(&stats->all, bytes);
}

void stats_give(struct stats *stats, uint32_t worker, uint64_t bytes)
{
    atomic_fetch_sub(&stats->own[worker].now, bytes);
    atomic_fetch_sub(&stats->tenants[worker % stats->tenant_count].now, bytes);
    atomic_fetch_sub(&stats->all.now, bytes);
}

uint64_t stats_percentile(const uint64_t *sorted, size_t count, unsigned percent)
{
    size_t rank;

    if (count == 0)
        return 0;
    rank = (count * percent + 99) / 100;
    return sorted[rank - 1];
}

static int by_value(const void *left, const void *right)
{
    const uint64_t *a = left, *b = right;

    return (*a > *b) - (*a < *b);
}

void stats_sort(uint64_t *values, size_t count)
{
    if (count > 0)
        qsort(values, count, sizeof(*values), by_value);
}
