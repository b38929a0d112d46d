/* See stalled.h. */
#include "daemon/core/stalled.h"

#include "daemon/core/account.h"

/* Weight of one wait in the moving mean. */
#define WAIT_SHARE 8

static struct client_device *place_of(const struct account *account, struct client *client)
{
    return &client->devices[account->device->index];
}

/* The account's counts have changed. */
static void account_state(struct core *core, struct account *account)
{
    stall_change(&account->stall, core->now_ns, account->stalled_clients, account->active_clients);
    account_touch(account);
}

static void place_state(
    struct core *core, struct account *account, struct client_device *place, bool changed)
{
    bool stalled = place->waiting > 0 || place->restoring;

    if (stalled != place->stalled) {
        place->stalled = stalled;
        account->stalled_clients += stalled ? 1 : UINT32_MAX;
        changed = true;
    }
    if (changed)
        account_state(core, account);
}

void stalled_request(struct core *core, struct account *account, struct client *client, int by)
{
    struct client_device *place = place_of(account, client);

    if (client->state != CLIENT_ACTIVE || client->steward)
        return;
    place->waiting = (uint16_t) (place->waiting + by);
    place_state(core, account, place, false);
}

void stalled_lease(struct core *core, struct account *account, struct client *client, int by)
{
    struct client_device *place = place_of(account, client);
    bool active = place->leases > 0;

    if (client->state != CLIENT_ACTIVE || client->steward)
        return;
    place->leases += (uint32_t) by;
    if (active == (place->leases > 0))
        return;
    account->active_clients += (uint32_t) by;
    account_state(core, account);
}

void stalled_restore_event(struct core *core, const struct core_event *event)
{
    struct client *client = slots_find(&core->clients, event->client);
    uint32_t device = event->restore_wait.device;

    if (!client || client->state != CLIENT_ACTIVE || client->steward ||
        device >= core->device_count)
        return;
    client->devices[device].restoring = event->restore_wait.waits;
    place_state(core, &client->tenant->accounts[device], &client->devices[device], false);
}

void stalled_enter(struct core *core, struct client *client)
{
    list_for_each(holder, &client->holdings, struct holder, client_link)
        stalled_lease(core, holder->lease->account, client, 1);
}

void stalled_leave(struct core *core, struct client *client)
{
    if (client->state != CLIENT_ACTIVE)
        return;
    for (uint32_t i = 0; i < core->device_count; i++) {
        struct account *account = &client->tenant->accounts[i];
        struct client_device *place = &client->devices[i];
        bool active = place->leases > 0;

        account->active_clients -= active;
        *place = (struct client_device){.stalled = place->stalled};
        place_state(core, account, place, active);
    }
}

void stalled_waited(struct core *core, const struct request *request)
{
    struct account *account = request->lease->account;
    uint64_t since_ns = sub_saturate(request->deadline.key, request->wait_ns);
    uint64_t waited_ns = sub_saturate(core->now_ns, since_ns);
    uint64_t mean_ns = account->wait_mean_ns;

    if (waited_ns == 0)
        return;
    account->wait_mean_ns =
        mean_ns == 0 ? waited_ns : mean_ns - mean_ns / WAIT_SHARE + waited_ns / WAIT_SHARE;
}
