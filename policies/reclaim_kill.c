/* Killing is for the strictly entitled alone; each guard is asked by itself and named. */
#include <assert.h>

#include "policies/reclaim.h"

static const char *const verdict_names[] = {
    [RECLAIM_KILL_YES] = "yes",
    [RECLAIM_KILL_FORBIDDEN] = "forbidden by the configuration",
    [RECLAIM_KILL_ITSELF] = "the requester is never its own victim",
    [RECLAIM_KILL_NOT_ENTITLED] = "neither below MemoryMin nor of higher priority",
    [RECLAIM_KILL_ANOTHER] = "another victim is dying",
    [RECLAIM_KILL_COOLDOWN] = "too soon after the last one",
};
static_assert(ARRAY_SIZE(verdict_names) == RECLAIM_KILL_VERDICT_MAX, "one name for each verdict");

const char *reclaim_kill_verdict_name(enum reclaim_kill_verdict verdict)
{
    return (unsigned) verdict < RECLAIM_KILL_VERDICT_MAX ? verdict_names[verdict] : "unknown";
}

static bool entitled(
    const struct reclaim_kill *kill, const struct reclaim_tenant *tenants, size_t tenant_count)
{
    const struct reclaim_tenant *beneficiary;

    if (kill->beneficiary >= tenant_count || kill->victim >= tenant_count)
        return false;
    beneficiary = &tenants[kill->beneficiary];
    return beneficiary->used < beneficiary->min ||
           beneficiary->priority > tenants[kill->victim].priority;
}

enum reclaim_kill_verdict reclaim_may_kill(
    const struct reclaim_kill *kill, const struct reclaim_tenant *tenants, size_t tenant_count)
{
    if (!kill->allowed)
        return RECLAIM_KILL_FORBIDDEN;
    if (kill->victim == kill->beneficiary)
        return RECLAIM_KILL_ITSELF;
    if (!entitled(kill, tenants, tenant_count))
        return RECLAIM_KILL_NOT_ENTITLED;
    if (kill->dying > 0)
        return RECLAIM_KILL_ANOTHER;
    if (kill->killed_before && kill->since_ns < kill->cooldown_ns)
        return RECLAIM_KILL_COOLDOWN;
    return RECLAIM_KILL_YES;
}
