/* Arenas of up to 64 indices, so that one word says which are filled: runs at random, more often
 * than not ones that make sense, and chunks that come back because they were wished for. */
#include "tests/simulation/model.h"

#define INDICES 64

void model_arena_request(struct model *model, struct model_client *client)
{
    static const uint32_t nonsense[] = {0, LIMIT_LEASE_CHUNKS + 1, UINT32_MAX};
    struct core_event event = {.type = CORE_EVENT_ARENA_REQUEST};
    struct model_request *request = model_ask(model, client, 0, 1, 0, &event);
    uint64_t id = event.request;

    if (!request)
        return;
    event.arena_request.device = (uint32_t) model_below(model, MODEL_DEVICES);
    event.arena_request.chunk_bytes = model_chunk_bytes(model);
    event.arena_request.max_chunks = 1 + (uint32_t) model_below(model, INDICES);
    if (model_chance(model, 40))
        event.arena_request.max_chunks = nonsense[model_below(model, ARRAY_SIZE(nonsense))];
    request->device = event.arena_request.device;
    request->max = event.arena_request.max_chunks;
    model_step(model, &event);
    if (request->id == id)
        model_fail(model, "a new arena was not answered at once");
}

/* A random arena of the client's, on `device` if that isn't negative; NULL when it has none. At
 * times a segment, which is none. */
static struct model_lease *random_arena(
    struct model *model, struct model_client *client, int device)
{
    unsigned start = (unsigned) model_below(model, MODEL_LEASES);

    for (unsigned i = 0; i < MODEL_LEASES; i++) {
        struct model_lease *lease = &client->leases[(start + i) % MODEL_LEASES];

        if (lease->id != 0 && lease->max > 0 && (!lease->segment || model_chance(model, 4)) &&
            (device < 0 || lease->device == (uint32_t) device))
            return lease;
    }
    return NULL;
}

static bool run_within(const struct model_lease *lease, uint32_t first, uint32_t count)
{
    return count > 0 && first < lease->max && count <= lease->max - first;
}

/* Indices that are filled or that a fill in flight will fill, whoever of the holders asked. */
static uint64_t taken(struct model *model, core_id id)
{
    uint64_t bits = 0;

    for (unsigned c = 0; c < MODEL_CLIENTS; c++) {
        struct model_client *client = &model->clients[c];
        const struct model_lease *lease = client->id != 0 ? model_lease_of(client, id) : NULL;

        bits |= lease ? lease->filled : 0;
        for (unsigned i = 0; lease && i < MODEL_REQUESTS; i++) {
            const struct model_request *request = &client->requests[i];

            if (request->id != 0 && request->lease == id && request->count > 0)
                bits |= model_run(request->first, request->count);
        }
    }
    return bits;
}

static void compare_index(
    struct model *model, const struct core_lease_view *view, uint32_t index, uint64_t holders)
{
    uint32_t chunk, generation;

    if (core_lease_chunk(model->core, view->id, index, &chunk, &generation) != (holders != 0))
        model_fail(model, "index %u of an arena is not as it was left", index);
    if (holders != 0 && model->chunks[chunk].holders != holders)
        model_fail(model, "index %u of an arena is not with those who have it", index);
}

void model_arena_compare(struct model *model, core_id id)
{
    struct core_lease_view view = {0};
    bool there = core_lease_get(model->core, id, &view);
    uint64_t holders[INDICES] = {0};
    uint32_t count = 0, filled = 0;

    for (unsigned c = 0; c < MODEL_CLIENTS; c++) {
        struct model_client *client = &model->clients[c];
        const struct model_lease *lease = client->id != 0 ? model_lease_of(client, id) : NULL;

        if (!lease)
            continue;
        count++;
        if (lease->max != view.max_chunks || !core_holder_find(model->core, id, client->id))
            model_fail(model, "an arena is not what it was made");
        for (uint32_t i = 0; i < lease->max; i++)
            holders[i] |= (lease->filled >> i & 1) != 0 ? model_bit(model, client) : 0;
    }
    if (there && view.max_chunks == 0)
        return; /* a workspace that somebody tried to attach to */
    if (there != (count > 0) || view.holders != count)
        model_fail(model, "an arena has %u holders and should have %u", view.holders, count);
    for (uint32_t i = 0; i < view.max_chunks; i++) {
        compare_index(model, &view, i, holders[i]);
        filled += holders[i] != 0;
    }
    if (view.chunks != filled)
        model_fail(model, "an arena miscounts its chunks");
}

void model_arena_fill(struct model *model, struct model_client *client)
{
    const struct model_lease *lease = random_arena(model, client, -1);
    uint32_t first, count;

    if (!lease || client->detached)
        return;
    first = (uint32_t) model_below(model, lease->max + 1);
    count = (uint32_t) model_below(model, 9);
    if (model_chance(model, 50))
        count = UINT32_MAX - (uint32_t) model_below(model, 3);
    model_fill_run(model, client, lease, first, count);
}

/* A segment is its steward's to empty and fill. */
static bool may_change(
    const struct model *model, const struct model_client *client, const struct model_lease *lease)
{
    return !lease->segment || model_steward(model, client);
}

void model_fill_run(struct model *model, struct model_client *client,
    const struct model_lease *lease, uint32_t first, uint32_t count)
{
    struct core_event event = {.type = CORE_EVENT_ARENA_FILL};
    uint64_t wait_ns = model_wait(model);
    struct model_request *request;

    event.arena_fill.lease = lease->id;
    event.arena_fill.first = first;
    event.arena_fill.count = count;
    event.arena_fill.wait_ns = wait_ns;
    event.arena_fill.urgent = model_chance(model, 3);
    if (!lease->open || !may_change(model, client, lease) || !run_within(lease, first, count) ||
        (taken(model, lease->id) & model_run(first, count)) != 0) {
        if (model_sync(model, client, &event))
            model_fail(model, "a fill that makes no sense was done");
        return;
    }
    request = model_ask(model, client, lease->id, 0, wait_ns, &event);
    if (!request)
        return;
    request->device = lease->device;
    request->first = first;
    request->count = count;
    model_step(model, &event);
    model_arena_compare(model, event.arena_fill.lease);
}

void model_return_run(struct model *model, struct model_client *client, struct model_lease *lease,
    uint32_t first, uint32_t count)
{
    struct core_event event = {.type = CORE_EVENT_ARENA_RETURN};
    uint64_t run = run_within(lease, first, count) ? model_run(first, count) : 0;
    bool done = run != 0 && (lease->filled & run) == run && may_change(model, client, lease);

    event.arena_return.lease = lease->id;
    event.arena_return.first = first;
    event.arena_return.count = count;
    for (uint32_t i = 0; done && i < count; i++)
        model_let_go(model, client, lease, first + i);
    if (done)
        lease->filled &= ~run;
    if (model_sync(model, client, &event) != done)
        model_fail(model, "a run was returned that is not filled, or the other way round");
    model->returns += done;
    model_arena_compare(model, lease->id);
}

void model_arena_return(struct model *model, struct model_client *client)
{
    struct model_lease *lease = random_arena(model, client, -1);

    if (!lease || client->detached)
        return;
    model_return_run(model, client, lease, (uint32_t) model_below(model, lease->max + 1),
        model_chance(model, 30) ? UINT32_MAX : (uint32_t) model_below(model, 6));
}

/* Chunks from the front of one of the client's arenas on the device, as far as wished for. */
static void give(struct model *model, struct model_client *client, unsigned device)
{
    struct model_lease *lease = random_arena(model, client, (int) device);
    struct core_lease_view view;
    uint64_t *wished = &model->devices[device].wished_bytes;

    if (!lease || lease->segment || !core_lease_get(model->core, lease->id, &view))
        return;
    for (uint32_t i = 0; i<lease->max && * wished> 0; i++) {
        if ((lease->filled >> i & 1) == 0)
            continue;
        *wished = sub_saturate(*wished, view.chunk_bytes);
        model_return_run(model, client, lease, i, 1);
    }
}

void model_arena_reclaim(struct model *model)
{
    unsigned device = (unsigned) model_below(model, MODEL_DEVICES);
    unsigned start = (unsigned) model_below(model, MODEL_CLIENTS);
    const struct model_device *d = &model->devices[device];

    for (unsigned i = 0; i < MODEL_CLIENTS && d->wished_bytes > 0; i++) {
        struct model_client *client = &model->clients[(start + i) % MODEL_CLIENTS];

        if (client->id != 0 && !client->detached &&
            (d->wished_of < 0 || client->tenant == d->wished_of))
            give(model, client, device);
    }
}

/* The shell's own process on a device goes and comes back. */
void model_device_hold(struct model *model)
{
    struct core_event event = {.type = CORE_EVENT_DEVICE_HOLD};

    event.device_hold.device = (uint32_t) model_below(model, MODEL_DEVICES);
    if (model_chance(model, 6))
        event.device_hold.bytes =
            model_chance(model, 100) ? model_random(model) : model_below(model, 64 * MIB);
    model->holds += event.device_hold.bytes > 0;
    model_step(model, &event);
}

/* What the shell has there is lost to it: none of it may be granted any more. */
void model_device_stale(struct model *model)
{
    struct core_event event = {.type = CORE_EVENT_DEVICE_STALE};

    event.device_stale.device = (uint32_t) model_below(model, MODEL_DEVICES);
    for (unsigned i = 0; i < MODEL_CHUNKS; i++) {
        struct model_chunk *chunk = &model->chunks[i];

        if (!chunk->created || chunk->device != event.device_stale.device)
            continue;
        chunk->forsaken = true;
        chunk->changed_step = model->steps + 1; /* that which follows */
    }
    model->stales++;
    model_step(model, &event);
}

/* An operator empties a device now and then, and soon thinks better of it. */
void model_device_drain(struct model *model)
{
    unsigned index = (unsigned) model_below(model, MODEL_DEVICES);
    struct model_device *d = &model->devices[index];
    struct core_event event = {.type = CORE_EVENT_DEVICE_DRAIN};

    if (!d->draining && !model_chance(model, 6))
        return;
    d->draining = !d->draining;
    model->drains++;
    event.device_drain.device = index;
    event.device_drain.undo = !d->draining;
    model_step(model, &event);
}

void model_device_fail(struct model *model)
{
    struct core_event event = {.type = CORE_EVENT_DEVICE_FAIL};

    event.device_fail.device = (uint32_t) model_below(model, MODEL_DEVICES);
    model->devices[event.device_fail.device].failed = true;
    model_step(model, &event);
}
