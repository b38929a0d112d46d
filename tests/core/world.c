/* The shell is a queue of jobs, done in order, each answered by a step of its own. */
#include "tests/core/world.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/macro.h"

#define ENSURE(condition, ...)                                                                     \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            (void) fprintf(stderr, "%s:%d: ", __FILE__, __LINE__);                                 \
            (void) fprintf(stderr, __VA_ARGS__);                                                   \
            (void) fputc('\n', stderr);                                                            \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

void world_init(struct world *world, const struct core_options *options, uint64_t total_bytes,
    uint64_t reserve_bytes)
{
    memset(world, 0, sizeof(*world));
    world->now_ns = SEC;
    ENSURE(core_new(options ? options : &core_options_default, &world->core) == 0, "no core");
    world_device_add(world, total_bytes, reserve_bytes);
}

static void device_add(
    struct world *world, uint64_t total_bytes, uint64_t reserve_bytes, bool whole)
{
    struct core_totals totals;
    struct core_event event = {.type = CORE_EVENT_DEVICE_ADD};

    core_totals_get(world->core, &totals);
    world->devices[totals.devices] = (struct world_device){.total = total_bytes};
    event.device_add.total_bytes = total_bytes;
    event.device_add.reserve_bytes = reserve_bytes;
    event.device_add.granularity_bytes = 2 * MIB;
    event.device_add.whole = whole;
    world_step(world, &event);
}

void world_device_add(struct world *world, uint64_t total_bytes, uint64_t reserve_bytes)
{
    device_add(world, total_bytes, reserve_bytes, false);
}

void world_device_add_whole(struct world *world, uint64_t total_bytes)
{
    device_add(world, total_bytes, 0, true);
}

void world_done(struct world *world)
{
    world->core = core_free(world->core);
}

uint64_t world_free(const struct world *world, uint32_t device)
{
    const struct world_device *model = &world->devices[device];
    uint64_t used = model->others + model->held + model->leaked;

    ENSURE(used <= model->total, "device %u has less than nothing free", device);
    return model->total - used;
}

static void take_reclaim(struct world *world, const struct core_action *action)
{
    size_t index = world->reclaim_count++;

    if (index >= WORLD_RECLAIMS)
        return;
    world->reclaims[index] = (struct world_reclaim){.at_ns = world->now_ns,
        .bytes = action->reclaim.bytes,
        .wanted = action->reclaim.wanted,
        .device = action->reclaim.device,
        .tenant = action->reclaim.tenant,
        .own = action->reclaim.own};
}

static void take_level(struct world *world, const struct core_action *action)
{
    size_t index = world->level_count;
    struct core_pressure_view view;

    world->figures++;
    ENSURE(core_pressure_get(world->core, action->pressure.tenant, action->pressure.device, &view),
        "figures of nobody");
    if (!action->pressure.level)
        return;
    world->level_count++;
    if (index < WORLD_LEVELS)
        world->levels[index] = (struct world_level){world->now_ns, action->pressure.device,
            action->pressure.tenant, view.level, view.device_level};
}

static void take_advice(struct world *world, const struct core_action *action)
{
    size_t index = world->advice_count++;
    struct core_advice_view view;

    ENSURE(core_advice_get(world->core, action->advice.tenant, &view), "advice to nobody");
    if (index < WORLD_ADVICES)
        world->advices[index] = (struct world_advice){world->now_ns, action->advice.tenant, view};
}

static void take_actions(struct world *world)
{
    for (size_t i = 0; i < world->actions.count; i++) {
        const struct core_action *action = &world->actions.items[i];

        if (action->type == CORE_ACTION_RECLAIM) {
            take_reclaim(world, action);
        } else if (action->type == CORE_ACTION_PRESSURE) {
            take_level(world, action);
        } else if (action->type == CORE_ACTION_ADVICE) {
            take_advice(world, action);
        } else if (action->type == CORE_ACTION_CHUNK_CREATE ||
                   action->type == CORE_ACTION_CHUNK_RELEASE ||
                   action->type == CORE_ACTION_MEMORY_OBSERVE) {
            ENSURE(world->job_count < WORLD_JOBS, "too many jobs");
            world->jobs[(world->job_first + world->job_count++) % WORLD_JOBS] = *action;
        } else {
            ENSURE(world->answer_count < WORLD_ANSWERS, "too many answers");
            world->answers[world->answer_count++] = *action;
        }
    }
}

static void take_records(struct world *world)
{
    struct core_record record;

    while (core_changed_next(world->core, &record)) {
        ENSURE(world->record_count < WORLD_RECORDS, "too many records");
        world->records[world->record_count++] = record;
    }
}

static void one_step(struct world *world, const struct core_event *event)
{
    const char *found;

    core_step(world->core, event, world->now_ns, &world->actions);
    take_records(world);
    found = core_check(world->core);
    ENSURE(!found, "after %s: %s", core_event_type_name(event->type), found);
    take_actions(world);
}

static void one_create(
    struct world *world, struct world_device *model, const struct core_action *job)
{
    struct core_event event = {.type = CORE_EVENT_CHUNK_CREATED};

    world->creates++;
    event.chunk.device = job->chunk.device;
    event.chunk.chunk = job->chunk.chunk;
    event.chunk.generation = job->chunk.generation;
    if (world->break_next > 0 || world->refuse_next > 0 ||
        world_free(world, job->chunk.device) < job->chunk.bytes) {
        event.type = CORE_EVENT_CHUNK_FAILED;
        event.chunk.out_of_memory = world->break_next == 0;
        if (world->break_next > 0)
            world->break_next--;
        else if (world->refuse_next > 0)
            world->refuse_next--;
    } else {
        model->held += job->chunk.bytes;
    }
    one_step(world, &event);
}

static void one_job(struct world *world, const struct core_action *job)
{
    struct core_event event = {0};

    if (job->type == CORE_ACTION_CHUNK_CREATE) {
        one_create(world, &world->devices[job->chunk.device], job);
    } else if (job->type == CORE_ACTION_CHUNK_RELEASE) {
        world->releases++;
        world->devices[job->chunk.device].held -= job->chunk.bytes;
        if (world->leak_next > 0) {
            world->leak_next--;
            world->devices[job->chunk.device].leaked += job->chunk.bytes;
        }
        event.type = CORE_EVENT_CHUNK_RELEASED;
        event.chunk.device = job->chunk.device;
        event.chunk.chunk = job->chunk.chunk;
        event.chunk.generation = job->chunk.generation;
        one_step(world, &event);
    } else {
        world->looks++;
        event.type = CORE_EVENT_MEMORY_OBSERVED;
        event.observed.device = job->device.device;
        event.observed.free_bytes = world_free(world, job->device.device);
        one_step(world, &event);
    }
}

void world_work(struct world *world)
{
    while (world->job_count > 0 || core_next_tick(world->core) == 0) {
        if (core_next_tick(world->core) == 0) {
            one_step(world, &(struct core_event){.type = CORE_EVENT_TICK});
        } else {
            struct core_action job = world->jobs[world->job_first];

            world->job_first = (world->job_first + 1) % WORLD_JOBS;
            world->job_count--;
            one_job(world, &job);
        }
    }
}

void world_step(struct world *world, const struct core_event *event)
{
    one_step(world, event);
    if (!world->held_up)
        world_work(world);
}

void world_pass(struct world *world, uint64_t ns)
{
    uint64_t until_ns = world->now_ns + ns;
    uint64_t due_ns;

    while ((due_ns = core_next_tick(world->core)) <= until_ns) {
        world->now_ns = MAX(world->now_ns, due_ns);
        world_step(world, &(struct core_event){.type = CORE_EVENT_TICK});
        if (world->held_up && core_next_tick(world->core) <= world->now_ns)
            break;
    }
    world->now_ns = until_ns;
    world_step(world, &(struct core_event){.type = CORE_EVENT_TICK});
}

struct core_tenant_config *world_tenant(struct world *world, const char *name)
{
    struct core_tenant_config *tenant = &world->tenants[world->tenant_count++];

    *tenant = (struct core_tenant_config){
        .priority = 100,
        .weight = 100,
        .clients_max = UINT32_MAX,
        .leases_max = UINT32_MAX,
    };
    (void) snprintf(tenant->name, sizeof(tenant->name), "%s", name);
    for (unsigned i = 0; i < LIMIT_DEVICES; i++)
        tenant->memory[i] = (struct core_memory_limits){0, 0, UINT64_MAX, UINT64_MAX};
    return tenant;
}

const struct core_action *world_configure(struct world *world)
{
    struct core_event event = {.type = CORE_EVENT_CONFIGURE, .cookie = 7};
    size_t first = world->answer_count;

    event.configure.tenants = world->tenants;
    event.configure.count = world->tenant_count;
    world_step(world, &event);
    ENSURE(world->answers[first].cookie == 7, "no answer to the configuration");
    return &world->answers[first];
}

const struct core_action *world_set(
    struct world *world, const struct core_tenant_config *tenant, uint64_t expected_revision)
{
    struct core_event event = {.type = CORE_EVENT_TENANT_SET, .cookie = 8};
    size_t first = world->answer_count;

    event.tenant_set.tenant = tenant;
    event.tenant_set.expected_revision = expected_revision;
    world_step(world, &event);
    ENSURE(world->answers[first].cookie == 8, "no answer to the change");
    return &world->answers[first];
}

static core_id client_add(struct world *world, const char *tenant, bool steward)
{
    struct core_event event = {.type = CORE_EVENT_CLIENT_ADD, .cookie = 9};
    size_t first = world->answer_count;

    event.client_add.tenant = tenant;
    event.client_add.steward = steward;
    world_step(world, &event);
    ENSURE(world->answers[first].cookie == 9, "no answer to the client");
    return world->answers[first].type == CORE_ACTION_CLIENT_ADDED ? world->answers[first].client
                                                                  : 0;
}

core_id world_client(struct world *world, const char *tenant)
{
    return client_add(world, tenant, false);
}

core_id world_steward(struct world *world, const char *tenant)
{
    return client_add(world, tenant, true);
}

void world_detach(struct world *world, core_id client)
{
    world_step(world, &(struct core_event){.type = CORE_EVENT_CLIENT_DETACH, .client = client});
}

void world_kill(struct world *world, core_id client)
{
    world_step(world, &(struct core_event){.type = CORE_EVENT_CLIENT_DEAD, .client = client});
}

static uint64_t send(struct world *world, struct core_event *event, core_id client)
{
    event->client = client;
    event->request = ++world->next_request;
    world_step(world, event);
    return event->request;
}

static uint64_t lease_ask(struct world *world, enum core_event_type type, core_id client,
    uint32_t device, uint64_t bytes, uint64_t chunk_bytes, uint64_t wait_ns)
{
    struct core_event event = {.type = type};

    event.lease_request.device = device;
    event.lease_request.bytes = bytes;
    event.lease_request.chunk_bytes = chunk_bytes;
    event.lease_request.wait_ns = wait_ns;
    return send(world, &event, client);
}

uint64_t world_request(struct world *world, core_id client, uint32_t device, uint64_t bytes,
    uint64_t chunk_bytes, uint64_t wait_ns)
{
    return lease_ask(world, CORE_EVENT_LEASE_REQUEST, client, device, bytes, chunk_bytes, wait_ns);
}

uint64_t world_segment(struct world *world, core_id client, uint32_t device, uint64_t bytes,
    uint64_t chunk_bytes, uint64_t wait_ns)
{
    return lease_ask(
        world, CORE_EVENT_SEGMENT_REQUEST, client, device, bytes, chunk_bytes, wait_ns);
}

uint64_t world_gang(struct world *world, core_id client, const struct core_gang_part *parts,
    uint32_t count, uint64_t wait_ns)
{
    struct core_event event = {.type = CORE_EVENT_GANG_REQUEST};

    event.gang_request.parts = parts;
    event.gang_request.count = count;
    event.gang_request.wait_ns = wait_ns;
    return send(world, &event, client);
}

uint64_t world_grow(
    struct world *world, core_id client, core_id lease, uint64_t bytes, uint64_t wait_ns)
{
    struct core_event event = {.type = CORE_EVENT_LEASE_GROW};

    event.lease_grow.lease = lease;
    event.lease_grow.bytes = bytes;
    event.lease_grow.wait_ns = wait_ns;
    return send(world, &event, client);
}

uint64_t world_shrink(struct world *world, core_id client, core_id lease, uint32_t keep_chunks)
{
    struct core_event event = {.type = CORE_EVENT_LEASE_SHRINK};

    event.lease_shrink.lease = lease;
    event.lease_shrink.keep_chunks = keep_chunks;
    return send(world, &event, client);
}

uint64_t world_release(struct world *world, core_id client, core_id lease)
{
    struct core_event event = {.type = CORE_EVENT_LEASE_RELEASE};

    event.lease_release.lease = lease;
    return send(world, &event, client);
}

uint64_t world_cancel(struct world *world, core_id client, uint64_t request)
{
    struct core_event event = {.type = CORE_EVENT_CANCEL};

    event.cancel.request = request;
    return send(world, &event, client);
}

uint64_t world_arena(
    struct world *world, core_id client, uint32_t device, uint64_t chunk_bytes, uint32_t max_chunks)
{
    struct core_event event = {.type = CORE_EVENT_ARENA_REQUEST};

    event.arena_request.device = device;
    event.arena_request.chunk_bytes = chunk_bytes;
    event.arena_request.max_chunks = max_chunks;
    return send(world, &event, client);
}

static uint64_t send_fill(struct world *world, core_id client, const struct core_event *event)
{
    struct core_event copy = *event;

    copy.type = CORE_EVENT_ARENA_FILL;
    return send(world, &copy, client);
}

uint64_t world_fill(struct world *world, core_id client, core_id lease, uint32_t first,
    uint32_t count, uint64_t wait_ns)
{
    return send_fill(
        world, client, &(struct core_event){.arena_fill = {lease, first, count, wait_ns, false}});
}

uint64_t world_fill_urgent(struct world *world, core_id client, core_id lease, uint32_t first,
    uint32_t count, uint64_t wait_ns)
{
    return send_fill(
        world, client, &(struct core_event){.arena_fill = {lease, first, count, wait_ns, true}});
}

uint64_t world_return(
    struct world *world, core_id client, core_id lease, uint32_t first, uint32_t count)
{
    struct core_event event = {.type = CORE_EVENT_ARENA_RETURN};

    event.arena_return.lease = lease;
    event.arena_return.first = first;
    event.arena_return.count = count;
    return send(world, &event, client);
}

uint64_t world_attach(struct world *world, core_id client, core_id lease)
{
    struct core_event event = {.type = CORE_EVENT_LEASE_ATTACH};

    event.lease_attach.lease = lease;
    return send(world, &event, client);
}

uint64_t world_share(
    struct world *world, core_id client, core_id lease, uint32_t first, uint32_t count)
{
    struct core_event event = {.type = CORE_EVENT_ARENA_SHARE};

    event.arena_share.lease = lease;
    event.arena_share.first = first;
    event.arena_share.count = count;
    return send(world, &event, client);
}

void world_drain(struct world *world, uint32_t device, bool undo)
{
    struct core_event event = {.type = CORE_EVENT_DEVICE_DRAIN};

    event.device_drain.device = device;
    event.device_drain.undo = undo;
    world_step(world, &event);
}

void world_fail(struct world *world, uint32_t device)
{
    struct core_event event = {.type = CORE_EVENT_DEVICE_FAIL};

    event.device_fail.device = device;
    world_step(world, &event);
}

void world_hold(struct world *world, uint32_t device, uint64_t bytes)
{
    struct core_event event = {.type = CORE_EVENT_DEVICE_HOLD};

    event.device_hold.device = device;
    event.device_hold.bytes = bytes;
    world_step(world, &event);
}

void world_stale(struct world *world, uint32_t device)
{
    struct core_event event = {.type = CORE_EVENT_DEVICE_STALE};

    event.device_stale.device = device;
    world_step(world, &event);
}

const struct core_action *world_answer(const struct world *world, core_id client, uint64_t request)
{
    return world_part(world, client, request, 0);
}

const struct core_action *world_part(
    const struct world *world, core_id client, uint64_t request, uint32_t part)
{
    const struct core_action *answer = NULL;
    uint32_t seen = 0, parts = 1;

    for (size_t i = 0; i < world->answer_count; i++) {
        const struct core_action *each = &world->answers[i];

        if (each->client != client || each->request != request)
            continue;
        ENSURE(seen < parts, "request %llu was answered twice", (unsigned long long) request);
        if (each->type == CORE_ACTION_GRANT)
            parts = each->grant.parts;
        ENSURE(parts == 1 || each->type == CORE_ACTION_GRANT, "a gang in two ways");
        ENSURE(each->type != CORE_ACTION_GRANT || each->grant.part == seen, "parts out of order");
        if (seen++ == part)
            answer = each;
    }
    ENSURE(seen == 0 || seen == parts, "request %llu was granted in part",
        (unsigned long long) request);
    return answer;
}

core_id world_lease(struct world *world, core_id client, uint64_t bytes)
{
    uint64_t request = world_request(world, client, 0, bytes, 0, 0);
    const struct core_action *answer = world_answer(world, client, request);

    ENSURE(answer && answer->type == CORE_ACTION_GRANT, "not granted: %s",
        answer && answer->type == CORE_ACTION_REFUSE ? answer->refuse.text : "no answer");
    return answer->grant.lease;
}

struct core_device_view world_device(const struct world *world, uint32_t device)
{
    struct core_device_view view;

    ENSURE(core_device_get(world->core, device, &view), "no device %u", device);
    return view;
}

struct core_tenant_device_view world_use(
    const struct world *world, const char *tenant, uint32_t device)
{
    struct core_tenant_device_view view;
    uint32_t index;

    ENSURE(core_tenant_find(world->core, tenant, &index), "no tenant %s", tenant);
    ENSURE(core_tenant_device_get(world->core, index, device, &view), "no device %u", device);
    return view;
}

void world_restore_wait(struct world *world, core_id client, uint32_t device, bool waits)
{
    world_step(world, &(struct core_event){.type = CORE_EVENT_RESTORE_WAIT,
                          .restore_wait.device = device,
                          .restore_wait.waits = waits,
                          .client = client});
}

struct core_pressure_view world_pressure(
    const struct world *world, const char *tenant, uint32_t device)
{
    struct core_pressure_view view;
    uint32_t index;

    ENSURE(core_tenant_find(world->core, tenant, &index) &&
               core_pressure_get(world->core, index, device, &view),
        "no tenant %s", tenant);
    return view;
}

struct core_advice_view world_advice(const struct world *world, const char *tenant)
{
    struct core_advice_view view;
    uint32_t index;

    ENSURE(
        core_tenant_find(world->core, tenant, &index) && core_advice_get(world->core, index, &view),
        "no tenant %s", tenant);
    return view;
}
