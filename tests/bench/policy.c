/*
 * Policies alone, on pages that are nowhere. A decision is a victim and the admission of a new page
 * into its slot, in prefixes of eight pages, the cache being full and half of its pages used twice.
 * The best round of each counts: what disturbs the machine makes rounds longer, never shorter.
 */
#include <assert.h>
#include <errno.h>

#include "base/clock.h"
#include "base/macro.h"
#include "policies/eviction.h"
#include "policies/reclaim.h"
#include "tests/bench/bench.h"

#define PREFIX_PAGES 8
#define DECISIONS 20000 /* in one round */
#define ROUNDS 8
#define CHUNKS 100000
#define TENANTS 64
#define PLAN_BUDGET_MS 50

static const uint32_t sizes[] = {1000, 10000, 100000, 1000000};
static const char *const size_names[] = {"policy_decision_1000", "policy_decision_10000",
    "policy_decision_100000", "policy_decision_1000000"};
static_assert(ARRAY_SIZE(sizes) == ARRAY_SIZE(size_names), "one name for each size");

struct bed {
    const struct eviction_ops *ops;
    struct eviction *policy;
    uint64_t now, keys;
    uint32_t last; /* slot admitted last; NONE when it went at once */
};

static void bed_admit(struct bed *bed, uint32_t slot)
{
    const struct eviction_access access = {
        .key = ++bed->keys,
        .parent = bed->keys % PREFIX_PAGES == 0 ? EVICTION_NONE : bed->last,
        .prefix_pages = PREFIX_PAGES,
        .next_use = EVICTION_NEVER,
    };

    bed->ops->admit(bed->policy, slot, &access, ++bed->now);
    bed->last = slot;
}

static void bed_fill(struct bed *bed, uint32_t pages)
{
    for (uint32_t slot = 0; slot < pages; slot++)
        bed_admit(bed, slot);
    for (uint32_t slot = 0; slot < pages; slot += 2) {
        const struct eviction_access access = {.key = slot + 1,
            .parent = (slot + 1) % PREFIX_PAGES == 0 ? EVICTION_NONE : slot - 1,
            .prefix_pages = PREFIX_PAGES,
            .next_use = EVICTION_NEVER};

        if (slot > 0)
            bed->ops->touch(bed->policy, slot, &access, ++bed->now);
    }
}

/* ns for one decision. */
static double bed_round(struct bed *bed)
{
    uint64_t start_ns = clock_now(&clock_monotonic);

    for (unsigned i = 0; i < DECISIONS; i++) {
        uint32_t slot = bed->ops->victim(bed->policy, ++bed->now);

        if (slot == bed->last)
            bed->last = EVICTION_NONE;
        bed_admit(bed, slot);
    }
    return (double) (clock_now(&clock_monotonic) - start_ns) / DECISIONS;
}

static int decision_measure(const struct eviction_ops *ops, uint32_t pages, double *ret_per_second)
{
    struct bed bed = {.ops = ops, .last = EVICTION_NONE};
    double best_ns = 1e12;
    int r = ops->new (pages, &bed.policy);

    if (r < 0)
        return r;
    bed_fill(&bed, pages);
    for (unsigned round = 0; round < ROUNDS; round++)
        best_ns = MIN(best_ns, bed_round(&bed));
    ops->free(bed.policy);
    *ret_per_second = 1e9 / best_ns;
    return 0;
}

static struct bench_row decision_row(const char *name, double value, double floor)
{
    return (struct bench_row){.name = name,
        .value = value,
        .unit = "1/s",
        .floor = floor,
        .ratio = value / floor,
        .budget = 0.1,
        .met = value >= 0.1 * floor};
}

int bench_policy_decision(struct bench_row *rows, size_t max)
{
    const struct eviction_ops *policy = eviction_find("default");
    double fastest = 0;
    size_t slowest = 1;

    if (max < ARRAY_SIZE(sizes) + 1)
        return -ENOSPC;
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        double value;
        int r = decision_measure(policy, sizes[i], &value);

        if (r < 0)
            return r;
        if (i == 0)
            fastest = value;
        rows[i + 1] = decision_row(size_names[i], value, fastest);
        if (rows[i + 1].value < rows[slowest].value)
            slowest = i + 1;
    }
    rows[0] = decision_row("policy_decision", rows[slowest].value, rows[slowest].floor);
    return (int) ARRAY_SIZE(sizes) + 1;
}

static void plan_world(struct reclaim_tenant *tenants, struct reclaim_chunk *chunks)
{
    uint64_t random = 1;

    for (uint32_t i = 0; i < TENANTS; i++)
        tenants[i] = (struct reclaim_tenant){.used = UINT64_C(4) << 30,
            .low = UINT64_C(1) << 30,
            .high = UINT64_C(2) << 30,
            .host_left = UINT64_MAX,
            .priority = i % 3,
            .weight = 1 + i % 7};
    for (uint32_t i = 0; i < CHUNKS; i++) {
        random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        chunks[i] = (struct reclaim_chunk){.tenant = i % TENANTS,
            .bytes = UINT64_C(2) << 20,
            .page_bytes = 16384,
            .resident = 1 + (uint32_t) (random >> 40) % 128,
            .idle_ns = random >> 20,
            .token = i};
    }
}

int bench_reclaim_plan(struct bench_row *rows, size_t max)
{
    const struct reclaim_request request = {UINT64_MAX, UINT32_MAX, UINT32_MAX, 0, true};
    _cleanup_free_ struct reclaim_tenant *tenants = calloc(TENANTS, sizeof(*tenants));
    _cleanup_free_ struct reclaim_chunk *chunks = calloc(CHUNKS, sizeof(*chunks));
    _cleanup_free_ struct reclaim_step *steps = calloc(CHUNKS, sizeof(*steps));
    double best_ms = 1e9;

    if (!tenants || !chunks || !steps)
        return -ENOMEM;
    if (max < 1)
        return -ENOSPC;
    plan_world(tenants, chunks);
    for (unsigned round = 0; round < ROUNDS; round++) {
        enum reclaim_shortfall shortfall;
        uint64_t planned, start_ns = clock_now(&clock_monotonic);
        size_t count = reclaim_plan(
            &request, tenants, TENANTS, chunks, CHUNKS, steps, CHUNKS, &planned, &shortfall);

        if (count != CHUNKS)
            return -EIO;
        best_ms = MIN(best_ms, (double) (clock_now(&clock_monotonic) - start_ns) / 1e6);
    }
    rows[0] = (struct bench_row){.name = "reclaim_plan",
        .value = best_ms,
        .unit = "ms",
        .floor = PLAN_BUDGET_MS,
        .ratio = best_ms / PLAN_BUDGET_MS,
        .budget = 1,
        .met = best_ms <= PLAN_BUDGET_MS};
    return 1;
}
