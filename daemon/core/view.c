/* What the shell may see: copies, never the objects. */
#include "daemon/core/account.h"
#include "daemon/core/holder.h"
#include "daemon/core/pressure.h"
#include "daemon/core/tenant.h"

#include <string.h>

void core_totals_get(const struct core *core, struct core_totals *ret)
{
    *ret = (struct core_totals){
        .revision = core->revision,
        .granted = core->granted,
        .refused = core->refused,
        .timed_out = core->timed_out,
        .devices = core->device_count,
        .tenants = core->tenant_count,
        .clients = core->clients.used - core->stewards,
        .leases = core->active_leases,
        .waiting = core->waiting,
    };
}

bool core_device_get(const struct core *core, uint32_t index, struct core_device_view *ret)
{
    const struct device *device;

    if (index >= core->device_count)
        return false;
    device = core->devices[index];
    *ret = (struct core_device_view){
        .total = device->total,
        .reserve = device->reserve,
        .creating = device->bytes[CHUNK_CREATING],
        .creating_clean = device->nobody.bytes[CHUNK_CREATING],
        .leased = device->bytes[CHUNK_LEASED],
        .cached = device->bytes[CHUNK_CACHED],
        .clean = device->bytes[CHUNK_CLEAN],
        .releasing = device->bytes[CHUNK_RELEASING] + device->bytes[CHUNK_RELEASED] +
                     device->suspects - device->orphaned,
        .orphaned = device->orphaned,
        .unaccounted = device_unaccounted(device),
        .free = device_free(device),
        .granularity = device->granularity,
        .lacking = device_hold_lacking(device),
        .waiting = device->waiting_count,
        .draining = device->draining,
        .failed = device->failed,
    };
    return true;
}

bool core_tenant_get(const struct core *core, uint32_t index, struct core_tenant_view *ret)
{
    const struct tenant *tenant = tenant_at(core, index);

    if (!tenant)
        return false;
    *ret = (struct core_tenant_view){
        .revision = tenant->revision,
        .priority = tenant->priority,
        .weight = tenant->weight,
        .clients = tenant->clients,
        .clients_max = tenant->clients_max,
        .leases = tenant->leases,
        .leases_max = tenant->leases_max,
        .waiting = tenant->waiting,
        .configured = tenant->configured,
    };
    memcpy(ret->name, tenant->name, sizeof(ret->name));
    return true;
}

bool core_tenant_find(const struct core *core, const char *name, uint32_t *ret_tenant)
{
    const struct tenant *tenant = tenant_find(core, name);

    if (!tenant)
        return false;
    *ret_tenant = tenant->index;
    return true;
}

bool core_tenant_device_get(
    const struct core *core, uint32_t index, uint32_t device, struct core_tenant_device_view *ret)
{
    const struct tenant *tenant = tenant_at(core, index);
    const struct account *account;

    if (!tenant || device >= tenant->account_count)
        return false;
    account = &tenant->accounts[device];
    *ret = (struct core_tenant_device_view){
        .limits = account->limits,
        .used = account->used,
        .creating = account->bytes[CHUNK_CREATING],
        .leased = account->bytes[CHUNK_LEASED],
        .cached = account->bytes[CHUNK_CACHED],
        .releasing = account_returning(account) + suspect_young(account),
        .orphaned = account->orphaned,
        .peak = account->peak,
        .overage = sub_saturate(account->used, account->limits.max),
    };
    return true;
}

/* The most that its own MemoryMax, the device and the guarantees of others can ever leave it. */
static uint64_t account_reachable(const struct account *account)
{
    const struct device *device = account->device;
    uint64_t others_min = sub_saturate(device->min_sum, account->limits.min);

    return MIN(account->limits.max, sub_saturate(device->capacity, others_min));
}

bool core_pressure_get(
    const struct core *core, uint32_t index, uint32_t device, struct core_pressure_view *ret)
{
    const struct tenant *tenant = tenant_at(core, index);
    const struct account *account;
    struct pressure_view view;
    struct stall stall;

    if (!tenant || device >= tenant->account_count)
        return false;
    account = &tenant->accounts[device];
    view = pressure_account_view(account);
    stall = account->stall;
    stall_advance(&stall, core->now_ns);
    *ret = (struct core_pressure_view){
        .level = (enum pressure_level) account->pressure.level,
        .device_level = (enum pressure_level) account->device->pressure.level,
        .limits = account->limits,
        .used = account->used,
        .headroom = pressure_headroom(&view),
        .reachable = account_reachable(account),
        .stalled = stall.on[STALL_SOME],
        .wait_mean_ns = account->wait_mean_ns,
        .waiting = account->waiting_count,
        .draining = device_closed(account->device),
    };
    for (unsigned line = 0; line < STALL_LINE_MAX; line++) {
        ret->stall_ns[line] = stall.total_ns[line];
        for (unsigned i = 0; i < STALL_AVERAGE_MAX; i++)
            ret->stall[line][i] =
                stall_average(&stall, (enum stall_line) line, (enum stall_average) i);
    }
    return true;
}

bool core_device_pressure(
    const struct core *core, uint32_t index, enum pressure_level *ret_level, uint64_t *ret_used)
{
    if (index >= core->device_count)
        return false;
    *ret_level = (enum pressure_level) core->devices[index]->pressure.level;
    *ret_used = pressure_device_used(core->devices[index]);
    return true;
}

bool core_advice_get(const struct core *core, uint32_t index, struct core_advice_view *ret)
{
    const struct tenant *tenant = tenant_at(core, index);

    if (!tenant)
        return false;
    *ret = (struct core_advice_view){
        .id = tenant->advice,
        .rung = (enum pressure_level) tenant->rung.rung,
        .since_ns = tenant->advice_ns,
        .used_then = tenant->advice_used,
        .steps = tenant->asked,
    };
    for (uint32_t i = 0; i < tenant->account_count; i++)
        ret->used_now = add_saturate(ret->used_now, tenant->accounts[i].used);
    return true;
}

static void client_view(const struct client *client, struct core_client_view *ret)
{
    *ret = (struct core_client_view){
        .id = slot_id(&client->slot),
        .tenant = client->tenant->index,
        .leases = client->holding_count,
        .waiting = client->request_count,
        .leased = client->leased_bytes,
        .detached = client->state == CLIENT_DETACHED,
    };
}

bool core_client_next(const struct core *core, core_id after, struct core_client_view *ret)
{
    for (uint32_t i = slot_number_after(after); i < core->clients.high; i++) {
        const struct client *client = slots_at(&core->clients, i);

        if (!client || client->steward)
            continue;
        client_view(client, ret);
        return true;
    }
    return false;
}

static const struct lease *lease_active(const struct lease *lease)
{
    return lease && lease->state == LEASE_ACTIVE ? lease : NULL;
}

static void lease_view(const struct lease *lease, struct core_lease_view *ret)
{
    /* While leases are restored one may have none. */
    const struct holder *first = list_first(&lease->holders, struct holder, lease_link);

    *ret = (struct core_lease_view){
        .id = slot_id(&lease->slot),
        .client = first ? slot_id(&first->client->slot) : 0,
        .kind = lease->kind,
        .holders = lease->holder_count,
        .tenant = lease->account->tenant->index,
        .device = lease->account->device->index,
        .chunks = lease->count,
        .max_chunks = lease->max,
        .chunk_bytes = lease->chunk_bytes,
        .since_ns = lease->since_ns,
    };
}

bool core_lease_get(const struct core *core, core_id id, struct core_lease_view *ret)
{
    const struct lease *lease = lease_active(slots_find(&core->leases, id));

    if (!lease)
        return false;
    lease_view(lease, ret);
    return true;
}

bool core_lease_next(const struct core *core, core_id after, struct core_lease_view *ret)
{
    for (uint32_t i = slot_number_after(after); i < core->leases.high; i++) {
        const struct lease *lease = lease_active(slots_at(&core->leases, i));

        if (!lease)
            continue;
        lease_view(lease, ret);
        return true;
    }
    return false;
}

bool core_client_lease_next(const struct core *core, core_id id, core_id after, core_id *ret)
{
    const struct client *client = slots_find(&core->clients, id);
    const struct lease *before = lease_active(slots_find(&core->leases, after));
    const struct holder *holder = client && before ? holder_find(before, client) : NULL;
    const struct list *next;

    if (!client || (before && !holder))
        return false;
    next = holder ? holder->client_link.next : client->holdings.next;
    if (next == &client->holdings)
        return false;
    *ret = slot_id(&container_of(next, const struct holder, client_link)->lease->slot);
    return true;
}

bool core_tenant_config_get(const struct core *core, uint32_t index, struct core_tenant_config *ret)
{
    const struct tenant *tenant = tenant_at(core, index);

    if (!tenant)
        return false;
    *ret = (struct core_tenant_config){
        .priority = tenant->priority,
        .weight = tenant->weight,
        .clients_max = tenant->clients_max,
        .leases_max = tenant->leases_max,
        .tier_format = tenant->tier_format,
        .ladder = tenant->ladder,
    };
    memcpy(ret->name, tenant->name, sizeof(ret->name));
    for (uint32_t i = 0; i < tenant->account_count; i++)
        ret->memory[i] = tenant->accounts[i].limits;
    return true;
}

static const struct holder *holder_get(const struct core *core, core_id id, core_id client_id)
{
    const struct lease *lease = lease_active(slots_find(&core->leases, id));
    const struct client *client = slots_find(&core->clients, client_id);

    return lease && client ? holder_find(lease, client) : NULL;
}

bool core_holder_find(const struct core *core, core_id lease, core_id client)
{
    return holder_get(core, lease, client) != NULL;
}

bool core_holder_has(const struct core *core, core_id lease, core_id client, uint32_t index)
{
    const struct holder *holder = holder_get(core, lease, client);

    return holder && holder_has(holder, index);
}

bool core_lease_chunk(const struct core *core, core_id id, uint32_t index, uint32_t *ret_chunk,
    uint32_t *ret_generation)
{
    const struct lease *lease = lease_active(slots_find(&core->leases, id));

    const struct chunk *chunk;

    if (!lease || index >= (lease->max > 0 ? lease->max : lease->count))
        return false;
    chunk = lease->chunks[index];
    if (!chunk || chunk->request)
        return false;
    *ret_chunk = chunk->slot.number;
    *ret_generation = chunk->slot.generation;
    return true;
}
