/*
 * Order is what makes a cut harmless. Tenants come first: the others name them. Then accounts:
 * while an epoch ends, bytes that are suspects and still a chunk's are found out by the next look.
 * Then chunks, then leases: a chunk counts as granted only once its lease counts it, and one that
 * came back is the tenant's before its lease is shorter. A lease's further holders follow it, and
 * those of segments all leases: one that isn't written was never told, and one that has gone had
 * let go of its chunks before. Clients come last.
 *
 * A chunk that is being created isn't written: until it is there, its bytes are nobody's.
 */
#include "daemon/core/change.h"

#include <string.h>

void change_tenant(struct core *core, struct tenant *tenant)
{
    core->changed_tenants += !tenant->changed;
    tenant->changed = true;
}

void change_account(struct account *account)
{
    account->device->changed += !account->changed;
    account->changed = true;
}

void change_client(struct core *core, struct client *client)
{
    slots_change(&core->clients, client);
}

void change_lease(struct core *core, struct lease *lease)
{
    slots_change(&core->leases, lease);
}

void change_holder(const struct holder *holder)
{
    struct lease *lease = holder->lease;

    if (lease->state != LEASE_ACTIVE)
        return;
    if (holder->seat) {
        slots_change(&lease->account->device->core->seats, holder->seat);
        return;
    }
    lease->changed |= (uint16_t) (1u << holder->place);
    slots_change(&lease->account->device->core->leases, lease);
}

void change_chunk(struct chunk *chunk, enum chunk_state next)
{
    struct core *core = chunk->charge.account->device->core;

    if (next == CHUNK_RELEASED || (chunk->state == CHUNK_CREATING && next == CHUNK_NONE))
        return;
    slots_change(&core->chunks, chunk);
}

/* ------------------------------------------------------------------ taking them */

static bool tenant_take(struct core *core, struct core_record *ret)
{
    for (uint32_t i = 0; core->changed_tenants > 0 && i < core->tenant_high; i++) {
        struct tenant *tenant = core->tenants[i];

        if (!tenant || !tenant->changed)
            continue;
        tenant->changed = false;
        core->changed_tenants--;
        *ret = (struct core_record){.type = CORE_RECORD_TENANT, .number = i};
        memcpy(ret->tenant.name, tenant->name, sizeof(ret->tenant.name));
        return true;
    }
    return false;
}

static struct account *account_changed(struct core *core, struct device *device)
{
    if (device->changed == 0)
        return NULL;
    if (device->nobody.changed)
        return &device->nobody;
    for (uint32_t i = 0; i < core->tenant_high; i++) {
        struct tenant *tenant = core->tenants[i];

        if (tenant && tenant->accounts[device->index].changed)
            return &tenant->accounts[device->index];
    }
    return NULL;
}

static bool account_take(struct core *core, struct core_record *ret)
{
    for (uint32_t i = 0; i < core->device_count; i++) {
        struct device *device = core->devices[i];
        struct account *account = account_changed(core, device);

        if (!account)
            continue;
        account->changed = false;
        device->changed--;
        *ret = (struct core_record){.type = CORE_RECORD_ACCOUNT};
        ret->number = account->tenant ? account->tenant->index : CORE_NOBODY;
        ret->account.device = i;
        ret->account.suspects_bytes = account->suspects;
        ret->account.others_bytes = account->tenant ? 0 : device->others;
        ret->account.draining = !account->tenant && device->draining;
        return true;
    }
    return false;
}

static enum core_record_state record_state(const struct chunk *chunk)
{
    switch ((enum chunk_state) chunk->state) {
    case CHUNK_CLEAN:
        return CORE_CHUNK_CLEAN;
    case CHUNK_LEASED:
        return CORE_CHUNK_LEASED;
    case CHUNK_CACHED:
        return CORE_CHUNK_CACHED;
    case CHUNK_NONE:
    case CHUNK_CREATING:
    case CHUNK_RELEASING:
    case CHUNK_RELEASED:
    case CHUNK_STATE_MAX:
        break;
    }
    return CORE_CHUNK_RELEASING;
}

static void chunk_record(const struct chunk *chunk, struct core_record *ret)
{
    const struct account *account = chunk->charge.account;

    ret->chunk.device = account->device->index;
    ret->chunk.tenant = account->tenant ? account->tenant->index : CORE_NOBODY;
    ret->chunk.state = record_state(chunk);
    ret->chunk.bytes = chunk->charge.bytes;
    ret->chunk.forsaken = chunk->forsaken;
    if (ret->chunk.state != CORE_CHUNK_LEASED)
        return;
    ret->chunk.lease = slot_id(&chunk->lease->slot);
    ret->chunk.index = chunk->index;
}

static void holder_record(const struct holder *holder, struct core_record *ret)
{
    ret->holder.client = slot_id(&holder->client->slot);
    ret->holder.lease = slot_id(&holder->lease->slot);
    ret->holder.open = holder->open;
}

/* NULL where nobody is; in a segment there are no places. */
static const struct holder *holder_at(const struct lease *lease, unsigned place)
{
    list_for_each(holder, &lease->holders, struct holder, lease_link)
    {
        if (!holder->seat && holder->place == place)
            return holder;
    }
    return NULL;
}

/* Of the lease whose record was taken last: holders beyond the place that its own record has. */
static bool holder_take_record(struct core *core, struct core_record *ret)
{
    struct lease *lease = core->changed_lease;
    const struct holder *holder;
    unsigned place;

    if (!lease)
        return false;
    lease->changed &= (uint16_t) ~1u;
    if (lease->changed == 0) {
        core->changed_lease = NULL;
        return false;
    }
    place = (unsigned) __builtin_ctz(lease->changed);
    lease->changed &= (uint16_t) (lease->changed - 1);
    *ret = (struct core_record){
        .type = CORE_RECORD_HOLDER,
        .number = lease->slot.number * LIMIT_LEASE_HOLDERS + place,
        .generation = lease->slot.generation,
        .gone = true,
    };
    if (!lease->slot.used)
        return true;
    holder = holder_at(lease, place);
    if (!holder)
        return true;
    ret->gone = false;
    holder_record(holder, ret);
    return true;
}

static void lease_record(const struct lease *lease, struct core_record *ret)
{
    const struct holder *first = holder_at(lease, 0);

    if (first) {
        ret->lease.client = slot_id(&first->client->slot);
        ret->lease.open = first->open;
    }
    ret->lease.tenant = lease->account->tenant->index;
    ret->lease.device = lease->account->device->index;
    ret->lease.count = lease->count;
    ret->lease.max = lease->max;
    ret->lease.kind = lease->kind;
    ret->lease.chunk_bytes = lease->chunk_bytes;
}

static void client_record(const struct client *client, struct core_record *ret)
{
    ret->client.tenant = client->tenant->index;
    ret->client.steward = client->steward;
}

/* The next changed one of a table; `slot` is what every object begins with. */
static const void *slot_take(
    struct slots *slots, enum core_record_type type, struct core_record *ret)
{
    const struct slot *slot = slots_changed_next(slots);

    if (slot)
        *ret = (struct core_record){
            .type = type,
            .number = slot->number,
            .generation = slot->generation,
            .gone = !slot->used,
        };
    return slot;
}

bool core_changed_next(struct core *core, struct core_record *ret)
{
    const void *item;

    if (tenant_take(core, ret) || account_take(core, ret))
        return true;
    item = slot_take(&core->chunks, CORE_RECORD_CHUNK, ret);
    if (item) {
        if (!ret->gone)
            chunk_record(item, ret);
        return true;
    }
    if (holder_take_record(core, ret))
        return true;
    item = slot_take(&core->leases, CORE_RECORD_LEASE, ret);
    if (item) {
        if (!ret->gone)
            lease_record(item, ret);
        core->changed_lease = slots_item(&core->leases, ret->number);
        return true;
    }
    item = slot_take(&core->seats, CORE_RECORD_SEAT, ret);
    if (item) {
        if (!ret->gone)
            holder_record(((const struct seat *) item)->holder, ret);
        return true;
    }
    item = slot_take(&core->clients, CORE_RECORD_CLIENT, ret);
    if (item && !ret->gone)
        client_record(item, ret);
    return item != NULL;
}

void changes_drop(struct core *core)
{
    struct core_record record;

    while (core_changed_next(core, &record))
        continue;
}

bool core_lease_record(const struct core *core, core_id id, struct core_record *ret)
{
    const struct lease *lease = slots_find(&core->leases, id);

    if (!lease || lease->state != LEASE_ACTIVE)
        return false;
    *ret = (struct core_record){
        .type = CORE_RECORD_LEASE,
        .number = lease->slot.number,
        .generation = lease->slot.generation,
    };
    lease_record(lease, ret);
    return true;
}
