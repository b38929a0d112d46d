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
    return lease;
}

static void lease_free(struct core *core, struct lease *lease)
{
    lease_set_state(lease, LEASE_ENDED);
    free(lease->chunks);
    lease->chunks = NULL;
    slots_give(&core->leases, lease);
}

void lease_drop_pending(struct core *core, struct lease *lease)
{
    assert(lease->filled == 0);
    lease->client->tenant->leases_pending--;
    lease_free(core, lease);
}

void lease_extend(struct core *core, struct lease *lease)
{
    struct client *client = lease->client;

    for (uint32_t i = lease->count; i < lease->filled; i++)
        lease->chunks[i]->exposed = true;
    client->leased_bytes += (lease->filled - lease->count) * lease->chunk_bytes;
    lease->count = lease->filled;
    if (lease->state == LEASE_ACTIVE)
        return;
    lease_set_state(lease, LEASE_ACTIVE);
    lease->since_ns = core->now_ns;
    list_append(&client->leases, &lease->link);
    client->lease_count++;
    client->tenant->leases_pending--;
    client->tenant->leases++;
    core->active_leases++;
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

static void lease_truncate(struct core *core, struct lease *lease, uint32_t keep)
{
    struct client *client = lease->client;

    while (lease->count > keep) {
        struct chunk *chunk = lease->chunks[--lease->count];

        client->leased_bytes = sub_saturate(client->leased_bytes, lease->chunk_bytes);
        if (chunk_kept(lease))
            chunk_keep(core, chunk, lease->account);
        else
            chunk_discard(core, chunk);
    }
    lease->filled = keep;
}

void lease_end(struct core *core, struct lease *lease)
{
    struct client *client = lease->client;

    assert(!lease->request);
    lease_truncate(core, lease, 0);
    list_remove(&lease->link);
    client->lease_count--;
    client->tenant->leases--;
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
    if (!lease->request)
        return lease;
    answer_refuse(core, event, GMB_STATUS_INVALID, GMB_LIMIT_NONE,
        "request %llu to grow the lease is in flight: cancel it first",
        (unsigned long long) lease->request->id);
    return NULL;
}

void lease_shrink_event(struct core *core, struct client *client, const struct core_event *event)
{
    uint32_t keep = event->lease_shrink.keep_chunks;
    struct lease *lease = lease_for_change(core, client, event, event->lease_shrink.lease);

    if (!lease)
        return;
    if (keep == 0 || keep > lease->count) {
        answer_refuse(core, event, GMB_STATUS_INVALID, GMB_LIMIT_NONE,
            "the lease has %u chunks and can't keep %u%s", lease->count, keep,
            keep == 0 ? ": release it instead" : "");
        return;
    }
    lease_truncate(core, lease, keep);
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
