/* Random clients, operators and faults; sizes and times are such that limits are hit often. */
#include "tests/simulation/model.h"

#include <string.h>

#include "base/clock.h"

uint64_t model_bytes(struct model *model)
{
    switch (model_below(model, 40)) {
    case 0:
        return UINT64_MAX - model_below(model, 3);
    case 1:
        return model_below(model, 1024 * MIB);
    case 2:
        return 0;
    case 3:
        return 1;
    default:
        return (1 + model_below(model, 24)) * 2 * MIB - model_below(model, 2);
    }
}

uint64_t model_chunk_bytes(struct model *model)
{
    static const uint64_t sizes[] = {
        0, 0, 0, 2 * MIB, 2 * MIB, 4 * MIB, 8 * MIB, 6 * MIB, 32 * MIB};
    static const uint64_t nonsense[] = {1, 3 * MIB, 2048 * MIB, UINT64_MAX};

    if (model_chance(model, 30))
        return nonsense[model_below(model, ARRAY_SIZE(nonsense))];
    return sizes[model_below(model, ARRAY_SIZE(sizes))];
}

uint64_t model_wait(struct model *model)
{
    switch (model_below(model, 5)) {
    case 0:
        return 0;
    case 1:
        return UINT64_MAX;
    default:
        return model_below(model, 3 * SEC);
    }
}

static struct model_client *random_client(struct model *model)
{
    return &model->clients[model_below(model, MODEL_PROCESSES)];
}

/* Index of the client's lease, or of a free place when `held` is false; MODEL_LEASES if none. */
static unsigned random_lease(struct model *model, const struct model_client *client, bool held)
{
    unsigned start = (unsigned) model_below(model, MODEL_LEASES);

    for (unsigned i = 0; i < MODEL_LEASES; i++) {
        unsigned k = (start + i) % MODEL_LEASES;

        if ((client->leases[k].id != 0) == held)
            return k;
    }
    return MODEL_LEASES;
}

/* `fresh`: new leases, which need places of their own. */
static unsigned free_request(const struct model_client *client, unsigned fresh)
{
    unsigned news = 0, leases = 0, found = MODEL_REQUESTS;

    for (unsigned i = 0; i < MODEL_LEASES; i++)
        leases += client->leases[i].id != 0;
    for (unsigned i = 0; i < MODEL_REQUESTS; i++) {
        if (client->requests[i].id != 0 && client->requests[i].lease == 0)
            news += MAX(client->requests[i].parts, 1u);
        if (client->requests[i].id == 0)
            found = i;
    }
    return fresh == 0 || leases + news + fresh <= MODEL_LEASES ? found : MODEL_REQUESTS;
}

void model_client_add(
    struct model *model, struct model_client *client, unsigned tenant, bool steward)
{
    struct core_event event = {.type = CORE_EVENT_CLIENT_ADD, .cookie = 1};

    event.client_add.tenant = model->names[tenant];
    event.client_add.steward = steward;
    model_step(model, &event);
    for (size_t i = 0; i < model->actions.count; i++) {
        if (model->actions.items[i].type != CORE_ACTION_CLIENT_ADDED)
            continue;
        *client =
            (struct model_client){.id = model->actions.items[i].client, .tenant = (int) tenant};
        return;
    }
}

struct model_request *model_ask(struct model *model, struct model_client *client, core_id lease,
    unsigned leases, uint64_t wait_ns, struct core_event *event)
{
    unsigned place = free_request(client, leases);
    uint64_t deadline_ns = model->now_ns + MIN(wait_ns, LIMIT_WAIT_NS);

    if (place == MODEL_REQUESTS || client->detached)
        return NULL;
    event->client = client->id;
    event->request = ++model->next_request;
    client->requests[place] =
        (struct model_request){.id = event->request, .deadline_ns = deadline_ns, .lease = lease};
    return &client->requests[place];
}

bool model_sync(struct model *model, struct model_client *client, struct core_event *event)
{
    event->client = client->id;
    event->request = client->sync_request = ++model->next_request;
    client->sync_done = false;
    model_step(model, event);
    if (client->sync_request != 0)
        model_fail(model, "%s was not answered at once", core_event_type_name(event->type));
    return client->sync_done;
}

static void event_request(struct model *model, struct model_client *client)
{
    struct core_event event = {.type = CORE_EVENT_LEASE_REQUEST};
    uint64_t wait_ns = model_wait(model);
    struct model_request *request = model_ask(model, client, 0, 1, wait_ns, &event);

    if (!request)
        return;
    event.lease_request.device = (uint32_t) model_below(model, MODEL_DEVICES);
    if (model_chance(model, 100))
        event.lease_request.device = MODEL_DEVICES; /* there is none */
    event.lease_request.bytes = model_bytes(model);
    event.lease_request.chunk_bytes = model_chunk_bytes(model);
    event.lease_request.wait_ns = wait_ns;
    request->device = event.lease_request.device;
    model_step(model, &event);
}

bool model_grows(const struct model_client *client, core_id lease)
{
    for (unsigned i = 0; i < MODEL_REQUESTS; i++) {
        if (client->requests[i].id != 0 && client->requests[i].lease == lease)
            return true;
    }
    return false;
}

static void event_grow(struct model *model, struct model_client *client)
{
    struct core_event event = {.type = CORE_EVENT_LEASE_GROW};
    unsigned place = random_lease(model, client, true);
    const struct model_lease *lease = &client->leases[place % MODEL_LEASES];
    uint64_t wait_ns = model_wait(model);
    struct model_request *request;

    if (place == MODEL_LEASES || client->detached || model_grows(client, lease->id))
        return;
    event.lease_grow.lease = lease->id;
    event.lease_grow.bytes = model_bytes(model);
    event.lease_grow.wait_ns = wait_ns;
    if (lease->max > 0) {
        if (model_sync(model, client, &event))
            model_fail(model, "an arena grew");
        return;
    }
    request = model_ask(model, client, lease->id, 0, wait_ns, &event);
    if (!request)
        return;
    request->device = lease->device;
    model_step(model, &event);
}

void model_let_go(struct model *model, const struct model_client *client,
    const struct model_lease *lease, uint32_t index)
{
    uint32_t number, generation;

    if (!core_lease_chunk(model->core, lease->id, index, &number, &generation))
        model_fail(model, "a held chunk is not there");
    if ((model->chunks[number].holders & model_bit(model, client)) == 0)
        model_fail(model, "a client lets go of a chunk that it hasn't got");
    model->chunks[number].holders &= ~model_bit(model, client);
}

/* The chunks behind `keep` of a lease, or all of an arena. */
static void let_go(struct model *model, const struct model_client *client,
    struct model_lease *lease, uint32_t keep)
{
    for (uint32_t i = keep; i < (lease->max > 0 ? lease->max : lease->chunks); i++) {
        if (lease->max == 0 || (lease->filled >> i & 1) != 0)
            model_let_go(model, client, lease, i);
    }
    lease->chunks = keep;
    lease->filled = 0;
}

/* What the client has of the lease it holds no longer, and goes on to map. */
static void keep_mapped(
    struct model *model, const struct model_client *client, const struct model_lease *lease)
{
    for (uint32_t i = 0; i < (lease->max > 0 ? lease->max : lease->chunks); i++) {
        uint32_t number, generation;

        if ((lease->max > 0 && (lease->filled >> i & 1) == 0) ||
            !core_lease_chunk(model->core, lease->id, i, &number, &generation))
            continue;
        model->chunks[number].mapped |= model_bit(model, client);
        model->chunks[number].forsaken = true;
    }
}

/* It maps none of it any more. */
static void unmap(struct model *model, const struct model_client *client)
{
    for (unsigned i = 0; i < MODEL_CHUNKS; i++)
        model->chunks[i].mapped &= ~model_bit(model, client);
    for (unsigned i = 0; i < MODEL_DEVICES; i++) {
        for (size_t k = 0; k < model->devices[i].leak_count; k++)
            model->devices[i].leaks[k].mapped &= ~model_bit(model, client);
    }
}

void model_release(
    struct model *model, struct model_client *client, struct model_lease *lease, bool held)
{
    struct core_event event = {
        .type = CORE_EVENT_LEASE_RELEASE,
        .lease_release = {.lease = lease->id, .held = held},
    };
    bool done = !model_grows(client, lease->id);

    if (done) {
        if (held)
            keep_mapped(model, client, lease);
        let_go(model, client, lease, 0);
        *lease = (struct model_lease){0};
        model->kept += held;
    }
    if (model_sync(model, client, &event) != done)
        model_fail(model, "a lease was not given back, or shouldn't have been");
}

static void event_return(struct model *model, struct model_client *client)
{
    unsigned place = random_lease(model, client, true);
    struct model_lease *lease = &client->leases[place % MODEL_LEASES];
    struct core_event event = {0};
    bool done = false;

    if (place == MODEL_LEASES || client->detached)
        return;
    if (model_chance(model, 3)) {
        uint32_t keep = (uint32_t) model_below(model, lease->chunks + 2);

        event.type = CORE_EVENT_LEASE_SHRINK;
        event.lease_shrink.lease = lease->id;
        event.lease_shrink.keep_chunks = keep;
        done =
            lease->max == 0 && keep > 0 && keep <= lease->chunks && !model_grows(client, lease->id);
        if (done)
            let_go(model, client, lease, keep);
        if (model_sync(model, client, &event) != done)
            model_fail(model, "a return was refused, or done and shouldn't");
    } else {
        model_release(model, client, lease, model_chance(model, 6));
    }
}

void model_cancel(struct model *model, struct model_client *client)
{
    struct core_event event = {.type = CORE_EVENT_CANCEL};
    uint64_t id = client->requests[model_below(model, MODEL_REQUESTS)].id;

    if (client->detached)
        return;
    event.cancel.request = id != 0 ? id : model_random(model);
    if (model_sync(model, client, &event) != (id != 0))
        model_fail(model, "a cancellation was refused, or done and shouldn't");
    for (unsigned i = 0; i < MODEL_REQUESTS; i++) {
        if (id != 0 && client->requests[i].id == id)
            model_fail(model, "a cancelled request still waits");
    }
}

static bool gone(const struct model *model, core_id id)
{
    for (size_t i = 0; i < model->actions.count; i++) {
        if (model->actions.items[i].type == CORE_ACTION_CLIENT_GONE &&
            model->actions.items[i].client == id)
            return true;
    }
    return false;
}

/* What a process that died had may be anywhere. */
static void forsake(struct model *model, const struct model_client *client)
{
    for (unsigned i = 0; i < MODEL_CHUNKS; i++) {
        if ((model->chunks[i].holders & model_bit(model, client)) != 0)
            model->chunks[i].forsaken = true;
    }
}

void model_client_die(struct model *model, struct model_client *client)
{
    struct core_event event = {.type = CORE_EVENT_CLIENT_DEAD, .client = client->id};
    struct model_client before;

    forsake(model, client);
    unmap(model, client);
    before = *client;
    for (unsigned i = 0; i < MODEL_LEASES; i++) {
        if (client->leases[i].id != 0)
            let_go(model, client, &client->leases[i], 0);
        client->leases[i] = (struct model_lease){0};
    }
    client->detached = true;
    memset(client->requests, 0, sizeof(client->requests));
    model_step(model, &event);
    if (!gone(model, event.client))
        model_fail(model, "a dead client is not gone");
    for (unsigned i = 0; i < MODEL_LEASES; i++) {
        struct core_lease_view view;

        if (before.leases[i].id == 0 || before.leases[i].max == 0)
            continue;
        model->outlived += core_lease_get(model->core, before.leases[i].id, &view);
        model_arena_compare(model, before.leases[i].id);
    }
    *client = (struct model_client){0};
    model->deaths++;
}

static void event_detach(struct model *model, struct model_client *client)
{
    struct core_event event = {.type = CORE_EVENT_CLIENT_DETACH, .client = client->id};
    bool holds = random_lease(model, client, true) != MODEL_LEASES || model_chance(model, 4);

    event.client_detach.keep = holds;
    memset(client->requests, 0, sizeof(client->requests));
    client->detached = true;
    model_step(model, &event);
    if (gone(model, event.client) == holds)
        model_fail(model, "a detached client is kept or forgotten wrongly");
    if (holds)
        return;
    /* Nobody hears of the end of its process: it is as if it kept an fd for a while. */
    for (unsigned i = 0; i < MODEL_CHUNKS; i++)
        model->chunks[i].leaky |= (model->chunks[i].mapped & model_bit(model, client)) != 0;
    unmap(model, client);
    *client = (struct model_client){0};
}

/* What a confused shell or a hostile client could send: ids, sizes and types without sense. */
static void event_nonsense(struct model *model)
{
    struct core_event event;
    uint64_t *words = (void *) &event;

    for (size_t i = 0; i < sizeof(event) / sizeof(uint64_t); i++)
        words[i] = model_chance(model, 2) ? model_random(model) : model_below(model, 8);
    event.type =
        (enum core_event_type)(CORE_EVENT_CLIENT_DETACH +
                               model_below(model, CORE_EVENT_MAX + 2 - CORE_EVENT_CLIENT_DETACH));
    /* Neither a client of ours nor a chunk that the shell has: those events are meant. */
    event.client = (uint64_t) UINT32_MAX << 32 | model_below(model, 100);
    if (event.type == CORE_EVENT_RESTORE_WAIT)
        event.restore_wait.waits = true;
    else if (event.type == CORE_EVENT_DEVICE_DRAIN)
        event.device_drain.device = MODEL_DEVICES + (uint32_t) model_below(model, 1000);
    else if (event.type == CORE_EVENT_DEVICE_FAIL)
        event.device_fail.device = MODEL_DEVICES + (uint32_t) model_below(model, 1000);
    else if (event.type == CORE_EVENT_DEVICE_HOLD)
        event.device_hold.device = MODEL_DEVICES + (uint32_t) model_below(model, 1000);
    else if (event.type == CORE_EVENT_DEVICE_STALE)
        event.device_stale.device = MODEL_DEVICES + (uint32_t) model_below(model, 1000);
    else if (event.type == CORE_EVENT_MEMORY_OBSERVED)
        event.observed.device = MODEL_DEVICES + (uint32_t) model_below(model, 1000);
    else if (event.type >= CORE_EVENT_CHUNK_CREATED)
        event.chunk.generation = UINT32_MAX, event.chunk.out_of_memory = false;
    model_step(model, &event);
}

/* Its connection ends, or its process does. */
static void event_end(struct model *model, struct model_client *client)
{
    if (client->detached || model_chance(model, 4))
        model_client_die(model, client);
    else if (model_chance(model, 3))
        event_detach(model, client);
}

static void event_of_client(struct model *model)
{
    struct model_client *client = random_client(model);
    uint64_t kind;

    if (client->id == 0) {
        model_client_add(model, client, (unsigned) model_below(model, MODEL_TENANTS), false);
        return;
    }
    kind = model_below(model, 90);
    if (kind < 1)
        model_cancel(model, client);
    else if (kind < 2)
        event_end(model, client);
    else if (kind < 6)
        event_grow(model, client);
    else if (kind < 14)
        event_return(model, client);
    else if (kind < 17)
        model_arena_request(model, client);
    else if (kind < 29)
        model_arena_fill(model, client);
    else if (kind < 37)
        model_arena_return(model, client);
    else if (kind < 41)
        model_arena_attach(model, client);
    else if (kind < 45)
        model_arena_share(model, client);
    else if (kind < 50)
        model_gang_request(model, client);
    else if (kind < 54)
        model_restore_wait(model, client);
    else if (kind < 58)
        model_segment_request(model, client);
    else if (kind < 62)
        model_segment_seal(model, client);
    else if (kind < 74)
        model_steward_event(model);
    else if (kind < 76)
        unmap(model, client); /* what it went on to map it maps no longer */
    else
        event_request(model, client);
}

void model_event(struct model *model)
{
    uint64_t kind = model_below(model, 1000), steps = model->steps;

    model->events++;
    /* Time passes: mostly a little, seldom a lot. */
    model->now_ns += model_below(model, 300000);
    if (kind < 5)
        model->now_ns += model_below(model, 5 * SEC);
    if (model_chance(model, 5000))
        model->now_ns += model_below(model, 24 * 3600 * SEC);
    model_drift(model);
    model_tick(model);
    if (kind < 20)
        model_tenant_set(model);
    else if (kind < 23)
        model_configure(model);
    else if (kind < 40)
        event_nonsense(model);
    else if (kind < 45)
        model_device_drain(model);
    else if (kind == 45 && model_chance(model, 200))
        model_device_fail(model);
    else if (kind == 45 && model_chance(model, 2))
        model_crash(model);
    else if (kind == 46 && model_chance(model, 4))
        model_device_stale(model);
    else if (kind < 48)
        model_device_hold(model);
    else if (kind < 80)
        model_arena_reclaim(model);
    else if (kind < 500)
        event_of_client(model);
    else if (!model_answer(model, (unsigned) model_below(model, MODEL_DEVICES)))
        event_of_client(model);
    if (model->steps == steps)
        model->events--; /* nothing came of it */
}

void model_init(struct model *model, uint64_t seed)
{
    struct core_options options = core_options_default;

    memset(model, 0, sizeof(*model));
    model->seed = model->random = seed;
    model->now_ns = SEC;
    model->hash = UINT64_C(0xcbf29ce484222325);
    model->still = model_chance(model, 3);
    if (model_chance(model, 2))
        options.prefetch_bytes = 16 * MIB;
    if (model_chance(model, 2))
        options.recycle_idle_ns = 50 * MS;
    if (core_new(&options, &model->core) < 0)
        model_fail(model, "no host memory");
    for (unsigned i = 0; i < MODEL_CHUNKS; i++)
        model->chunks[i].tenant = -1;
    for (unsigned i = 0; i < MODEL_DEVICES; i++) {
        struct core_event event = {.type = CORE_EVENT_DEVICE_ADD};

        model->devices[i].total = 768 * MIB;
        model->devices[i].reserve = 64 * MIB;
        event.device_add.total_bytes = model->devices[i].total;
        event.device_add.reserve_bytes = model->devices[i].reserve;
        event.device_add.granularity_bytes = 2 * MIB;
        model_step(model, &event);
    }
    for (unsigned i = 0; i < MODEL_TENANTS; i++)
        (void) snprintf(model->names[i], sizeof(model->names[i]), "t%u", i);
    model_configure(model);
}

/* Ticks are as late as `late_ns`. */
static void settle(struct model *model, uint64_t until_ns, uint64_t late_ns)
{
    while (model->now_ns < until_ns) {
        bool busy = false;
        uint64_t due_ns;

        model_drift(model);
        model_tick(model);
        for (unsigned i = 0; i < MODEL_DEVICES; i++)
            busy |= model_answer(model, i);
        due_ns = MAX(core_next_tick(model->core), model->now_ns + 1 + late_ns);
        if (!busy)
            model->now_ns = MIN(due_ns, until_ns);
    }
}

void model_end(struct model *model)
{
    struct core_event event = {.type = CORE_EVENT_CONFIGURE, .cookie = 4};
    struct core_totals totals;

    /* Whoever waits is answered by its deadline: an hour at most. */
    settle(model, model->now_ns + 2 * SEC, 0);
    settle(model, model->now_ns + LIMIT_WAIT_NS + SEC, SEC);
    for (unsigned i = 0; i < MODEL_CLIENTS; i++) {
        for (unsigned k = 0; k < MODEL_REQUESTS; k++) {
            if (model->clients[i].requests[k].id != 0)
                model_fail(model, "a request was never answered");
        }
    }
    for (unsigned i = 0; i < MODEL_CLIENTS; i++) {
        if (model->clients[i].id != 0)
            model_client_die(model, &model->clients[i]);
    }
    model->calm = true;
    model_lowered(model);
    model_step(model, &event); /* no tenants: all go when their last byte is back */
    settle(model, model->now_ns + 60 * SEC, 0);
    for (unsigned i = 0; i < MODEL_DEVICES; i++) {
        struct core_device_view view;
        bool there = core_device_get(model->core, i, &view);

        if (!there || view.creating + view.leased + view.cached + view.releasing > 0 ||
            (view.free != view.total - view.reserve - view.clean && !view.failed))
            model_fail(model, "device %u: the core has bytes left", i);
        if (model->devices[i].held != view.clean || model->devices[i].leaked != 0)
            model_fail(model, "device %u: memory is left behind", i);
    }
    core_totals_get(model->core, &totals);
    if (totals.tenants != 0 || totals.clients != 0 || totals.leases != 0 || totals.waiting != 0)
        model_fail(model, "somebody is left");
    model->core = core_free(model->core);
}
