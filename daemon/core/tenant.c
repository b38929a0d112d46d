/* The table of tenants. Their number is bounded and small, so it is searched by walking. */
#include "daemon/core/tenant.h"

#include <assert.h>
#include <string.h>

#include "daemon/core/account.h"
#include "daemon/core/change.h"
#include "daemon/core/pressure.h"

struct tenant *tenant_find(const struct core *core, const char *name)
{
    if (!name)
        return NULL;
    for (uint32_t i = 0; i < core->tenant_high; i++) {
        struct tenant *tenant = core->tenants[i];

        if (tenant && strcmp(tenant->name, name) == 0)
            return tenant;
    }
    return NULL;
}

struct tenant *tenant_at(const struct core *core, uint32_t index)
{
    return index < core->tenant_high ? core->tenants[index] : NULL;
}

struct tenant *tenant_new(struct core *core, const char *name)
{
    uint32_t index = 0;

    while (core->tenants[index])
        index++;
    return tenant_new_at(core, name, index);
}

struct tenant *tenant_new_at(struct core *core, const char *name, uint32_t index)
{
    struct tenant *tenant;

    assert(index < LIMIT_TENANTS && !core->tenants[index]);
    if (pressure_reserve(core) < 0)
        return NULL;
    tenant = calloc(1, sizeof(*tenant) + core->device_count * sizeof(struct account));
    if (!tenant)
        return NULL;
    tenant->index = index;
    (void) strncpy(tenant->name, name, LIMIT_NAME_BYTES);
    tenant->account_count = core->device_count;
    for (uint32_t i = 0; i < core->device_count; i++)
        account_init(&tenant->accounts[i], tenant, core->devices[i]);
    core->tenants[index] = tenant;
    change_tenant(core, tenant);
    core->tenant_high = MAX(core->tenant_high, index + 1);
    core->tenant_count++;
    return tenant;
}

void tenant_free(struct core *core, struct tenant *tenant)
{
    assert(tenant->clients == 0 && tenant->stewards == 0 && tenant->leases == 0 &&
           tenant->leases_pending == 0);
    pressure_forget(core, tenant);
    for (uint32_t i = 0; i < tenant->account_count; i++)
        account_done(&tenant->accounts[i]);
    core->changed_tenants -= tenant->changed;
    core->tenants[tenant->index] = NULL;
    core->tenant_count--;
    free(tenant);
}

static bool tenant_gone(const struct tenant *tenant)
{
    if (tenant->configured || tenant->clients > 0 || tenant->stewards > 0)
        return false;
    for (uint32_t i = 0; i < tenant->account_count; i++) {
        const struct account *account = &tenant->accounts[i];

        if (account->used > 0 || account->changed || account->device->verify.account == account)
            return false;
    }
    return true;
}

void tenants_sweep(struct core *core)
{
    for (uint32_t i = 0; i < core->tenant_high && core->dropped_tenants > 0; i++) {
        struct tenant *tenant = core->tenants[i];

        if (!tenant || !tenant_gone(tenant))
            continue;
        core->dropped_tenants--;
        tenant_free(core, tenant);
    }
}

void tenants_free(struct core *core)
{
    for (uint32_t i = 0; i < core->tenant_high; i++) {
        free(core->tenants[i]);
        core->tenants[i] = NULL;
    }
}
