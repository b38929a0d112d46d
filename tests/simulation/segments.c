/*
 * Segments: processes ask for them, their tenant's steward becomes a holder when they are sealed,
 * others read them. Most of what a steward does is what the shell would let it do; the rest the
 * core must bear, too.
 */
#include "tests/simulation/model.h"

void model_segment_request(struct model *model, struct model_client *client)
{
    static const uint64_t nonsense[] = {0, UINT64_MAX};
    struct core_event event = {.type = CORE_EVENT_SEGMENT_REQUEST};
    uint64_t wait_ns = model_wait(model);
    struct model_request *request = model_ask(model, client, 0, 1, wait_ns, &event);

    if (!request)
        return;
    event.lease_request.device = (uint32_t) model_below(model, MODEL_DEVICES);
    event.lease_request.bytes = (1 + model_below(model, 24)) * 2 * MIB - model_below(model, 2);
    if (model_chance(model, 40))
        event.lease_request.bytes = nonsense[model_below(model, ARRAY_SIZE(nonsense))];
    event.lease_request.chunk_bytes = model_chunk_bytes(model);
    event.lease_request.wait_ns = wait_ns;
    request->device = event.lease_request.device;
    request->segment = true;
    model_step(model, &event);
}

static struct model_lease *random_segment(struct model *model, struct model_client *client)
{
    unsigned start = (unsigned) model_below(model, MODEL_LEASES);

    for (unsigned i = 0; i < MODEL_LEASES; i++) {
        struct model_lease *lease = &client->leases[(start + i) % MODEL_LEASES];

        if (lease->id != 0 && lease->segment)
            return lease;
    }
    return NULL;
}

/* Made if need be; whose tenant is there has one and no second. */
static struct model_client *steward_get(struct model *model, unsigned tenant)
{
    struct model_client *steward = &model->clients[MODEL_PROCESSES + tenant], second = {0};
    uint32_t index;

    if (steward->id == 0)
        model_client_add(model, steward, tenant, true);
    if ((steward->id != 0) != core_tenant_find(model->core, model->names[tenant], &index))
        model_fail(model, "tenant %s has a steward, or none, and shouldn't", model->names[tenant]);
    if (model_chance(model, 20))
        model_client_add(model, &second, tenant, true);
    if (second.id != 0)
        model_fail(model, "tenant %s has two stewards", model->names[tenant]);
    return steward->id != 0 ? steward : NULL;
}

void model_segment_seal(struct model *model, struct model_client *client)
{
    const struct model_lease *lease = random_segment(model, client);
    struct model_client *steward;
    struct model_lease *own;

    if (!lease)
        return;
    steward = steward_get(model, (unsigned) client->tenant);
    own =
        steward && !model_lease_of(steward, lease->id) ? model_attach(model, steward, lease) : NULL;
    if (!own)
        return;
    model_share_run(model, steward, own, 0, own->max);
    model->seals += own->open;
}

static bool held_by_steward_alone(const struct model *model, const struct model_lease *lease)
{
    struct core_lease_view view;

    return core_lease_get(model->core, lease->id, &view) && view.holders == 1;
}

/* To the host tier, whose bytes the core knows nothing of, or back from there. */
static void segment_move(
    struct model *model, struct model_client *steward, struct model_lease *lease)
{
    uint64_t all = model_run(0, lease->max), filled = lease->filled;
    uint32_t first = (uint32_t) model_below(model, lease->max), count = 1;

    if (model_chance(model, 10)) {
        if (model_chance(model, 2))
            model_fill_run(model, steward, lease, first, count);
        else
            model_return_run(model, steward, lease, first, count);
    } else if (filled == 0) {
        model_fill_run(model, steward, lease, 0, lease->max);
    } else if (filled == all && (held_by_steward_alone(model, lease) || model_chance(model, 8))) {
        model_return_run(model, steward, lease, 0, lease->max);
        model->demotions += lease->filled == 0;
    }
}

void model_steward_event(struct model *model)
{
    unsigned start = (unsigned) model_below(model, MODEL_TENANTS);
    struct model_client *steward = NULL;
    struct model_lease *lease;
    uint64_t kind = model_below(model, 12);

    for (unsigned i = 0; i < MODEL_TENANTS && !steward; i++) {
        struct model_client *at = &model->clients[MODEL_PROCESSES + (start + i) % MODEL_TENANTS];

        if (at->id != 0 && (random_segment(model, at) || model_chance(model, 4)))
            steward = at;
    }
    if (!steward)
        return;
    lease = random_segment(model, steward);
    if (!lease || model_chance(model, 200)) {
        if (kind == 0)
            model_client_die(model, steward);
    } else if (kind == 0) {
        model->removals += !model_grows(steward, lease->id);
        model_release(model, steward, lease, false);
    } else if (kind == 1) {
        model_cancel(model, steward);
    } else {
        segment_move(model, steward, lease);
    }
}

void model_segments_lose(struct model *model)
{
    for (unsigned c = 0; c < MODEL_CLIENTS; c++) {
        struct model_client *client = &model->clients[c];

        for (unsigned i = 0; client->id != 0 && !client->detached && i < MODEL_LEASES; i++) {
            if (client->leases[i].id == 0 || !client->leases[i].segment)
                continue;
            model_release(model, client, &client->leases[i], !model_steward(model, client));
            model->lost++;
        }
    }
}
