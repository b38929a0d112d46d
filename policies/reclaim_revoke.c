/*
 * One step after the other: the best lease of each tenant is found in one pass over all leases, and
 * the first tenant that has one gives it. What it has left decides about the next step.
 */
#include "policies/reclaim_revoke.h"

#include <string.h>

#include "base/limits.h"

struct revoke {
    const struct revoke_request *request;
    const struct reclaim_tenant *tenants;
    const struct revoke_lease *leases;
    size_t tenant_count, lease_count;
    bool *taken;
    uint64_t planned;
    uint64_t given[LIMIT_TENANTS]; /* by the steps so far */
    uint32_t best[LIMIT_TENANTS];  /* row of the lease that would go next; UINT32_MAX: none */
};

static uint64_t missing(const struct revoke *revoke)
{
    return sub_saturate(revoke->request->bytes, revoke->planned);
}

/* Of what is missing, what reaches into the requester's MemoryMin: the end of its request, which
 * lies beyond, isn't guaranteed. */
static uint64_t missing_guaranteed(const struct revoke *revoke)
{
    const struct reclaim_tenant *tenant = &revoke->tenants[revoke->request->beneficiary];
    uint64_t wanted = MAX(revoke->request->wanted, revoke->request->bytes);

    return sub_saturate(
        missing(revoke), sub_saturate(add_saturate(tenant->used, wanted), tenant->min));
}

static bool lower_priority(const struct revoke *revoke, uint32_t tenant)
{
    return revoke->tenants[tenant].priority <
           revoke->tenants[revoke->request->beneficiary].priority;
}

/* The most that may be asked of the tenant now, by what the requester is entitled to. */
static uint64_t entitled(const struct revoke *revoke, uint32_t tenant)
{
    if (tenant == revoke->request->beneficiary)
        return 0;
    return lower_priority(revoke, tenant) ? missing(revoke) : missing_guaranteed(revoke);
}

static uint64_t used_now(const struct revoke *revoke, uint32_t tenant)
{
    return sub_saturate(revoke->tenants[tenant].used, revoke->given[tenant]);
}

/* What would be asked of the lease: as much as is missing, in whole chunks, and as little as leaves
 * the tenant its MemoryMin. 0: nothing. */
static uint64_t part_of(const struct revoke *revoke, const struct revoke_lease *lease)
{
    uint64_t chunk = lease->chunk_bytes, want = entitled(revoke, lease->tenant);
    uint64_t room =
        sub_saturate(used_now(revoke, lease->tenant), revoke->tenants[lease->tenant].min);

    want = MIN(want, lease->bytes);
    want = want / chunk + (want % chunk != 0);
    room = MIN(room, lease->bytes) / chunk;
    return MIN(want, room) * chunk;
}

static bool lease_before(
    const struct revoke *revoke, const struct revoke_lease *a, const struct revoke_lease *b)
{
    uint64_t fits = MIN(entitled(revoke, a->tenant),
        sub_saturate(used_now(revoke, a->tenant), revoke->tenants[a->tenant].min));
    bool a_fits = a->bytes <= fits, b_fits = b->bytes <= fits;

    if (a_fits != b_fits)
        return a_fits;
    if (a->bytes != b->bytes)
        return a_fits ? a->bytes > b->bytes : a->bytes < b->bytes;
    return a->age_ns < b->age_ns;
}

static void best_find(struct revoke *revoke)
{
    for (size_t i = 0; i < revoke->tenant_count; i++)
        revoke->best[i] = UINT32_MAX;
    for (size_t i = 0; i < revoke->lease_count; i++) {
        const struct revoke_lease *lease = &revoke->leases[i];
        uint32_t *best;

        if (revoke->taken[i] || lease->tenant >= revoke->tenant_count || lease->chunk_bytes == 0 ||
            part_of(revoke, lease) == 0)
            continue;
        best = &revoke->best[lease->tenant];
        if (*best == UINT32_MAX || lease_before(revoke, lease, &revoke->leases[*best]))
            *best = (uint32_t) i;
    }
}

static bool above_high(const struct revoke *revoke, uint32_t tenant)
{
    return used_now(revoke, tenant) > revoke->tenants[tenant].high;
}

static bool tenant_before(const struct revoke *revoke, uint32_t a, uint32_t b)
{
    const struct reclaim_tenant *x = &revoke->tenants[a], *y = &revoke->tenants[b];
    unsigned __int128 share_x = (unsigned __int128) used_now(revoke, a) * MAX(y->weight, 1u);
    unsigned __int128 share_y = (unsigned __int128) used_now(revoke, b) * MAX(x->weight, 1u);

    if (x->priority != y->priority)
        return x->priority < y->priority;
    if (above_high(revoke, a) != above_high(revoke, b))
        return above_high(revoke, a);
    if (x->ignores_advice != y->ignores_advice)
        return x->ignores_advice;
    return share_x > share_y;
}

/* UINT32_MAX: nobody has anything that may be asked for. */
static uint32_t tenant_find(const struct revoke *revoke)
{
    uint32_t first = UINT32_MAX;

    for (uint32_t i = 0; i < revoke->tenant_count; i++) {
        if (revoke->best[i] != UINT32_MAX &&
            (first == UINT32_MAX || tenant_before(revoke, i, first)))
            first = i;
    }
    return first;
}

static enum reclaim_reason reason_of(const struct revoke *revoke, uint32_t tenant)
{
    if (!lower_priority(revoke, tenant))
        return RECLAIM_BELOW_MIN;
    return above_high(revoke, tenant) ? RECLAIM_ABOVE_HIGH : RECLAIM_LOWER_PRIORITY;
}

static bool step_make(struct revoke *revoke, struct revoke_step *ret)
{
    uint32_t tenant, row;

    best_find(revoke);
    tenant = tenant_find(revoke);
    if (tenant == UINT32_MAX)
        return false;
    row = revoke->best[tenant];
    *ret = (struct revoke_step){
        .lease = row,
        .bytes = part_of(revoke, &revoke->leases[row]),
        .reason = reason_of(revoke, tenant),
    };
    revoke->taken[row] = true;
    revoke->given[tenant] += ret->bytes;
    revoke->planned = add_saturate(revoke->planned, ret->bytes);
    return true;
}

size_t revoke_plan(const struct revoke_request *request, const struct reclaim_tenant *tenants,
    size_t tenant_count, const struct revoke_lease *leases, size_t lease_count, bool *taken,
    struct revoke_step *ret_steps, size_t max_steps, uint64_t *ret_planned)
{
    struct revoke revoke = {
        .request = request,
        .tenants = tenants,
        .leases = leases,
        .tenant_count = MIN(tenant_count, (size_t) LIMIT_TENANTS),
        .lease_count = lease_count,
        .taken = taken,
    };
    size_t count = 0;

    *ret_planned = 0;
    if (request->beneficiary >= revoke.tenant_count)
        return 0;
    if (lease_count > 0)
        memset(taken, 0, lease_count * sizeof(*taken));
    while (count < max_steps && missing(&revoke) > 0 && step_make(&revoke, &ret_steps[count]))
        count++;
    *ret_planned = revoke.planned;
    return count;
}
