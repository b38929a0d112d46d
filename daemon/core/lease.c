/*
 * A chunk that its last holder has let go of stays with its tenant (CACHED) and is given to no
 * other. It goes back to the driver instead when a holder died with it, whose process may have
 * handed it on, when the tenant is above a limit that was lowered, and when the tenant is no longer
 * configured. So it does after a segment, whose readers trust that nobody of those before them can
 * write to it.
 */
#include "daemon/core/lease.h"

#include <assert.h>

#include "daemon/core/account.h"
#include "daemon/core/answer.h"
#include "daemon/core/change.h"
#include "daemon/core/chunk.h"
#include "daemon/core/holder.h"
#include "daemon/core/states.h"

/* PENDING, with one holder; `max` indices unless it is a workspace. */
static struct lease *lease_make(struct core *core, struct client *client, uint32_t device,
    uint64_t chunk_bytes, enum core_lease_kind kind, uint32_t max)
{
    void *item;
    struct lease *lease;
    struct holder *holder;

    if (slots_take(&core->leases, &item) != SLOTS_OK)
        return NULL;
    lease = item;
    lease->account = &client->tenant->accounts[device];
    lease->chunk_bytes = chunk_bytes;
    lease->kind = kind;
    lease->max = max;
    list_init(&lease->holders);
    list_init(&lease->requests);
    holder = holder_new(core, lease, client);
    if (!holder) {
        slots_give(&core->leases, lease);
        return NULL;
    }
    holder->open = true;
    lease_set_state(lease, LEASE_PENDING);
    client->tenant->leases_pending++;
    return lease;
}

struct lease *lease_new_pending(
    struct core *core, struct client *client, uint32_t device, uint64_t chunk_bytes)
{
    return lease_make(core, client, device, chunk_bytes, CORE_LEASE_WORKSPACE, 0);
}

static void lease_activate(struct core *core, struct lease *lease)
{
    struct tenant *tenant = lease->account->tenant;

    lease_set_state(lease, LEASE_ACTIVE);
    lease->since_ns = core->now_ns;
    holder_enter(list_first(&lease->holders, struct holder, lease_link));
    tenant->leases_pending--;
    tenant->leases++;
    core->active_leases++;
    change_lease(core, lease);
}

static void lease_free(struct core *core, struct lease *lease)
{
    lease_set_state(lease, LEASE_ENDED);
    free(lease->chunks);
    lease->chunks = NULL;
    slots_give(&core->leases, lease);
}

void lease_count_indices(struct lease *lease, int by)
{
    struct tenant *tenant = lease->account->tenant;

    if (lease->kind == CORE_LEASE_ARENA)
        tenant->arenas += (uint32_t) by;
    else if (lease->kind == CORE_LEASE_SEGMENT)
        tenant->segments += (uint32_t) by;
    tenant->index_count += (uint32_t) by * lease->max;
}

static struct lease *lease_make_indexed(struct core *core, struct client *client, uint32_t device,
    uint64_t chunk_bytes, enum core_lease_kind kind, uint32_t max)
{
    struct lease *lease = lease_make(core, client, device, chunk_bytes, kind, max);

    if (!lease)
        return NULL;
    lease_count_indices(lease, 1);
    lease->chunks = calloc(max, sizeof(struct chunk *));
    if (!lease->chunks) {
        lease_drop_pending(core, lease);
        return NULL;
    }
    lease->room = max;
    return lease;
}

struct lease *lease_new_arena(struct core *core, struct client *client, uint32_t device,
    uint64_t chunk_bytes, uint32_t max_chunks)
{
    struct lease *lease =
        lease_make_indexed(core, client, device, chunk_bytes, CORE_LEASE_ARENA, max_chunks);

    if (lease)
        lease_activate(core, lease);
    return lease;
}

struct lease *lease_new_segment(struct core *core, struct client *client, uint32_t device,
    uint64_t chunk_bytes, uint32_t chunks)
{
    return lease_make_indexed(core, client, device, chunk_bytes, CORE_LEASE_SEGMENT, chunks);
}

void lease_drop_pending(struct core *core, struct lease *lease)
{
    assert(lease->count == 0);
    lease->account->tenant->leases_pending--;
    lease_count_indices(lease, -1);
    holder_free(core, list_first(&lease->holders, struct holder, lease_link));
    lease_free(core, lease);
}

void lease_extend(struct core *core, const struct request *request)
{
    struct lease *lease = request->lease;

    for (uint32_t i = 0; i < request->count; i++)
        lease->chunks[request->first + i]->exposed = true;
    /* A detached one is sent nothing any more, and so has nothing more to let go of. */
    list_for_each(holder, &lease->holders, struct holder, lease_link)
    {
        if (!holder->open || holder->client->state != CLIENT_ACTIVE)
            continue;
        for (uint32_t i = 0; i < request->count; i++)
            holder_give(holder, request->first + i);
    }
    lease->count += request->count;
    change_lease(core, lease);
    if (lease->state != LEASE_ACTIVE)
        lease_activate(core, lease);
}

bool lease_overlaps(const struct lease *lease, uint32_t first, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        if (lease->chunks[first + i])
            return true;
    }
    list_for_each(request, &lease->requests, struct request, lease_link)
    {
        if (request->first < first + count && first < request->first + request->count)
            return true;
    }
    return false;
}

struct lease *lease_find(struct core *core, const struct client *client, core_id id)
{
    struct lease *lease = slots_find(&core->leases, id);

    return lease && lease->state == LEASE_ACTIVE && holder_find(lease, client) ? lease : NULL;
}

static bool chunk_kept(const struct lease *lease, const struct chunk *chunk)
{
    const struct account *account = lease->account;
    uint64_t used = sub_saturate(account->used, account_returning(account));

    return !chunk->forsaken && lease->kind != CORE_LEASE_SEGMENT && account->tenant->configured &&
           used <= account->limits.max;
}

/* A holder lets go of a chunk that it has: with the last one it is the broker's again. */
static void chunk_let_go(struct core *core, struct holder *holder, uint32_t index)
{
    struct lease *lease = holder->lease;
    struct chunk *chunk = lease->chunks[index];

    if (!holder_take(holder, index))
        return;
    lease->chunks[index] = NULL;
    lease->count--;
    change_lease(core, lease);
    if (chunk_kept(lease, chunk))
        chunk_keep(core, chunk, lease->account);
    else
        chunk_discard(core, chunk);
}

static void workspace_truncate(struct core *core, struct holder *holder, uint32_t keep)
{
    while (holder->count > keep)
        chunk_let_go(core, holder, holder->count - 1);
}

void lease_end(struct core *core, struct lease *lease)
{
    struct tenant *tenant = lease->account->tenant;

    change_lease(core, lease);
    assert(lease->count == 0 && lease->request_count == 0);
    tenant->leases--;
    lease_count_indices(lease, -1);
    core->active_leases--;
    lease_free(core, lease);
}

void lease_let_go(struct core *core, struct holder *holder)
{
    struct lease *lease = holder->lease;

    for (uint32_t i = 0; i < lease->max && holder->count > 0; i++) {
        if (holder_has(holder, i))
            chunk_let_go(core, holder, i);
    }
    workspace_truncate(core, holder, 0);
    holder_free(core, holder);
    if (lease->holder_count == 0)
        lease_end(core, lease);
}

/* Requests of the client that are in flight for the lease. */
static uint32_t requests_of(const struct lease *lease, const struct client *client)
{
    uint32_t count = 0;

    list_for_each(request, &lease->requests, struct request, lease_link) count +=
        request->client == client;
    return count;
}

/* The lease that the event may change; NULL after an answer. */
static struct lease *lease_for_change(
    struct core *core, struct client *client, const struct core_event *event, core_id id)
{
    struct lease *lease = lease_find(core, client, id);
    uint32_t requests;

    if (!lease) {
        answer_refuse(
            core, event, GMB_STATUS_NOT_FOUND, GMB_LIMIT_NONE, "the client has no such lease");
        return NULL;
    }
    requests = requests_of(lease, client);
    if (requests == 0)
        return lease;
    answer_refuse(core, event, GMB_STATUS_INVALID, GMB_LIMIT_NONE,
        "%u requests to grow the lease are in flight: cancel them first", requests);
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
            "the lease is no workspace: its chunks are returned by index");
        return;
    }
    if (keep == 0 || keep > lease->count) {
        answer_refuse(core, event, GMB_STATUS_INVALID, GMB_LIMIT_NONE,
            "the lease has %u chunks and can't keep %u%s", lease->count, keep,
            keep == 0 ? ": release it instead" : "");
        return;
    }
    workspace_truncate(core, holder_find(lease, client), keep);
    answer_done(core, event);
}

static bool run_held(const struct holder *holder, uint32_t first, uint32_t count)
{
    uint32_t max = holder->lease->max;

    if (count == 0 || first >= max || count > max - first)
        return false;
    for (uint32_t i = 0; i < count; i++) {
        if (!holder_has(holder, first + i))
            return false;
    }
    return true;
}

void lease_return_event(struct core *core, struct client *client, const struct core_event *event)
{
    uint32_t first = event->arena_return.first, count = event->arena_return.count;
    struct lease *lease = lease_find(core, client, event->arena_return.lease);
    struct holder *holder = lease ? holder_find(lease, client) : NULL;

    if (!holder) {
        answer_refuse(
            core, event, GMB_STATUS_NOT_FOUND, GMB_LIMIT_NONE, "the client has no such lease");
        return;
    }
    if (lease->kind == CORE_LEASE_SEGMENT && !client->steward) {
        answer_refuse(core, event, GMB_STATUS_INVALID, GMB_LIMIT_NONE,
            "the lease is a segment: it is given back whole");
        return;
    }
    if (!run_held(holder, first, count)) {
        answer_refuse(core, event, GMB_STATUS_INVALID, GMB_LIMIT_NONE,
            "not all of the %u indices from %u are filled ones of an arena that the client has",
            count, first);
        return;
    }
    for (uint32_t i = 0; i < count; i++)
        chunk_let_go(core, holder, first + i);
    answer_done(core, event);
}

/* The holder lets go of what it may go on to map: nobody gets it again. From the end, so that what
 * is written of it and cut off leaves no hole. */
static void lease_forsake(struct holder *holder)
{
    struct lease *lease = holder->lease;

    for (uint32_t i = lease->max > 0 ? lease->max : holder->count; i-- > 0;) {
        if (holder_has(holder, i))
            chunk_forsake(lease->chunks[i]);
    }
}

void lease_release_event(struct core *core, struct client *client, const struct core_event *event)
{
    struct lease *lease = lease_for_change(core, client, event, event->lease_release.lease);

    if (!lease)
        return;
    if (event->lease_release.held)
        lease_forsake(holder_find(lease, client));
    lease_let_go(core, holder_find(lease, client));
    answer_done(core, event);
}
