/*
 * What must hold after each step: the ledger itself (core_check), and what the core cannot know of
 * itself: nobody is answered twice or after it can't hear, no chunk goes from one tenant to
 * another, none that is held is released, none is used before it is made, no tenant grows past its
 * limit.
 */
#include "tests/simulation/model.h"

#include <string.h>

static void mix(struct model *model, uint64_t value)
{
    model->hash = (model->hash ^ value) * UINT64_C(0x100000001b3); /* FNV-1a, by words */
}

static struct model_client *client_of(struct model *model, core_id id)
{
    for (unsigned i = 0; i < MODEL_CLIENTS; i++) {
        if (id != 0 && model->clients[i].id == id)
            return &model->clients[i];
    }
    return NULL;
}

static struct model_request *request_of(struct model_client *client, uint64_t id)
{
    for (unsigned i = 0; i < MODEL_REQUESTS; i++) {
        if (id != 0 && client->requests[i].id == id)
            return &client->requests[i];
    }
    return NULL;
}

struct model_lease *model_lease_of(struct model_client *client, core_id id)
{
    for (unsigned i = 0; i < MODEL_LEASES; i++) {
        if (client->leases[i].id == id)
            return &client->leases[i];
    }
    return NULL;
}

/* `more`: to another holder of what is held already. */
static void watch_granted_chunk(struct model *model, struct model_client *client,
    const struct model_lease *lease, uint32_t index, bool more)
{
    uint32_t number, generation;
    struct model_chunk *chunk;

    if (!core_lease_chunk(model->core, lease->id, index, &number, &generation))
        model_fail(model, "a granted chunk is not there");
    chunk = &model->chunks[number];
    if (!chunk->created || chunk->generation != generation)
        model_fail(model, "chunk %u is granted before it is made", number);
    if ((chunk->holders != 0) != more || (chunk->holders & model_bit(model, client)) != 0)
        model_fail(model, "chunk %u is granted twice", number);
    if ((chunk->forsaken || chunk->mapped != 0) && !more)
        model_fail(model, "chunk %u is granted though a process may map it", number);
    if (chunk->segment && !more)
        model_fail(model, "chunk %u of a segment is granted again", number);
    if (chunk->tenant >= 0 && chunk->tenant != client->tenant)
        model_fail(model, "chunk %u goes from one tenant to another", number);
    chunk->tenant = client->tenant;
    chunk->holders |= model_bit(model, client);
    chunk->changed_step = model->steps;
    chunk->segment = lease->segment;
    if (!core_holder_has(model->core, lease->id, client->id, index))
        model_fail(model, "chunk %u was granted to a client that hasn't got it", number);
    chunk->leaky = !model->calm && model_chance(model, 40);
}

/* Every other client that takes part in the arena gets what is filled, too. */
static void watch_others(
    struct model *model, const struct model_client *filler, const struct core_action *action)
{
    for (unsigned i = 0; i < MODEL_CLIENTS; i++) {
        struct model_client *client = &model->clients[i];
        struct model_lease *lease = client->id != 0 && client != filler && !client->detached
                                        ? model_lease_of(client, action->grant.lease)
                                        : NULL;

        if (!lease || !lease->open)
            continue;
        lease->filled |= model_run(action->grant.first, action->grant.count);
        for (uint32_t k = 0; k < action->grant.count; k++)
            watch_granted_chunk(model, client, lease, action->grant.first + k, true);
        model->shared++;
    }
}

/* A workspace grows at its end, an arena where it was asked for and nothing is. */
static void watch_place(struct model *model, const struct model_request *request,
    struct model_lease *lease, const struct core_action *action)
{
    uint32_t first = action->grant.first, count = action->grant.count;
    uint64_t run;

    if (lease->max == 0) {
        if (first != lease->chunks || count == 0)
            model_fail(model, "a grant that doesn't follow on the lease");
        lease->chunks += count;
        return;
    }
    if (first != request->first || count != request->count)
        model_fail(model, "an arena is filled at other indices");
    if (count == 0)
        return;
    run = model_run(first, count);
    model->fills += !request->share;
    model->restores += lease->segment && !request->share && request->lease != 0;
    if ((lease->filled & run) != 0)
        model_fail(model, "an index of an arena is filled twice");
    lease->filled |= run;
}

/* A wish has somebody who wishes; whoever is to give itself is held back by its own limit. */
static void watch_reclaim(struct model *model, const struct core_action *action)
{
    struct core_tenant_device_view use;
    struct core_tenant_view tenant;
    struct model_device *d = &model->devices[action->reclaim.device];

    if (action->reclaim.device >= MODEL_DEVICES || action->reclaim.bytes == 0 ||
        !core_tenant_get(model->core, action->reclaim.tenant, &tenant) || !tenant.configured)
        model_fail(model, "a wish for memory without sense");
    (void) core_tenant_device_get(
        model->core, action->reclaim.tenant, action->reclaim.device, &use);
    if (tenant.waiting == 0 && (!action->reclaim.own || use.overage == 0))
        model_fail(model, "tenant %s wishes for memory and needs none", tenant.name);
    if ((d->draining && !action->reclaim.own) || d->failed)
        model_fail(model, "a device that is drained, or failed, is to give memory to others");
    d->wished_bytes = action->reclaim.bytes;
    d->wished_of = -1;
    for (int t = 0; action->reclaim.own && t < MODEL_TENANTS; t++) {
        if (strcmp(model->names[t], tenant.name) == 0)
            d->wished_of = t;
    }
    model->reclaims++;
    model->own_reclaims += action->reclaim.own;
}

static bool device_closed(const struct model_device *device)
{
    return device->draining || device->failed;
}

/* All of it at once; its size is the core's word. */
static void watch_segment(
    struct model *model, struct model_request *request, const struct core_action *action)
{
    struct core_lease_view view = {0};

    if (!core_lease_get(model->core, action->grant.lease, &view) ||
        view.kind != CORE_LEASE_SEGMENT || view.max_chunks == 0 || view.max_chunks > 64 ||
        view.chunks != view.max_chunks)
        model_fail(model, "a segment is not granted whole");
    request->max = request->count = view.max_chunks;
}

static void watch_grant(struct model *model, const struct core_action *action)
{
    struct model_client *client = client_of(model, action->client);
    struct model_request *request = client ? request_of(client, action->request) : NULL;
    struct model_lease *lease;

    if (!request || client->detached)
        model_fail(model, "a grant that nobody asked for");
    lease = model_lease_of(
        client, request->attach ? 0 : request->lease); /* a free place for a new one */
    if (!lease || (request->lease != 0 && request->lease != action->grant.lease))
        model_fail(model, "a grant for another lease");
    if (action->grant.part != request->seen || action->grant.parts != MAX(request->parts, 1u))
        model_fail(model, "a part of a gang out of turn");
    if (request->parts > 0)
        request->device = request->devices[request->seen++];
    if (request->device < MODEL_DEVICES && device_closed(&model->devices[request->device]) &&
        !request->attach)
        model_fail(model, "a grant on a device that is drained, or failed");
    if (request->segment && !request->attach)
        watch_segment(model, request, action);
    if (lease->id == 0)
        *lease = (struct model_lease){.id = action->grant.lease,
            .device = request->device,
            .max = request->max,
            .open = !request->attach,
            .segment = request->segment};
    watch_place(model, request, lease, action);
    for (uint32_t i = 0; i < action->grant.count; i++)
        watch_granted_chunk(model, client, lease, action->grant.first + i, request->share);
    if (action->grant.count > 0 && lease->max > 0 && !request->share)
        watch_others(model, client, action);
    if (request->seen < request->parts)
        return;
    model->gangs += request->parts > 0;
    *request = (struct model_request){0};
    model->grants++;
}

static void watch_refuse(struct model *model, const struct core_action *action)
{
    struct model_client *client = client_of(model, action->client);
    struct model_request *request = client ? request_of(client, action->request) : NULL;

    if (action->refuse.status == GMB_STATUS_OK || action->refuse.text[0] == '\0')
        model_fail(model, "a refusal that says nothing");
    if ((action->refuse.status == GMB_STATUS_EXHAUSTED ||
            action->refuse.status == GMB_STATUS_OVER_LIMIT ||
            action->refuse.status == GMB_STATUS_TIMED_OUT) &&
        action->refuse.limit == GMB_LIMIT_NONE)
        model_fail(model, "%s by limit %s: %s", status_name(action->refuse.status),
            limit_name(action->refuse.limit), action->refuse.text);
    if (client && client->sync_request == action->request) {
        client->sync_request = 0;
        return;
    }
    if (action->request == 0 || !client)
        return; /* of an event that no client of ours sent */
    if (!request || client->detached)
        model_fail(model, "a refusal that nobody waits for: %s", action->refuse.text);
    if (action->refuse.status == GMB_STATUS_TIMED_OUT) {
        model->timeouts++;
        if (request->deadline_ns > model->now_ns)
            model_fail(model, "timed out before its time");
    }
    *request = (struct model_request){0};
    model->refusals++;
}

static void watch_job(struct model *model, unsigned device, const struct core_action *action)
{
    struct model_device *d = &model->devices[device];

    if (d->job_count == MODEL_JOBS)
        model_fail(model, "too many jobs for device %u", device);
    d->jobs[(d->job_first + d->job_count++) % MODEL_JOBS] = *action;
}

static void watch_create(struct model *model, const struct core_action *action)
{
    struct model_chunk *chunk;

    if (action->chunk.chunk >= MODEL_CHUNKS)
        model_fail(model, "chunk number %u", action->chunk.chunk);
    chunk = &model->chunks[action->chunk.chunk];
    if (chunk->created || chunk->asked)
        model_fail(model, "chunk %u is made twice", action->chunk.chunk);
    *chunk = (struct model_chunk){.generation = action->chunk.generation,
        .device = action->chunk.device,
        .bytes = action->chunk.bytes,
        .tenant = -1,
        .asked = true};
    watch_job(model, action->chunk.device, action);
}

static void watch_release(struct model *model, const struct core_action *action)
{
    struct model_chunk *chunk = &model->chunks[action->chunk.chunk];

    if (!chunk->created || chunk->asked || chunk->generation != action->chunk.generation)
        model_fail(model, "chunk %u is released and isn't there", action->chunk.chunk);
    if (chunk->holders != 0)
        model_fail(model, "chunk %u is released under its holders", action->chunk.chunk);
    chunk->asked = true;
    watch_job(model, action->chunk.device, action);
}

static void watch_action(struct model *model, const struct core_action *action)
{
    struct model_client *client;

    switch (action->type) {
    case CORE_ACTION_GRANT:
        mix(model, action->grant.lease);
        watch_grant(model, action);
        break;
    case CORE_ACTION_REFUSE:
        mix(model, action->refuse.available_bytes);
        watch_refuse(model, action);
        break;
    case CORE_ACTION_DONE:
        client = client_of(model, action->client);
        if (!client || client->sync_request != action->request)
            model_fail(model, "done, what nobody asked for");
        client->sync_request = 0;
        client->sync_done = true;
        break;
    case CORE_ACTION_CHUNK_CREATE:
        mix(model, action->chunk.chunk);
        watch_create(model, action);
        break;
    case CORE_ACTION_CHUNK_RELEASE:
        mix(model, action->chunk.chunk);
        watch_release(model, action);
        break;
    case CORE_ACTION_MEMORY_OBSERVE:
        watch_job(model, action->device.device, action);
        break;
    case CORE_ACTION_RECLAIM:
        mix(model, action->reclaim.bytes);
        watch_reclaim(model, action);
        break;
    case CORE_ACTION_PRESSURE:
        mix(model, action->pressure.device << 16 | action->pressure.tenant);
        model_watch_pressure(model, action);
        break;
    case CORE_ACTION_ADVICE:
        mix(model, action->advice.tenant);
        model_watch_advice(model, action);
        break;
    case CORE_ACTION_DEVICE_ADDED:
    case CORE_ACTION_CONFIGURED:
    case CORE_ACTION_CLIENT_ADDED:
    case CORE_ACTION_CLIENT_GONE: /* the sender of the event looks for them */
    case CORE_ACTION_MAX:
        break;
    }
}

/* What was granted of a gang was all of it. */
static void watch_gangs(struct model *model)
{
    for (unsigned i = 0; i < MODEL_CLIENTS; i++) {
        for (unsigned k = 0; k < MODEL_REQUESTS; k++) {
            if (model->clients[i].requests[k].seen > 0)
                model_fail(model, "a gang was granted in part");
        }
    }
}

/* A tenant is above MemoryMax only if that was set below its use. */
static void watch_limits(struct model *model)
{
    for (unsigned t = 0; t < MODEL_TENANTS; t++) {
        bool over = false;
        uint32_t index;

        if (!core_tenant_find(model->core, model->names[t], &index)) {
            model->lowered[t] = false;
            continue;
        }
        for (unsigned d = 0; d < MODEL_DEVICES; d++) {
            struct core_tenant_device_view view;

            if (core_tenant_device_get(model->core, index, d, &view) && view.overage > 0)
                over = true;
            if (view.orphaned > 0)
                model->orphaned_seen++;
        }
        if (over && !model->lowered[t])
            model_fail(model, "tenant %s grew past its MemoryMax", model->names[t]);
        model->lowered[t] = over;
    }
}

/*
 * The parts make the total. And where no other process interferes, every byte that is not really
 * free is charged to somebody: what the driver holds for us, and what somebody keeps of what it
 * released.
 */
static void watch_devices(struct model *model)
{
    for (unsigned i = 0; i < MODEL_DEVICES; i++) {
        const struct model_device *d = &model->devices[i];
        struct core_device_view v;
        uint64_t charged;

        /* Nothing is asked of one that failed, so nothing is known of what came back there. */
        if (!core_device_get(model->core, i, &v) || v.failed)
            continue;
        charged = v.leased + v.cached + v.clean + v.releasing + v.orphaned;
        if (v.reserve + v.creating + charged + v.unaccounted + v.free != v.total)
            model_fail(model, "device %u: the parts are not the total", i);
        if (model->still && charged < d->held + d->leaked)
            model_fail(model, "device %u: memory in use is charged to nobody", i);
    }
}

void model_step(struct model *model, const struct core_event *event)
{
    /* At times the clock goes back; not where the model counts a deadline from it. */
    uint64_t back_ns = event->type == CORE_EVENT_TICK && model_chance(model, 50)
                           ? model_below(model, model->now_ns)
                           : 0;
    const char *found;

    model->core_ns = MAX(model->core_ns, model->now_ns - back_ns);
    core_step(model->core, event, model->now_ns - back_ns, &model->actions);
    model->steps++;
    mix(model, event->type);
    found = core_check(model->core);
    if (found)
        model_fail(model, "after %s: %s", core_event_type_name(event->type), found);
    for (size_t i = 0; i < model->actions.count; i++) {
        const struct core_action *action = &model->actions.items[i];

        mix(model, (uint64_t) action->type << 32 ^ action->request);
        watch_action(model, action);
    }
    model_watch_quiet(model);
    watch_gangs(model);
    watch_limits(model);
    watch_devices(model);
    model_ledger_step(model);
}
