/*
 * A returned chunk stays with its tenant (CACHED) and is given to no other. It goes back to the
 * driver instead when its client died, whose process may have handed it on, when the tenant is
 * above a limit that was lowered, and when the tenant is no longer configured.
 */
#include "daemon/core/lease.h"

#include <assert.h>

#include "daemon/core/account.h"
#include "daemon/core/answer.h"
#include "daemon/core/chunk.h"
#include "daemon/core/stalled.h"
#include "daemon/core/states.h"

struct lease *lease_new_pending(
    struct core *core, struct client *client, uint32_t device, uint64_t chunk_bytes)
{
    void *item;
    struct lease *lease;

    if (slots_take(&core->leases, &item) != SLOTS_OK)
        return NULL;
    lease = item;
    lease->client = client;
    lease->account = &client->tenant->accounts[device];
    lease->chunk_bytes = chunk_bytes;
    list_init(&lease->link);
    lease_set_state(lease, LEASE_PENDING);
    client->tenant->leases_pending++;
    stalled_lease(core, lease->account, client, 1);
    return lease;
}

static void lease_activate(struct core *core, struct lease *lease)
{
    struct client *client = lease->client;

    lease_set_state(lease, LEASE_ACTIVE);
    lease->since_ns = core->now_ns;
    list_append(&client->leases, &lease->link);
    client->lease_count++;
    client->tenant->leases_pending--;
    client->tenant->leases++;
    core->active_leases++;
}

static void lease_free(struct core *core, struct lease *lease)
{
    lease_set_state(lease, LEASE_ENDED);
    stalled_lease(core, lease->account, lease->client, -1);
    free(lease->chunks);
    lease->chunks = NULL;
    slots_give(&core->leases, lease);
}

struct lease *lease_new_arena(struct core *core, struct client *client, uint32_t device,
    uint64_t chunk_bytes, uint32_t max_chunks)
{
    struct lease *lease = lease_new_pending(core, client, device, chunk_bytes);

    if (!lease)
        return NULL;
    lease->chunks = calloc(max_chunks, sizeof(struct chunk *));
    if (!lease->chunks) {
        lease_drop_pending(core, lease);
        return NULL;
    }
    lease->max = lease->room = max_chunks;
    client->tenant->arenas++;
    client->tenant->arena_chunks += max_chunks;
    lease_activate(core, lease);
    return lease;
}

void lease_drop_pending(struct core *core, struct lease *lease)
{
    assert(lease->count == 0);
    lease->client->tenant->leases_pending--;
    lease_free(core, lease);
}

void lease_extend(struct core *core, const struct request *request)
{
    struct lease *lease = request->lease;

    for (uint32_t i = 0; i < request->count; i++)
        lease->chunks[request->first + i]->exposed = true;
    lease->client->leased_bytes += request->bytes;
    lease->count += request->count;
    if (lease->state != LEASE_ACTIVE)
        lease_activate(core, lease);
}

bool lease_overlaps(const struct lease *lease, uint32_t first, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (lease->chunks[first + i])
            return true;
    }
    list_for_each(request, &lease->client->requests, struct request, client_link)
    {
        if (request->lease == lease && request->first < first + count &&
            first < request->first + request->count)
            return true;
    }
    return false;
}

struct lease *lease_find(struct core *core, const struct client *client, core_id id)
{
    struct lease *lease = slots_find(&core->leases, id);

    return lease && lease->client == client && lease->state == LEASE_ACTIVE ? lease : NULL;
}

static bool chunk_kept(const struct lease *lease)
{
    const struct account *account = lease->account;
    uint64_t used = sub_saturate(account->used, account_returning(account));

    return lease->client->state != CLIENT_DEAD && account->tenant->configured &&
           used <= account->limits.max;
}

/* The chunk at `index`, if there is one, is the broker's again. */
static void lease_take_back(struct core *core, struct lease *lease, uint32_t index)
{
    struct chunk *chunk = lease->chunks[index];

    if (!chunk)
        return;
    lease->chunks[index] = NULL;
    lease->count--;
    lease->client->leased_bytes = sub_saturate(lease->client->leased_bytes, lease->chunk_bytes);
    if (chunk_kept(lease))
        chunk_keep(core, chunk, lease->account);
    else
        chunk_discard(core, chunk);
}

static void lease_truncate(struct core *core, struct lease *lease, uint32_t keep)
{
    while (lease->count > keep)
        lease_take_back(core, lease, lease->count - 1);
}

void lease_end(struct core *core, struct lease *lease)
{
    struct client *client = lease->client;

    assert(lease->requests == 0);
    for (uint32_t i = 0; i < lease->max && lease->count > 0; i++)
        lease_take_back(core, lease, i);
    lease_truncate(core, lease, 0);
    list_remove(&lease->link);
    client->lease_count--;
    client->tenant->leases--;
    client->tenant->arenas -= lease->max > 0;
    client->tenant->arena_chunks -= lease->max;
    core->active_leases--;
    lease_free(core, lease);
}

/* The lease that the event may change; NULL after an answer. */
static struct lease *lease_for_change(
    struct core *core, struct client *client, const struct core_event *event, core_id id)
{
    struct lease *lease = lease_find(core, client, id);

    if (!lease) {
        answer_refuse(
            core, event, GMB_STATUS_NOT_FOUND, GMB_LIMIT_NONE, "the client has no such lease");
        return NULL;
    }
    if (lease->requests == 0)
        return lease;
    answer_refuse(core, event, GMB_STATUS_INVALID, GMB_LIMIT_NONE,
        "%u requests to grow the lease are in flight: cancel them first", lease->requests);
    return NULL;
}

void lease_shrink_event(struct core *core, struct client *client, const struct core_event *event)
{
    uint32_t keep = event->lease_shrink.keep_chunks;
    struct lease *lease = lease_for_change(core, client, event, event->lease_shrink.lease);

    if (!lease)
        return;
    if (lease->max > 0) {
        answer_refuse(core, event, GMB_STATUS_INVALID, GMB_LIMIT_NONE,
            "the lease is an arena: its chunks are returned by index");
        return;
    }
    if (keep == 0 || keep > lease->count) {
        answer_refuse(core, event, GMB_STATUS_INVALID, GMB_LIMIT_NONE,
            "the lease has %u chunks and can't keep %u%s", lease->count, keep,
            keep == 0 ? ": release it instead" : "");
        return;
    }
    lease_truncate(core, lease, keep);
    answer_done(core, event);
}

static bool run_filled(const struct lease *lease, uint32_t first, uint32_t count)
{
    if (count == 0 || first >= lease->max || count > lease->max - first)
        return false;
    for (uint32_t i = 0; i < count; i++) {
        const struct chunk *chunk = lease->chunks[first + i];

        if (!chunk || chunk->request || chunk->state != CHUNK_LEASED)
            return false;
    }
    return true;
}

void lease_return_event(struct core *core, struct client *client, const struct core_event *event)
{
    uint32_t first = event->arena_return.first, count = event->arena_return.count;
    struct lease *lease = lease_find(core, client, event->arena_return.lease);

    if (!lease) {
        answer_refuse(
            core, event, GMB_STATUS_NOT_FOUND, GMB_LIMIT_NONE, "the client has no such lease");
        return;
    }
    if (!run_filled(lease, first, count)) {
        answer_refuse(core, event, GMB_STATUS_INVALID, GMB_LIMIT_NONE,
            "not all of the %u indices from %u are filled ones of an arena", count, first);
        return;
    }
    for (uint32_t i = 0; i < count; i++)
        lease_take_back(core, lease, first + i);
    answer_done(core, event);
}

void lease_release_event(struct core *core, struct client *client, const struct core_event *event)
{
    struct lease *lease = lease_for_change(core, client, event, event->lease_release.lease);

    if (!lease)
        return;
    lease_end(core, lease);
    answer_done(core, event);
}
