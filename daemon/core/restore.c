/*
 * Records may have been cut off anywhere within a step, and some may be damaged. What is restored
 * is always a ledger that adds up: a record that contradicts others is refused, and a chunk finds
 * one of four places: its lease, its tenant's cache, on its way back to the driver, or, where its
 * memory is gone, among the suspects of who paid for it.
 *
 * What takes another place than its record says is among the changes.
 */
#include <errno.h>
#include <string.h>

#include "daemon/core/account.h"
#include "daemon/core/change.h"
#include "daemon/core/chunk.h"
#include "daemon/core/client.h"
#include "daemon/core/holder.h"
#include "daemon/core/lease.h"
#include "daemon/core/tenant.h"
#include "daemon/core/verify.h"

static int tenant_restore(struct core *core, const struct core_record *record)
{
    struct tenant *tenant;

    if (record->number >= LIMIT_TENANTS || core->tenants[record->number] ||
        record->tenant.name[0] == '\0' ||
        !memchr(record->tenant.name, '\0', sizeof(record->tenant.name)) ||
        tenant_find(core, record->tenant.name))
        return -EINVAL;
    tenant = tenant_new_at(core, record->tenant.name, record->number);
    if (!tenant)
        return -ENOMEM;
    /* Until a configuration names it. */
    tenant->dropped = true;
    core->dropped_tenants++;
    return 0;
}

/* NULL where there is none. */
static struct account *account_at(const struct core *core, uint32_t device, uint32_t tenant)
{
    if (device >= core->device_count)
        return NULL;
    if (tenant == CORE_NOBODY)
        return &core->devices[device]->nobody;
    return tenant_at(core, tenant) ? &core->tenants[tenant]->accounts[device] : NULL;
}

/* The driver takes chunks back, their bytes become suspects, and then their records say so: cut off
 * in between both have them, and of a device that was full there is more than there can be. */
static void suspects_reconcile(struct account *account, uint64_t bytes)
{
    const struct device *device = account->device;
    uint64_t excess = sub_saturate(add_saturate(device->owned, bytes), device->total);
    uint64_t both = MIN(account->twice, account->suspects);

    both = MIN(both, excess);
    account->twice -= both;
    suspect_take(account, both);
}

/* What is there counts, also beyond a reserve that was raised since. */
static bool capacity_cover(struct core *core, struct device *device, uint64_t bytes)
{
    uint64_t owned = add_saturate(device->owned, bytes);

    if (owned > device->total) {
        suspects_reconcile(&device->nobody, bytes);
        for (uint32_t i = 0; i < core->tenant_high; i++) {
            if (core->tenants[i])
                suspects_reconcile(&core->tenants[i]->accounts[device->index], bytes);
        }
        owned = add_saturate(device->owned, bytes);
    }
    if (owned > device->total)
        return false;
    device->capacity = MAX(device->capacity, owned);
    device->reserve = device->total - device->capacity;
    return true;
}

static int suspects_restore(struct core *core, struct account *account, uint64_t bytes)
{
    if (!capacity_cover(core, account->device, bytes))
        return -EINVAL;
    suspect_add(account, bytes, core->now_ns, core->options.orphan_grace_ns);
    if (bytes > 0)
        verify_look_soon(core, account->device);
    return 0;
}

static int account_restore(struct core *core, const struct core_record *record)
{
    struct account *account = account_at(core, record->account.device, record->number);

    if (!account || account->suspects > 0 || record->account.others_bytes > account->device->total)
        return -EINVAL;
    if (!account->tenant) {
        account->device->others = record->account.others_bytes;
        account->device->draining = record->account.draining;
    }
    return suspects_restore(core, account, record->account.suspects_bytes);
}

static int client_restore(struct core *core, const struct core_record *record)
{
    struct tenant *tenant = tenant_at(core, record->client.tenant);
    struct client *client;
    void *item;
    int r;

    if (!record->gone && (!tenant || (record->client.steward && tenant->stewards > 0)))
        return -EINVAL;
    r = slots_restore(&core->clients, record->number, record->generation, !record->gone, &item);
    if (r < 0 || record->gone)
        return r;
    client = item;
    client->tenant = tenant;
    client->steward = record->client.steward;
    client->state = client->steward ? CLIENT_ACTIVE : CLIENT_DETACHED;
    list_init(&client->holdings);
    list_init(&client->requests);
    client_count(core, client, 1);
    return 0;
}

/* Whether a lease like this could have been made. */
static bool lease_sane(const struct core *core, const struct core_record *record)
{
    const struct device *device;
    uint64_t bytes = record->lease.chunk_bytes;

    if (record->lease.device >= core->device_count ||
        (unsigned) record->lease.kind > CORE_LEASE_SEGMENT ||
        (record->lease.kind == CORE_LEASE_WORKSPACE) != (record->lease.max == 0))
        return false;
    device = core->devices[record->lease.device];
    return bytes > 0 && bytes <= MAX(LIMIT_CHUNK_BYTES, device->total) &&
           bytes % device->granularity == 0 && record->lease.max <= LIMIT_LEASE_CHUNKS &&
           (record->lease.max > 0 ||
               (record->lease.count > 0 && record->lease.count <= LIMIT_LEASE_CHUNKS &&
                   record->lease.count <= device->total / bytes));
}

static int holder_add(struct holder *holder, bool open)
{
    if (!holder)
        return -ENOMEM;
    holder->open = open;
    holder_enter(holder);
    return 0;
}

static int lease_restore(struct core *core, const struct core_record *record)
{
    /* Of a segment all holders have records of their own. */
    struct client *client = record->lease.kind == CORE_LEASE_SEGMENT
                                ? NULL
                                : slots_find(&core->clients, record->lease.client);
    struct tenant *tenant = tenant_at(core, record->lease.tenant);
    struct chunk **chunks = NULL;
    struct lease *lease;
    uint32_t room;
    void *item;
    int r;

    if (record->gone)
        return slots_restore(&core->leases, record->number, record->generation, false, &item);
    /* Of an arena whose first holder can't be found others may be left. */
    if (!tenant || !lease_sane(core, record) || (client && client->tenant != tenant) ||
        (!client && record->lease.max == 0))
        return -EINVAL;
    room = record->lease.max > 0 ? record->lease.max : record->lease.count;
    chunks = calloc(room, sizeof(struct chunk *));
    if (!chunks)
        return -ENOMEM;
    r = slots_restore(&core->leases, record->number, record->generation, true, &item);
    if (r < 0) {
        free(chunks);
        return r;
    }
    lease = item;
    lease->account = &tenant->accounts[record->lease.device];
    lease->chunk_bytes = record->lease.chunk_bytes;
    lease->chunks = chunks;
    lease->max = record->lease.max;
    lease->kind = record->lease.kind;
    lease->room = room;
    lease->state = LEASE_ACTIVE;
    lease->since_ns = core->now_ns;
    list_init(&lease->holders);
    list_init(&lease->requests);
    tenant->leases++;
    lease_count_indices(lease, 1);
    core->active_leases++;
    return client ? holder_add(holder_new_at(core, lease, client, 0),
                        record->lease.open || lease->max == 0)
                  : 0;
}

static int holder_restore(struct core *core, const struct core_record *record)
{
    struct lease *lease = slots_find(&core->leases, record->holder.lease);
    struct client *client = slots_find(&core->clients, record->holder.client);
    uint8_t place = (uint8_t) (record->number % LIMIT_LEASE_HOLDERS);

    if (record->gone)
        return 0;
    if (!lease || lease->slot.number != record->number / LIMIT_LEASE_HOLDERS || !client)
        return -ESTALE;
    if (place == 0 || lease->kind != CORE_LEASE_ARENA || client->tenant != lease->account->tenant ||
        holder_find(lease, client))
        return -EINVAL;
    return holder_add(holder_new_at(core, lease, client, place), record->holder.open);
}

static int seat_restore(struct core *core, const struct core_record *record)
{
    struct lease *lease = slots_find(&core->leases, record->holder.lease);
    struct client *client = slots_find(&core->clients, record->holder.client);
    void *item;
    int r;

    if (!record->gone && (!lease || !client))
        return -ESTALE;
    if (!record->gone &&
        (lease->kind != CORE_LEASE_SEGMENT || client->tenant != lease->account->tenant ||
            holder_find(lease, client) || lease->holder_count >= holders_max(lease)))
        return -EINVAL;
    r = slots_restore(&core->seats, record->number, record->generation, !record->gone, &item);
    if (r < 0 || record->gone)
        return r;
    return holder_add(holder_new_seated(core, lease, client, item), record->holder.open);
}

/* ------------------------------------------------------------------ chunks */

/* Where the lease has it. */
static void chunk_place(struct chunk *chunk, struct lease *lease, uint32_t index)
{
    chunk->lease = lease;
    chunk->index = index;
    lease->chunks[index] = chunk;
    lease->count++;
}

/* The lease that has the chunk by both of their records. */
static struct lease *lease_of(
    struct core *core, const struct core_record *record, const struct account *account)
{
    struct lease *lease;

    if (record->chunk.state != CORE_CHUNK_LEASED)
        return NULL;
    lease = slots_find(&core->leases, record->chunk.lease);
    if (!lease || lease->account != account || lease->chunk_bytes != record->chunk.bytes ||
        record->chunk.index >= lease->room || lease->chunks[record->chunk.index])
        return NULL;
    return lease;
}

static void chunk_charge(
    struct chunk *chunk, struct account *account, enum chunk_state state, uint64_t bytes)
{
    list_init(&chunk->link);
    list_init(&chunk->age);
    charge_take(&chunk->charge, account, state, bytes);
    chunk->state = (uint8_t) state;
    chunk->exposed = account->tenant != NULL;
}

static void chunk_give_up(struct core *core, struct lease *lease, uint32_t index, bool held)
{
    struct chunk *chunk = lease->chunks[index];

    if (!chunk)
        return;
    lease->chunks[index] = NULL;
    lease->count--;
    if (held)
        chunk_discard(core, chunk);
    else
        chunk_keep(core, chunk, lease->account);
}

static void chunk_stick(struct chunk *chunk)
{
    chunk->stuck = true;
    chunk->charge.account->device->stuck += chunk->charge.bytes;
}

static bool chunk_sane(const struct core_record *record, const struct account *account)
{
    bool nobody = record->chunk.tenant == CORE_NOBODY;

    /* A slab may be larger than any chunk of virtual memory. */
    if (!account || record->chunk.bytes == 0 ||
        record->chunk.bytes > MAX(LIMIT_CHUNK_BYTES, account->device->total) ||
        record->chunk.bytes % account->device->granularity != 0)
        return false;
    switch (record->chunk.state) {
    case CORE_CHUNK_CLEAN:
        return nobody;
    case CORE_CHUNK_LEASED:
    case CORE_CHUNK_CACHED:
        return !nobody;
    case CORE_CHUNK_RELEASING:
        return true;
    }
    return false;
}

/* Its memory is gone, or will be when the last holder lets go. */
static int chunk_lose(struct core *core, const struct core_record *record, struct account *account)
{
    void *item;
    int r;

    if (record->chunk.state == CORE_CHUNK_RELEASING)
        account->twice = add_saturate(account->twice, record->chunk.bytes);
    r = suspects_restore(core, account, record->chunk.bytes);
    if (r == 0)
        r = slots_restore(&core->chunks, record->number, record->generation, true, &item);
    if (r < 0)
        return r;
    slots_change(&core->chunks, item);
    slots_give(&core->chunks, item);
    return 0;
}

static int chunk_restore(
    struct core *core, const struct core_record *record, bool handle, bool damaged)
{
    struct account *account = account_at(core, record->chunk.device, record->chunk.tenant);
    struct lease *lease;
    struct chunk *chunk;
    void *item;
    int r;

    if (record->gone)
        return slots_restore(&core->chunks, record->number, record->generation, false, &item);
    if (!chunk_sane(record, account))
        return -EINVAL;
    lease = lease_of(core, record, account);
    if (!handle && !lease)
        return chunk_lose(core, record, account);
    if (!capacity_cover(core, account->device, record->chunk.bytes))
        return -EINVAL;
    r = slots_restore(&core->chunks, record->number, record->generation, true, &item);
    if (r < 0)
        return r;
    chunk = item;
    if (lease) {
        chunk_charge(chunk, account, CHUNK_LEASED, record->chunk.bytes);
        chunk_place(chunk, lease, record->chunk.index);
        chunk->forsaken = record->chunk.forsaken;
        if (!handle)
            chunk_stick(chunk);
    } else if (record->chunk.state == CORE_CHUNK_RELEASING) {
        chunk_charge(chunk, account, CHUNK_RELEASING, record->chunk.bytes);
        chunk_release_later(chunk);
    } else if (record->chunk.state == CORE_CHUNK_LEASED && damaged) {
        chunk_charge(chunk, account, CHUNK_LEASED, record->chunk.bytes);
        chunk_discard(core, chunk);
    } else {
        /* Clean, cached, or on its way into a lease that was never granted. */
        chunk_charge(chunk, account, CHUNK_LEASED, record->chunk.bytes);
        chunk_keep(core, chunk, account);
    }
    return 0;
}

int core_restore(struct core *core, const struct core_record *record, bool handle, bool damaged)
{
    switch (record->type) {
    case CORE_RECORD_TENANT:
        return tenant_restore(core, record);
    case CORE_RECORD_ACCOUNT:
        return account_restore(core, record);
    case CORE_RECORD_CLIENT:
        return client_restore(core, record);
    case CORE_RECORD_LEASE:
        return lease_restore(core, record);
    case CORE_RECORD_HOLDER:
        return holder_restore(core, record);
    case CORE_RECORD_SEAT:
        return seat_restore(core, record);
    case CORE_RECORD_CHUNK:
        return chunk_restore(core, record, handle, damaged);
    case CORE_RECORD_MAX:
        break;
    }
    return -EINVAL;
}

/* ------------------------------------------------------------------ holes */

/* -EINVAL: there can't have been so much on the device. */
static int hole_fill(struct core *core, struct lease *lease, uint32_t index)
{
    struct chunk *chunk;
    void *item;
    int r;

    if (!capacity_cover(core, lease->account->device, lease->chunk_bytes))
        return -EINVAL;
    r = slots_take(&core->chunks, &item);
    if (r != SLOTS_OK)
        return r < 0 ? r : -ENOMEM;
    chunk = item;
    chunk_charge(chunk, lease->account, CHUNK_LEASED, lease->chunk_bytes);
    chunk_place(chunk, lease, index);
    chunk_stick(chunk);
    slots_change(&core->chunks, chunk);
    return 0;
}

/* A lease without holes gets there again. `lease->count` is what was found of lease->room. */
static int lease_mend(struct core *core, struct lease *lease, bool damaged)
{
    uint32_t hole = 0, found = lease->count;

    if (lease->max > 0 || found == lease->room)
        return 0;
    for (uint32_t i = 0; damaged && i < lease->room; i++) {
        int r = lease->chunks[i] ? 0 : hole_fill(core, lease, i);

        if (r == -EINVAL)
            break;
        if (r < 0)
            return r;
    }
    while (hole < lease->room && lease->chunks[hole])
        hole++;
    change_lease(core, lease);
    for (uint32_t i = hole; i < lease->room; i++)
        chunk_give_up(core, lease, i, damaged);
    return 0;
}

/* Every holder has all that is there; what nobody holds is nobody's to keep. */
static void lease_hold(struct core *core, struct lease *lease)
{
    list_for_each(holder, &lease->holders, struct holder, lease_link)
    {
        for (uint32_t i = 0; i < lease->room; i++) {
            if (lease->chunks[i] && holder->open)
                holder_give(holder, i);
        }
    }
    for (uint32_t i = 0; i < lease->room; i++) {
        if (lease->chunks[i] && lease->chunks[i]->holders == 0)
            chunk_give_up(core, lease, i, true);
    }
    if (lease->holder_count == 0)
        lease_end(core, lease);
    else if (lease->max == 0 && lease->count == 0)
        lease_let_go(core, list_first(&lease->holders, struct holder, lease_link));
}

int core_restore_end(struct core *core, bool damaged, uint32_t generation)
{
    slots_restore_end(&core->clients, generation);
    slots_restore_end(&core->leases, generation);
    slots_restore_end(&core->chunks, generation);
    slots_restore_end(&core->seats, generation);
    for (uint32_t i = 0; i < core->leases.high; i++) {
        struct lease *lease = slots_at(&core->leases, i);
        int r = lease ? lease_mend(core, lease, damaged) : 0;

        if (r < 0)
            return r;
        if (lease)
            lease_hold(core, lease);
    }
    return 0;
}
