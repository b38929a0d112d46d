/*
 * The end of a connection and the end of a process are two things. A detached client asks nothing
 * any more, but what it maps is still mapped: its leases stay charged until its process is dead.
 */
#include "daemon/core/client.h"

#include "daemon/core/answer.h"
#include "daemon/core/change.h"
#include "daemon/core/lease.h"
#include "daemon/core/pressure.h"
#include "daemon/core/request.h"
#include "daemon/core/stalled.h"
#include "daemon/core/states.h"
#include "daemon/core/tenant.h"

/* What of all places is promised, evenly, to tenants that don't use them yet. */
#define PLACES_PROMISED 4 /* a quarter */

/*
 * One tenant's clients, dead connections of living processes among them, must not keep out those of
 * another. Walks the tenants; it is one Hello's cost.
 */
static uint32_t places_promised(
    const struct core *core, const struct tenant *asking, uint32_t total)
{
    uint32_t share = total / PLACES_PROMISED / MAX(core->tenant_count, 1u), promised = 0;

    for (uint32_t i = 0; i < core->tenant_high; i++) {
        const struct tenant *tenant = core->tenants[i];

        if (tenant && tenant != asking && tenant->configured)
            promised += (uint32_t) sub_saturate(MIN(share, tenant->clients_max), tenant->clients);
    }
    return promised;
}

static bool client_allowed(
    struct core *core, const struct tenant *tenant, const struct core_event *event)
{
    uint32_t total = core->options.clients_max;

    if (total == 0 || total > LIMIT_CLIENTS)
        total = LIMIT_CLIENTS;
    if (!tenant || (!tenant->configured && !event->client_add.steward))
        answer_refuse(core, event, GMB_STATUS_NOT_FOUND, GMB_LIMIT_NONE, "no tenant %.64s",
            event->client_add.tenant ? event->client_add.tenant : "");
    else if (event->client_add.steward && tenant->stewards > 0)
        answer_refuse(core, event, GMB_STATUS_CONFLICT, GMB_LIMIT_NONE,
            "tenant %s has its steward already", tenant->name);
    else if (event->client_add.steward)
        return true;
    else if (tenant->clients >= tenant->clients_max)
        answer_refuse(core, event, GMB_STATUS_EXHAUSTED, GMB_LIMIT_CLIENTS_MAX,
            "tenant %s: ClientsMax=%u clients are there", tenant->name, tenant->clients_max);
    else if (core->clients.used - core->stewards >= total - places_promised(core, tenant, total))
        answer_refuse(core, event, GMB_STATUS_EXHAUSTED, GMB_LIMIT_CLIENTS_MAX,
            "the broker serves at most %u clients, and keeps some places for each tenant", total);
    else
        return true;
    return false;
}

void client_slots_init(struct core *core)
{
    slots_done(&core->clients);
    slots_init(&core->clients,
        sizeof(struct client) + core->device_count * sizeof(struct client_device),
        LIMIT_CLIENTS + LIMIT_TENANTS);
}

/* A tenant has a steward at most: they need no limit of their own. */
void client_count(struct core *core, const struct client *client, int by)
{
    struct tenant *tenant = client->tenant;
    bool none = tenant->clients == 0;

    if (client->steward) {
        tenant->stewards += (uint32_t) by;
        core->stewards += (uint32_t) by;
        return;
    }
    tenant->clients += (uint32_t) by;
    if (none != (tenant->clients == 0))
        pressure_clients_changed(core, tenant);
}

void client_add_event(struct core *core, const struct core_event *event)
{
    struct tenant *tenant = tenant_find(core, event->client_add.tenant);
    struct core_action *action;
    struct client *client;
    void *item;

    if (!client_allowed(core, tenant, event))
        return;
    if (slots_take(&core->clients, &item) != SLOTS_OK) {
        answer_refuse(core, event, GMB_STATUS_INTERNAL, GMB_LIMIT_NONE,
            "no host memory in the broker for another client");
        return;
    }
    client = item;
    client->tenant = tenant;
    list_init(&client->holdings);
    list_init(&client->requests);
    client->steward = event->client_add.steward;
    client_set_state(client, CLIENT_ACTIVE);
    client_count(core, client, 1);
    change_client(core, client);
    action = answer_add(core, CORE_ACTION_CLIENT_ADDED);
    action->client = slot_id(&client->slot);
    action->cookie = event->cookie;
}

static void client_drop_requests(struct core *core, struct client *client)
{
    /* The parts of a gang go together. */
    while (!list_empty(&client->requests))
        request_drop(core, list_first(&client->requests, struct request, client_link));
}

static void client_end(struct core *core, struct client *client)
{
    answer_add(core, CORE_ACTION_CLIENT_GONE)->client = slot_id(&client->slot);
    client_count(core, client, -1);
    change_client(core, client);
    if (client->state != CLIENT_DEAD)
        client_set_state(client, CLIENT_DEAD);
    slots_give(&core->clients, client);
}

void client_detach_event(struct core *core, struct client *client, const struct core_event *event)
{
    if (client->state == CLIENT_ACTIVE) {
        stalled_leave(core, client);
        client_set_state(client, CLIENT_DETACHED);
        client_drop_requests(core, client);
    }
    if (list_empty(&client->holdings) && !event->client_detach.keep)
        client_end(core, client);
}

void client_attach_event(struct core *core, struct client *client)
{
    if (client->state != CLIENT_DETACHED)
        return;
    client_set_state(client, CLIENT_ACTIVE);
    stalled_enter(core, client);
}

void client_dead_event(struct core *core, struct client *client)
{
    stalled_leave(core, client);
    client_set_state(client, CLIENT_DEAD);
    client_drop_requests(core, client);
    list_for_each_safe(holder, &client->holdings, struct holder, client_link)
        lease_let_go(core, holder);
    client_end(core, client);
}
