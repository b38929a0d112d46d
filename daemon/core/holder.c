/* See holder.h. A workspace has one holder, which has all of it: no bits are kept for that. */
#include "daemon/core/holder.h"

#include <assert.h>

#include "daemon/core/answer.h"
#include "daemon/core/change.h"
#include "daemon/core/chunk.h"
#include "daemon/core/lease.h"
#include "daemon/core/request.h"
#include "daemon/core/stalled.h"

static_assert(LIMIT_LEASE_HOLDERS <= UINT16_MAX && LIMIT_SEGMENT_HOLDERS <= UINT16_MAX,
    "a chunk can count its holders");

/* The first that no holder has. */
static uint8_t place_find(const struct lease *lease)
{
    uint32_t taken = 0;

    list_for_each(holder, &lease->holders, struct holder, lease_link) taken |= 1u << holder->place;
    return (uint8_t) __builtin_ctz(~taken);
}

static struct holder *holder_make(struct core *core, struct lease *lease, struct client *client)
{
    size_t words = (lease->max + HOLDER_WORD_BITS - 1) / HOLDER_WORD_BITS;
    struct holder *holder = calloc(1, sizeof(*holder) + words * sizeof(holder->has[0]));

    if (!holder)
        return NULL;
    holder->lease = lease;
    holder->client = client;
    list_init(&holder->client_link);
    list_init(&holder->lease_link);
    client->tenant->attached += lease->holder_count > 0;
    list_append(&lease->holders, &holder->lease_link);
    lease->holder_count++;
    stalled_lease(core, lease->account, client, 1);
    return holder;
}

struct holder *holder_new_at(
    struct core *core, struct lease *lease, struct client *client, uint8_t place)
{
    struct holder *holder = holder_make(core, lease, client);

    if (holder)
        holder->place = place;
    return holder;
}

struct holder *holder_new_seated(
    struct core *core, struct lease *lease, struct client *client, struct seat *seat)
{
    struct holder *holder = holder_make(core, lease, client);

    if (!holder) {
        slots_give(&core->seats, seat);
        return NULL;
    }
    holder->seat = seat;
    seat->holder = holder;
    return holder;
}

struct holder *holder_new(struct core *core, struct lease *lease, struct client *client)
{
    void *seat;

    if (lease->kind != CORE_LEASE_SEGMENT)
        return holder_new_at(core, lease, client, place_find(lease));
    if (slots_take(&core->seats, &seat) != SLOTS_OK)
        return NULL;
    return holder_new_seated(core, lease, client, seat);
}

void holder_free(struct core *core, struct holder *holder)
{
    struct lease *lease = holder->lease;

    stalled_lease(core, lease->account, holder->client, -1);
    if (list_linked(&holder->client_link))
        holder->client->holding_count--;
    list_remove(&holder->client_link);
    list_remove(&holder->lease_link);
    lease->holder_count--;
    change_holder(holder);
    holder->client->tenant->attached -= lease->holder_count > 0;
    if (holder->seat)
        slots_give(&core->seats, holder->seat);
    free(holder);
}

void holder_enter(struct holder *holder)
{
    list_append(&holder->client->holdings, &holder->client_link);
    holder->client->holding_count++;
    change_holder(holder);
}

struct holder *holder_find(const struct lease *lease, const struct client *client)
{
    list_for_each(holder, &lease->holders, struct holder, lease_link)
    {
        if (holder->client == client)
            return holder;
    }
    return NULL;
}

void holder_give(struct holder *holder, uint32_t index)
{
    if (holder->lease->max > 0)
        holder->has[index / HOLDER_WORD_BITS] |= UINT64_C(1) << index % HOLDER_WORD_BITS;
    holder->count++;
    holder->lease->chunks[index]->holders++;
    holder->client->leased_bytes += holder->lease->chunk_bytes;
}

bool holder_take(struct holder *holder, uint32_t index)
{
    struct chunk *chunk = holder->lease->chunks[index];

    if (holder->lease->max > 0)
        holder->has[index / HOLDER_WORD_BITS] &= ~(UINT64_C(1) << index % HOLDER_WORD_BITS);
    holder->count--;
    holder->client->leased_bytes -= holder->lease->chunk_bytes;
    if (holder->client->state == CLIENT_DEAD && !chunk->forsaken)
        chunk_forsake(chunk);
    return --chunk->holders == 0;
}

/* ------------------------------------------------------------------ further holders */

/* An active lease of the client's tenant. That of another tenant isn't told from none. */
static struct lease *lease_of_tenant(struct core *core, const struct client *client, core_id id)
{
    struct lease *lease = slots_find(&core->leases, id);

    return lease && lease->state == LEASE_ACTIVE && lease->account->tenant == client->tenant ? lease
                                                                                             : NULL;
}

uint32_t holders_max(const struct lease *lease)
{
    return lease->kind == CORE_LEASE_SEGMENT ? LIMIT_SEGMENT_HOLDERS : LIMIT_LEASE_HOLDERS;
}

static bool attach_allowed(struct core *core, const struct lease *lease,
    const struct client *client, const struct core_event *event)
{
    const struct tenant *tenant = client->tenant;

    if (!lease)
        answer_refuse(core, event, GMB_STATUS_DENIED, GMB_LIMIT_PERMISSION,
            "tenant %s has no such arena", tenant->name);
    else if (lease->max == 0)
        answer_refuse(core, event, GMB_STATUS_INVALID, GMB_LIMIT_NONE,
            "the lease is a workspace, which one process has alone");
    else if (holder_find(lease, client))
        answer_refuse(
            core, event, GMB_STATUS_INVALID, GMB_LIMIT_NONE, "the client holds the lease already");
    else if (lease->holder_count >= holders_max(lease))
        answer_refuse(core, event, GMB_STATUS_EXHAUSTED, GMB_LIMIT_HOLDERS,
            "a lease of this kind has at most %u holders", holders_max(lease));
    else if (tenant->attached >= LIMIT_HOLDERS_PER_TENANT)
        answer_refuse(core, event, GMB_STATUS_EXHAUSTED, GMB_LIMIT_HOLDERS,
            "tenant %s: its clients are attached to %d leases of each other", tenant->name,
            LIMIT_HOLDERS_PER_TENANT);
    else
        return true;
    return false;
}

void holder_attach_event(struct core *core, struct client *client, const struct core_event *event)
{
    struct lease *lease = lease_of_tenant(core, client, event->lease_attach.lease);
    struct holder *holder;

    if (!request_allowed(core, client, event, 1) || !attach_allowed(core, lease, client, event))
        return;
    holder = holder_new(core, lease, client);
    if (!holder) {
        answer_refuse(core, event, GMB_STATUS_INTERNAL, GMB_LIMIT_NONE,
            "no host memory in the broker for another holder");
        return;
    }
    holder_enter(holder);
    answer_grant(core, event, lease, 0, 0);
}

/* Whether others have all of the run, and this one none of it. */
static bool run_shareable(const struct holder *holder, uint32_t first, uint32_t count)
{
    const struct lease *lease = holder->lease;

    if (first > lease->max || count > lease->max - first)
        return false;
    for (uint32_t i = first; i < first + count; i++) {
        const struct chunk *chunk = lease->chunks[i];

        if (!chunk || chunk->holders == 0 || holder_has(holder, i))
            return false;
    }
    return true;
}

void holder_share_event(struct core *core, struct client *client, const struct core_event *event)
{
    uint32_t first = event->arena_share.first, count = event->arena_share.count;
    struct lease *lease = lease_find(core, client, event->arena_share.lease);
    struct holder *holder = lease ? holder_find(lease, client) : NULL;

    if (!holder) {
        answer_refuse(
            core, event, GMB_STATUS_NOT_FOUND, GMB_LIMIT_NONE, "the client has no such lease");
        return;
    }
    if (!run_shareable(holder, first, count)) {
        answer_refuse(core, event, GMB_STATUS_INVALID, GMB_LIMIT_NONE,
            "not all of the %u indices from %u are filled ones that only others have", count,
            first);
        return;
    }
    holder->open = true;
    change_holder(holder);
    for (uint32_t i = first; i < first + count; i++)
        holder_give(holder, i);
    answer_grant(core, event, lease, first, count);
}
