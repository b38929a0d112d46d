/* Arenas with several holders: clients attach to those of others, of their own tenant and (in vain)
 * of another, and are given what is there, more often than not runs that make sense. */
#include "tests/simulation/model.h"

/* A random arena that some client knows of; mostly one of the tenant's. */
static struct model_lease *random_victim(struct model *model, int tenant)
{
    unsigned start = (unsigned) model_below(model, MODEL_CLIENTS);
    bool foreign = model_chance(model, 8);

    for (unsigned i = 0; i < MODEL_CLIENTS; i++) {
        struct model_client *client = &model->clients[(start + i) % MODEL_CLIENTS];

        if (client->id == 0 || (client->tenant != tenant) != foreign)
            continue;
        for (unsigned k = 0; k < MODEL_LEASES; k++) {
            if (client->leases[k].id != 0 && (client->leases[k].max > 0 || model_chance(model, 9)))
                return &client->leases[k];
        }
    }
    return NULL;
}

static unsigned holders_count(struct model *model, core_id lease)
{
    unsigned count = 0;

    for (unsigned i = 0; i < MODEL_CLIENTS; i++)
        count += model->clients[i].id != 0 && model_lease_of(&model->clients[i], lease) != NULL;
    return count;
}

static bool tenant_of(struct model *model, core_id lease, int tenant)
{
    for (unsigned i = 0; i < MODEL_CLIENTS; i++) {
        if (model->clients[i].id != 0 && model_lease_of(&model->clients[i], lease) != NULL)
            return model->clients[i].tenant == tenant;
    }
    return false;
}

static bool configured(const struct model *model, int tenant)
{
    struct core_tenant_view view;
    uint32_t index;

    return core_tenant_find(model->core, model->names[tenant], &index) &&
           core_tenant_get(model->core, index, &view) && view.configured;
}

struct model_lease *model_attach(
    struct model *model, struct model_client *client, const struct model_lease *arena)
{
    struct core_event event = {.type = CORE_EVENT_LEASE_ATTACH, .lease_attach.lease = arena->id};
    bool before = model_lease_of(client, arena->id) != NULL;
    bool allowed = arena->max > 0 && tenant_of(model, arena->id, client->tenant) && !before &&
                   (arena->segment || holders_count(model, arena->id) < LIMIT_LEASE_HOLDERS) &&
                   configured(model, client->tenant);
    struct model_request *request = model_ask(model, client, 0, 1, 0, &event);
    struct model_lease *mine;

    if (!request)
        return NULL;
    request->attach = true;
    request->segment = arena->segment;
    request->device = arena->device;
    request->max = arena->max;
    model_step(model, &event);
    mine = model_lease_of(client, event.lease_attach.lease);
    if (request->id != 0)
        model_fail(model, "an attach was not answered at once");
    if ((mine != NULL) != (allowed || before))
        model_fail(model, "a client attached to what it may not, or the other way round");
    model->attached += allowed;
    model_arena_compare(model, event.lease_attach.lease);
    return allowed ? mine : NULL;
}

void model_arena_attach(struct model *model, struct model_client *client)
{
    const struct model_lease *arena = random_victim(model, client->tenant);
    struct model_lease *mine;

    if (!arena || client->detached)
        return;
    mine = model_attach(model, client, arena);
    /* A segment's reader mostly reads all of it. */
    if (mine && mine->segment && !model_chance(model, 8))
        model_share_run(model, client, mine, 0, mine->max);
}

void model_arena_share(struct model *model, struct model_client *client)
{
    unsigned start = (unsigned) model_below(model, MODEL_LEASES);
    struct model_lease *lease = NULL;

    for (unsigned i = 0; i < MODEL_LEASES && !lease; i++) {
        struct model_lease *at = &client->leases[(start + i) % MODEL_LEASES];

        if (at->id != 0 && at->max > 0 && (!at->open || model_chance(model, 3)))
            lease = at;
    }
    if (!lease || client->detached)
        return;
    if (lease->segment && model_chance(model, 2))
        model_share_run(model, client, lease, 0, lease->max);
    else
        model_share_run(model, client, lease, (uint32_t) model_below(model, lease->max + 1),
            (uint32_t) model_below(model, 4));
}

void model_share_run(struct model *model, struct model_client *client, struct model_lease *lease,
    uint32_t first, uint32_t count)
{
    struct core_event event = {.type = CORE_EVENT_ARENA_SHARE};
    struct model_request *request = model_ask(model, client, lease->id, 0, 0, &event);
    bool sensible = count <= lease->max - first;
    uint32_t chunk, generation;

    if (!request)
        return;
    request->share = true;
    request->device = MODEL_DEVICES; /* also where one is drained: no memory is taken */
    request->first = event.arena_share.first = first;
    request->count = event.arena_share.count = count;
    event.arena_share.lease = lease->id;
    for (uint32_t i = first; sensible && i < first + count; i++)
        sensible = (lease->filled >> i & 1) == 0 &&
                   core_lease_chunk(model->core, lease->id, i, &chunk, &generation);
    lease->open = lease->open || sensible;
    model_step(model, &event);
    if (request->id != 0)
        model_fail(model, "a share was not answered at once");
    for (uint32_t i = first; sensible && i < first + count; i++) {
        if (!core_holder_has(model->core, lease->id, client->id, i))
            model_fail(model, "what is there was not shared");
    }
    model_arena_compare(model, event.arena_share.lease);
}
