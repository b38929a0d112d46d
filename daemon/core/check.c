/*
 * Derives every sum anew from the objects and compares it with the account. Nothing here is used by
 * the broker at work: it is how tests know that the ledger is true.
 */
#include <stdio.h>

#include "daemon/core/account.h"
#include "daemon/core/gang.h"
#include "daemon/core/holder.h"
#include "daemon/core/pressure.h"
#include "daemon/core/states.h"

/* The sentence that core_check() returns. */
static _Thread_local char finding[LIMIT_TEXT_BYTES];

#define FIND(...) ((void) snprintf(finding, sizeof(finding), __VA_ARGS__), (const char *) finding)

struct sums {
    uint64_t bytes[CHUNK_STATE_MAX];
    uint64_t stuck;
    uint32_t issued;          /* chunks with the shell */
    uint32_t active, stalled; /* connected clients */
};

/* One for each device and tenant, and one more on each device for nobody. */
static struct sums *sums_at(
    const struct core *core, struct sums *sums, const struct account *account)
{
    uint32_t tenant = account->tenant ? account->tenant->index : core->tenant_high;

    return &sums[account->device->index * (core->tenant_high + 1) + tenant];
}

static const char *check_chunk(const struct chunk *chunk)
{
    const struct lease *lease = chunk->lease;
    bool leased = chunk->state == CHUNK_LEASED;

    if (chunk->charge.heading != chunk->state || !chunk->charge.account)
        return FIND("chunk %u is %s and charged as something else", chunk->slot.number,
            chunk_state_name(chunk->state));
    if (leased && !lease)
        return FIND("chunk %u is leased by no lease", chunk->slot.number);
    if (leased == (chunk->holders == 0) && !chunk->request)
        return FIND("chunk %u is %s and has %u holders", chunk->slot.number,
            chunk_state_name(chunk->state), chunk->holders);
    if (lease && (!leased && chunk->state != CHUNK_CREATING))
        return FIND("chunk %u is %s and part of a lease", chunk->slot.number,
            chunk_state_name(chunk->state));
    if (lease && (lease->account != chunk->charge.account || chunk->index >= lease->room ||
                     lease->chunks[chunk->index] != chunk))
        return FIND("chunk %u isn't where its lease has it", chunk->slot.number);
    if (chunk->stuck && !leased)
        return FIND("chunk %u is %s and nobody has a handle of it", chunk->slot.number,
            chunk_state_name(chunk->state));
    if (chunk->exposed && !chunk->charge.account->tenant)
        return FIND("chunk %u was leased and belongs to nobody", chunk->slot.number);
    return NULL;
}

static const char *check_chunks(const struct core *core, struct sums *sums)
{
    for (uint32_t i = 0; i < core->chunks.high; i++) {
        const struct chunk *chunk = slots_at(&core->chunks, i);
        const char *found = chunk ? check_chunk(chunk) : NULL;

        if (found)
            return found;
        if (chunk) {
            struct sums *sum = sums_at(core, sums, chunk->charge.account);

            sum->bytes[chunk->state] += chunk->charge.bytes;
            sum->stuck += chunk->stuck ? chunk->charge.bytes : 0;
            sum->issued += chunk->issued && chunk->state == CHUNK_CREATING;
        }
    }
    return NULL;
}

static const char *check_ready(const struct account *account)
{
    uint64_t pooled = 0, aged = 0;

    list_for_each(pool, &account->pools, struct pool, link)
    {
        uint32_t count = 0;

        list_for_each(chunk, &pool->chunks, struct chunk, link) count++;
        if (count == 0 || count != pool->count)
            return "a pool miscounts its chunks";
        pooled += count * pool->chunk_bytes;
    }
    list_for_each(chunk, &account->idle, struct chunk, age) aged += chunk->charge.bytes;
    if (pooled != account_idle(account) || aged != pooled)
        return "chunks that lie ready are not in their lists";
    if (list_linked(&account->idle_link) != (pooled > 0))
        return "an account's ready chunks are not known to its device";
    return NULL;
}

static const char *check_waiting(const struct account *account)
{
    uint32_t count = 0;
    uint64_t last = 0, bytes = 0;
    bool urgent = true;

    list_for_each(request, &account->waiting, struct request, queue_link)
    {
        if (request->state != REQUEST_QUEUED || !heap_linked(&request->deadline))
            return "a request waits that has no deadline or another state";
        if (request->urgent && !urgent)
            return "an urgent request stands behind one that is not";
        if (request->arrival <= last && request->urgent == urgent)
            return "requests of one tenant overtook each other";
        urgent = request->urgent;
        last = request->arrival;
        bytes += request->bytes;
        count++;
    }
    if (bytes != account->waiting_bytes)
        return "a queue miscounts its bytes";
    if (count != account->waiting_count || list_linked(&account->waiting_link) != (count > 0))
        return "a queue miscounts its requests";
    return NULL;
}

/* A level may be too high for a while, and too low only where somebody is about to look. */
static const char *check_pressure(
    const struct core *core, const struct account *account, const struct sums *sums)
{
    struct pressure_figures figures;

    if (account->active_clients != sums->active || account->stalled_clients != sums->stalled)
        return FIND("account %s: %u active and %u stalled clients are counted, not %u and %u",
            account->tenant->name, account->active_clients, account->stalled_clients, sums->active,
            sums->stalled);
    if (account->stall.on[STALL_SOME] != (sums->stalled > 0) ||
        account->stall.on[STALL_FULL] != (sums->stalled > 0 && sums->stalled >= sums->active))
        return FIND("account %s: its stall is on or off and should not be", account->tenant->name);
    if (core->more || pressure_pending(account) || account->tenant->clients == 0)
        return NULL;
    figures = pressure_account_figures(account);
    if (pressure_reached(&core->options.pressure.levels, &figures) >
        (enum pressure_level) account->pressure.level)
        return FIND("account %s: its level %s is too low for %u millionths", account->tenant->name,
            pressure_level_name(account->pressure.level), figures.share);
    return NULL;
}

static const char *check_account(const struct account *account, const struct sums *sums)
{
    const char *name = account->tenant ? account->tenant->name : "nobody";
    uint64_t used = account->suspects, young = 0;
    const char *found;

    for (unsigned s = 0; s < CHUNK_STATE_MAX; s++) {
        if (account->bytes[s] != sums->bytes[s])
            return FIND("account %s: %s is %llu, its chunks are %llu", name, chunk_state_name(s),
                (unsigned long long) account->bytes[s], (unsigned long long) sums->bytes[s]);
        used += sums->bytes[s];
    }
    for (uint32_t i = 0; i < account->young_count; i++)
        young += account->young[i].bytes;
    if (young + account->orphaned != account->suspects)
        return FIND("account %s: suspects don't add up", name);
    if (used != account->used)
        return FIND("account %s: used is %llu, its parts are %llu", name,
            (unsigned long long) account->used, (unsigned long long) used);
    if (!account->tenant && (sums->bytes[CHUNK_LEASED] > 0 || sums->bytes[CHUNK_CACHED] > 0))
        return "nobody holds leased or cached chunks";
    if (account->tenant && sums->bytes[CHUNK_CLEAN] > 0)
        return FIND("account %s holds clean chunks", name);
    found = check_ready(account);
    if (account->issued != sums->issued)
        return FIND("account %s: chunks with the shell are miscounted", name);
    if (list_linked(&account->supply_link) == list_empty(&account->supply))
        return FIND("account %s: what it is to be supplied with is not known to its device", name);
    return found ? found : check_waiting(account);
}

/* Sums of a device, as its accounts make them. */
struct device_sums {
    struct sums chunks;
    uint64_t owned, suspects, orphaned, min, unused_min, spare;
    uint32_t waiting, issued;
};

static void device_sums_add(
    struct device_sums *sums, const struct account *account, const struct sums *own)
{
    for (unsigned s = 0; s < CHUNK_STATE_MAX; s++)
        sums->chunks.bytes[s] += account->bytes[s];
    sums->owned += account->used;
    sums->suspects += account->suspects;
    sums->orphaned += account->orphaned;
    sums->waiting += account->waiting_count;
    sums->issued += account->issued;
    sums->chunks.stuck += own->stuck;
    if (!account->tenant)
        return;
    sums->min += account->limits.min;
    sums->unused_min += account_unused_min(account);
    sums->spare += account_spare(account);
}

static const char *check_device(const struct device *device, const struct device_sums *sums)
{
    for (unsigned s = 0; s < CHUNK_STATE_MAX; s++) {
        if (device->bytes[s] != sums->chunks.bytes[s])
            return FIND("device %u: the sum of %s is wrong", device->index, chunk_state_name(s));
    }
    if (device->suspects != sums->suspects || device->orphaned != sums->orphaned)
        return FIND("device %u: the sum of suspects is wrong", device->index);
    if (device->owned != sums->owned || device->owned > device->capacity)
        return FIND("device %u: more is owned than there is, or the sum is wrong", device->index);
    if (device->reserve + device->owned + device_unaccounted(device) + device_free(device) !=
        device->total)
        return FIND("device %u: used and free are not the total", device->index);
    if (device->min_sum != sums->min || device->unused_min != sums->unused_min)
        return FIND("device %u: the sum of the guarantees is wrong", device->index);
    if (device->spare != sums->spare)
        return FIND("device %u: the sum of what may be released is wrong", device->index);
    if (device->min_sum > device->capacity)
        return FIND("device %u: more is guaranteed than there is", device->index);
    if (device->stuck != sums->chunks.stuck)
        return FIND("device %u: the sum of stuck chunks is wrong", device->index);
    if (device->issued != sums->issued)
        return FIND("device %u: the count of chunks with the shell is wrong", device->index);
    if (device->waiting_count != sums->waiting)
        return FIND("device %u: the count of waiting requests is wrong", device->index);
    return NULL;
}

static const char *check_devices(const struct core *core, struct sums *sums)
{
    for (uint32_t d = 0; d < core->device_count; d++) {
        const struct device *device = core->devices[d];
        struct device_sums total = {0};
        const char *found = check_account(&device->nobody, sums_at(core, sums, &device->nobody));

        device_sums_add(&total, &device->nobody, sums_at(core, sums, &device->nobody));
        for (uint32_t i = 0; !found && i < core->tenant_high; i++) {
            const struct account *account;

            if (!core->tenants[i])
                continue;
            account = &core->tenants[i]->accounts[d];
            found = check_account(account, sums_at(core, sums, account));
            if (!found)
                found = check_pressure(core, account, sums_at(core, sums, account));
            device_sums_add(&total, account, sums_at(core, sums, account));
        }
        if (!found)
            found = check_device(device, &total);
        if (found)
            return found;
    }
    return NULL;
}

/* What the client has and waits for on each device, and what its accounts make of it. */
static const char *check_places(
    const struct core *core, const struct client *client, struct sums *sums)
{
    for (uint32_t d = 0; d < core->device_count; d++) {
        const struct account *account = &client->tenant->accounts[d];
        const struct client_device *place = &client->devices[d];
        uint32_t leases = 0, waiting = 0;

        list_for_each(holder, &client->holdings, struct holder, client_link) leases +=
            holder->lease->account == account;
        list_for_each(request, &client->requests, struct request, client_link)
        {
            leases += request->lease->account == account && request->lease->state == LEASE_PENDING;
            waiting += request->lease->account == account && request->state == REQUEST_QUEUED;
        }
        if (client->steward)
            waiting = 0;
        if (client->state != CLIENT_ACTIVE || client->steward)
            leases = 0;
        if (place->leases != leases || place->waiting != waiting ||
            place->stalled != (waiting > 0 || place->restoring))
            return FIND("client %u: what it has or waits for on device %u is miscounted",
                client->slot.number, d);
        sums_at(core, sums, account)->active += leases > 0;
        sums_at(core, sums, account)->stalled += place->stalled;
    }
    return NULL;
}

/* What a lease's chunks say of their holders, against what the holders say. */
static const char *check_lease(const struct lease *lease)
{
    uint32_t filled = 0, holders = 0, requests = 0;

    for (uint32_t i = 0; i < (lease->max > 0 ? lease->max : lease->count); i++) {
        const struct chunk *chunk = lease->chunks[i];
        uint32_t having = 0;

        list_for_each(holder, &lease->holders, struct holder, lease_link) having +=
            holder_has(holder, i);
        if (having != (chunk ? chunk->holders : 0) || (chunk && chunk->request && having > 0))
            return FIND("lease %u: %u have chunk %u", lease->slot.number, having, i);
        filled += having > 0;
    }
    list_for_each(holder, &lease->holders, struct holder, lease_link)
    {
        if (holder->client->tenant != lease->account->tenant)
            return FIND("lease %u is held by another tenant", lease->slot.number);
        if ((holder->seat != NULL) != (lease->kind == CORE_LEASE_SEGMENT) ||
            (holder->seat && (!holder->seat->slot.used || holder->seat->holder != holder)))
            return FIND("lease %u: a holder without its seat", lease->slot.number);
        holders++;
    }
    list_for_each(request, &lease->requests, struct request, lease_link)
    {
        if (request->lease != lease || !holder_find(lease, request->client))
            return FIND("lease %u: a request of somebody else's", lease->slot.number);
        requests++;
    }
    if (filled != lease->count)
        return FIND("lease %u miscounts its chunks", lease->slot.number);
    if (holders == 0 || holders != lease->holder_count || holders > holders_max(lease) ||
        requests != lease->request_count)
        return FIND("lease %u miscounts its holders or requests", lease->slot.number);
    return NULL;
}

static const char *check_leases(const struct core *core)
{
    uint32_t attached[LIMIT_TENANTS] = {0}, indices[LIMIT_TENANTS] = {0}, seats = 0;

    for (uint32_t i = 0; i < core->leases.high; i++) {
        const struct lease *lease = slots_at(&core->leases, i);
        const char *found = lease ? check_lease(lease) : NULL;

        if (found)
            return found;
        if (lease)
            attached[lease->account->tenant->index] += lease->holder_count - 1;
        if (lease)
            indices[lease->account->tenant->index] += lease->max;
        if (lease && lease->kind == CORE_LEASE_SEGMENT)
            seats += lease->holder_count;
    }
    if (seats != core->seats.used)
        return FIND("%u seats are taken by %u holders", core->seats.used, seats);
    for (uint32_t i = 0; i < core->tenant_high; i++) {
        if (core->tenants[i] && core->tenants[i]->attached != attached[i])
            return FIND("tenant %u miscounts its attached clients", i);
        if (core->tenants[i] && core->tenants[i]->index_count != indices[i])
            return FIND("tenant %u miscounts the indices of its leases", i);
    }
    return NULL;
}

/* All parts are in one state, each on another device, and nothing is held while one waits. */
static const char *check_gang(struct request *request)
{
    const struct request *first = request_part(request, 0);
    bool found = false;

    for (uint32_t i = 0; i < request_parts(request); i++) {
        const struct request *part = request_part(request, i);

        found |= part == request;
        if (part->state != first->state || part->client != first->client || part->id != first->id)
            return FIND("request %llu: its parts differ", (unsigned long long) request->id);
        if (part->supplied != (part->state == REQUEST_CREATING))
            return FIND("request %llu: chunks stand where it waits, or don't where it doesn't",
                (unsigned long long) request->id);
        for (uint32_t k = 0; k < i; k++) {
            if (request_part(request, k)->lease->account == part->lease->account)
                return FIND(
                    "request %llu: two parts on one device", (unsigned long long) request->id);
        }
    }
    return found ? NULL : "a part that is none of its gang's";
}

static const char *check_requests(const struct client *client, uint32_t *ret_count)
{
    const char *found = NULL;

    *ret_count = 0;
    list_for_each(request, &client->requests, struct request, client_link)
    {
        if (!found)
            found = check_gang(request);
        ++*ret_count;
    }
    return found;
}

/* Chunks that it has, as its bits say. */
static uint32_t bits_of(const struct holder *holder)
{
    uint32_t words = (holder->lease->max + HOLDER_WORD_BITS - 1) / HOLDER_WORD_BITS, count = 0;

    if (holder->lease->max == 0)
        return holder->lease->count;
    for (uint32_t i = 0; i < words; i++)
        count += (uint32_t) __builtin_popcountll(holder->has[i]);
    return count;
}

static const char *check_client(const struct client *client)
{
    uint32_t holdings = 0, requests = 0;
    const char *found;
    uint64_t bytes = 0;

    list_for_each(holder, &client->holdings, struct holder, client_link)
    {
        const struct lease *lease = holder->lease;
        uint32_t having = bits_of(holder);

        if (having != holder->count || holder->client != client || lease->state != LEASE_ACTIVE)
            return FIND("client %u: it miscounts what it has", client->slot.number);
        bytes += having * lease->chunk_bytes;
        holdings++;
    }
    found = check_requests(client, &requests);
    if (found)
        return found;
    if (bytes != client->leased_bytes || holdings != client->holding_count ||
        requests != client->request_count)
        return FIND("client %u: its leases or requests are miscounted", client->slot.number);
    if (client->state != CLIENT_ACTIVE && requests > 0)
        return FIND("client %u: waits though it can't hear", client->slot.number);
    return NULL;
}

static const char *check_clients(const struct core *core, struct sums *sums)
{
    uint32_t requests = 0, leases = 0;

    for (uint32_t i = 0; i < core->clients.high; i++) {
        const struct client *client = slots_at(&core->clients, i);
        const char *found = client ? check_client(client) : NULL;

        if (!found && client)
            found = check_places(core, client, sums);
        if (found)
            return found;
        requests += client ? client->request_count : 0;
    }
    for (uint32_t i = 0; i < core->leases.high; i++) {
        const struct lease *lease = slots_at(&core->leases, i);

        leases += lease && lease->state == LEASE_ACTIVE;
    }
    if (requests != core->requests.used || leases != core->active_leases)
        return "requests or leases without a client";
    return NULL;
}

const char *core_check(const struct core *core)
{
    size_t count = (size_t) core->device_count * (core->tenant_high + 1);
    struct sums *sums = calloc(MAX(count, (size_t) 1), sizeof(*sums));
    const char *found;

    if (!sums)
        return "no host memory for the check";
    found = check_chunks(core, sums);
    if (!found)
        found = check_clients(core, sums);
    if (!found)
        found = check_devices(core, sums);
    if (!found)
        found = check_leases(core);
    free(sums);
    return found;
}
