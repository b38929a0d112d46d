/*
 * One step: the clock is set, the event does what it does at once, then everything that time or the
 * event made possible is done for each device. What doesn't fit into the step's actions is left to
 * the next one: core_next_tick() asks for it at once.
 */
#include "daemon/core/core.h"

#include <assert.h>
#include <errno.h>

#include "daemon/core/answer.h"
#include "daemon/core/change.h"
#include "daemon/core/chunk.h"
#include "daemon/core/client.h"
#include "daemon/core/device.h"
#include "daemon/core/gang.h"
#include "daemon/core/holder.h"
#include "daemon/core/lease.h"
#include "daemon/core/pressure.h"
#include "daemon/core/queue.h"
#include "daemon/core/request.h"
#include "daemon/core/stalled.h"
#include "daemon/core/supply.h"
#include "daemon/core/tenant.h"
#include "daemon/core/verify.h"
#include "policies/fairness.h"

const struct core_options core_options_default = {
    /* Longer than an engine's pause between batches, shorter than an operator's patience. */
    .recycle_idle_ns = 10 * NSEC_PER_SEC,
    /* Memory that is not leaked comes back within a few ms of the release. */
    .verify_window_ns = 20 * NSEC_PER_MSEC,
    /* Teardown of a large process takes up to a second or two. */
    .orphan_grace_ns = 2 * NSEC_PER_SEC,
    /* What others use changes when processes start and end: seldom. */
    .observe_ns = 5 * NSEC_PER_SEC,
    /* Long enough for a driver that is scrubbing, short enough to go unnoticed. */
    .create_backoff_ns = 50 * NSEC_PER_MSEC,
    /* An eviction of some chunks takes about as long. */
    .reclaim_ns = 100 * NSEC_PER_MSEC,
    /* Off: what is kept ready is taken from what others could have. */
    .prefetch_bytes = 0,
    .pressure =
        {
            .levels =
                {
                    .share = {0, 800000, 900000, 970000},
                    .stall = {0, 50000, 200000, 500000},
                    .hysteresis = 50000,
                    .dwell_ns = 2 * NSEC_PER_SEC,
                },
            /* Batches and contexts change over some requests' length. */
            .degrade_dwell_ns = 5 * NSEC_PER_SEC,
        },
};

static const char *const event_names[] = {
    [CORE_EVENT_TICK] = "tick",
    [CORE_EVENT_DEVICE_ADD] = "device-add",
    [CORE_EVENT_CONFIGURE] = "configure",
    [CORE_EVENT_TENANT_SET] = "tenant-set",
    [CORE_EVENT_CLIENT_ADD] = "client-add",
    [CORE_EVENT_CLIENT_DETACH] = "client-detach",
    [CORE_EVENT_CLIENT_ATTACH] = "client-attach",
    [CORE_EVENT_CLIENT_DEAD] = "client-dead",
    [CORE_EVENT_LEASE_REQUEST] = "lease-request",
    [CORE_EVENT_GANG_REQUEST] = "gang-request",
    [CORE_EVENT_SEGMENT_REQUEST] = "segment-request",
    [CORE_EVENT_LEASE_GROW] = "lease-grow",
    [CORE_EVENT_LEASE_SHRINK] = "lease-shrink",
    [CORE_EVENT_LEASE_RELEASE] = "lease-release",
    [CORE_EVENT_ARENA_REQUEST] = "arena-request",
    [CORE_EVENT_ARENA_FILL] = "arena-fill",
    [CORE_EVENT_LEASE_ATTACH] = "lease-attach",
    [CORE_EVENT_ARENA_SHARE] = "arena-share",
    [CORE_EVENT_ARENA_RETURN] = "arena-return",
    [CORE_EVENT_DEVICE_DRAIN] = "device-drain",
    [CORE_EVENT_RESTORE_WAIT] = "restore-wait",
    [CORE_EVENT_DEVICE_FAIL] = "device-fail",
    [CORE_EVENT_DEVICE_HOLD] = "device-hold",
    [CORE_EVENT_DEVICE_STALE] = "device-stale",
    [CORE_EVENT_CANCEL] = "cancel",
    [CORE_EVENT_CHUNK_CREATED] = "chunk-created",
    [CORE_EVENT_CHUNK_FAILED] = "chunk-failed",
    [CORE_EVENT_CHUNK_RELEASED] = "chunk-released",
    [CORE_EVENT_MEMORY_OBSERVED] = "memory-observed",
};
static_assert(ARRAY_SIZE(event_names) == CORE_EVENT_MAX, "one name for each event");

static const char *const action_names[] = {
    [CORE_ACTION_DEVICE_ADDED] = "device-added",
    [CORE_ACTION_CONFIGURED] = "configured",
    [CORE_ACTION_CLIENT_ADDED] = "client-added",
    [CORE_ACTION_CLIENT_GONE] = "client-gone",
    [CORE_ACTION_GRANT] = "grant",
    [CORE_ACTION_DONE] = "done",
    [CORE_ACTION_REFUSE] = "refuse",
    [CORE_ACTION_CHUNK_CREATE] = "chunk-create",
    [CORE_ACTION_CHUNK_RELEASE] = "chunk-release",
    [CORE_ACTION_MEMORY_OBSERVE] = "memory-observe",
    [CORE_ACTION_RECLAIM] = "reclaim",
    [CORE_ACTION_PRESSURE] = "pressure",
    [CORE_ACTION_ADVICE] = "advice",
};
static_assert(ARRAY_SIZE(action_names) == CORE_ACTION_MAX, "one name for each action");

const char *core_event_type_name(enum core_event_type type)
{
    return (unsigned) type < CORE_EVENT_MAX ? event_names[type] : "unknown";
}

const char *core_action_type_name(enum core_action_type type)
{
    return (unsigned) type < CORE_ACTION_MAX ? action_names[type] : "unknown";
}

int core_new(const struct core_options *options, struct core **ret)
{
    struct core *core = calloc(1, sizeof(*core));

    if (!core)
        return -ENOMEM;
    core->claims = calloc(LIMIT_TENANTS, sizeof(struct fairness_claim));
    if (!core->claims) {
        free(core);
        return -ENOMEM;
    }
    core->options = *options;
    list_init(&core->gangs_fit);
    client_slots_init(core);
    slots_init(&core->leases, sizeof(struct lease), LIMIT_CHUNKS_TOTAL + LIMIT_REQUESTS_TOTAL);
    slots_init(&core->requests, sizeof(struct request), LIMIT_REQUESTS_TOTAL);
    slots_init(&core->chunks, sizeof(struct chunk), LIMIT_CHUNKS_TOTAL);
    slots_init(&core->seats, sizeof(struct seat), LIMIT_SEATS);
    for (size_t i = 0; i < POOL_BUCKETS; i++)
        list_init(&core->pools[i]);
    *ret = core;
    return 0;
}

struct core *core_free(struct core *core)
{
    if (!core)
        return NULL;
    for (uint32_t i = 0; i < core->requests.high; i++) {
        struct request *request = slots_at(&core->requests, i);

        if (request)
            gang_disband(request->gang);
    }
    for (uint32_t i = 0; i < core->leases.high; i++) {
        struct lease *lease = slots_at(&core->leases, i);

        if (!lease)
            continue;
        list_for_each_safe(holder, &lease->holders, struct holder, lease_link) free(holder);
        free(lease->chunks);
    }
    for (size_t i = 0; i < POOL_BUCKETS; i++) {
        list_for_each_safe(pool, &core->pools[i], struct pool, hash_link) free(pool);
    }
    tenants_free(core);
    for (uint32_t i = 0; i < core->device_count; i++)
        core->devices[i] = device_free_object(core->devices[i]);
    slots_done(&core->clients);
    slots_done(&core->leases);
    slots_done(&core->requests);
    slots_done(&core->chunks);
    slots_done(&core->seats);
    heap_done(&core->deadlines);
    heap_done(&core->wakes);
    heap_done(&core->pressures);
    heap_done(&core->ladders);
    free(core->claims);
    free(core);
    return NULL;
}

/* Events of one client. */
static void step_client(struct core *core, const struct core_event *event)
{
    struct client *client = slots_find(&core->clients, event->client);
    bool notice = event->type == CORE_EVENT_CLIENT_DETACH ||
                  event->type == CORE_EVENT_CLIENT_ATTACH || event->type == CORE_EVENT_CLIENT_DEAD;

    if (!notice && (!client || client->state != CLIENT_ACTIVE || event->request == 0)) {
        answer_refuse(core, event, client ? GMB_STATUS_INVALID : GMB_STATUS_NOT_FOUND,
            GMB_LIMIT_NONE,
            client ? "the client may not ask, or the request has no id"
                   : "there is no such client");
        return;
    }
    if (!client)
        return;
    if (event->type == CORE_EVENT_CLIENT_DETACH)
        client_detach_event(core, client, event);
    else if (event->type == CORE_EVENT_CLIENT_ATTACH)
        client_attach_event(core, client);
    else if (event->type == CORE_EVENT_CLIENT_DEAD)
        client_dead_event(core, client);
    else if (event->type == CORE_EVENT_LEASE_REQUEST)
        request_new_lease(core, client, event);
    else if (event->type == CORE_EVENT_GANG_REQUEST)
        gang_request_event(core, client, event);
    else if (event->type == CORE_EVENT_SEGMENT_REQUEST)
        request_new_segment(core, client, event);
    else if (event->type == CORE_EVENT_LEASE_GROW)
        request_grow(core, client, event);
    else if (event->type == CORE_EVENT_LEASE_SHRINK)
        lease_shrink_event(core, client, event);
    else if (event->type == CORE_EVENT_LEASE_RELEASE)
        lease_release_event(core, client, event);
    else if (event->type == CORE_EVENT_ARENA_REQUEST)
        request_new_arena(core, client, event);
    else if (event->type == CORE_EVENT_ARENA_FILL)
        request_fill(core, client, event);
    else if (event->type == CORE_EVENT_ARENA_RETURN)
        lease_return_event(core, client, event);
    else if (event->type == CORE_EVENT_LEASE_ATTACH)
        holder_attach_event(core, client, event);
    else if (event->type == CORE_EVENT_ARENA_SHARE)
        holder_share_event(core, client, event);
    else
        request_cancel_event(core, client, event);
}

/* Answers of the shell. One that answers nothing is ignored. */
static void step_answer(struct core *core, const struct core_event *event)
{
    struct chunk *chunk;

    if (event->type == CORE_EVENT_MEMORY_OBSERVED) {
        if (event->observed.device < core->device_count)
            verify_observed(
                core, core->devices[event->observed.device], event->observed.free_bytes);
        return;
    }
    chunk = chunk_find(core, event->chunk.chunk, event->chunk.generation);
    if (!chunk)
        return;
    if (event->type == CORE_EVENT_CHUNK_CREATED)
        supply_created(core, chunk);
    else if (event->type == CORE_EVENT_CHUNK_FAILED)
        supply_failed(core, chunk, event->chunk.out_of_memory);
    else
        verify_released(core, chunk);
}

static void step_event(struct core *core, const struct core_event *event)
{
    switch (event->type) {
    case CORE_EVENT_TICK:
    case CORE_EVENT_MAX:
        break;
    case CORE_EVENT_DEVICE_ADD:
        device_add_event(core, event);
        break;
    case CORE_EVENT_CONFIGURE:
        tenant_configure_event(core, event);
        break;
    case CORE_EVENT_TENANT_SET:
        tenant_set_event(core, event);
        break;
    case CORE_EVENT_DEVICE_DRAIN:
        device_drain_event(core, event);
        break;
    case CORE_EVENT_RESTORE_WAIT:
        stalled_restore_event(core, event);
        break;
    case CORE_EVENT_DEVICE_FAIL:
        device_fail_event(core, event);
        break;
    case CORE_EVENT_DEVICE_HOLD:
        device_hold_event(core, event);
        break;
    case CORE_EVENT_DEVICE_STALE:
        device_stale_event(core, event);
        break;
    case CORE_EVENT_CLIENT_ADD:
        client_add_event(core, event);
        break;
    case CORE_EVENT_CLIENT_DETACH:
    case CORE_EVENT_CLIENT_ATTACH:
    case CORE_EVENT_CLIENT_DEAD:
    case CORE_EVENT_LEASE_REQUEST:
    case CORE_EVENT_GANG_REQUEST:
    case CORE_EVENT_SEGMENT_REQUEST:
    case CORE_EVENT_LEASE_GROW:
    case CORE_EVENT_LEASE_SHRINK:
    case CORE_EVENT_LEASE_RELEASE:
    case CORE_EVENT_ARENA_REQUEST:
    case CORE_EVENT_ARENA_FILL:
    case CORE_EVENT_ARENA_RETURN:
    case CORE_EVENT_LEASE_ATTACH:
    case CORE_EVENT_ARENA_SHARE:
    case CORE_EVENT_CANCEL:
        step_client(core, event);
        break;
    case CORE_EVENT_CHUNK_CREATED:
    case CORE_EVENT_CHUNK_FAILED:
    case CORE_EVENT_CHUNK_RELEASED:
    case CORE_EVENT_MEMORY_OBSERVED:
        step_answer(core, event);
        break;
    }
}

void core_step(struct core *core, const struct core_event *event, uint64_t now_ns,
    struct core_actions *actions)
{
    core->now_ns = MAX(core->now_ns, now_ns);
    core->actions = actions;
    core->more = false;
    core->steps++;
    actions->count = 0;
    changes_drop(core);
    step_event(core, event);
    queue_time(core);
    for (uint32_t i = 0; i < core->device_count; i++)
        device_wake(core, core->devices[i]);
    gangs_couple(core);
    for (uint32_t i = 0; i < core->device_count; i++)
        queue_drain(core, core->devices[i]);
    gangs_admit(core);
    for (uint32_t i = 0; i < core->device_count; i++)
        device_work(core, core->devices[i]);
    pressure_work(core);
    if (core->dropped_tenants > 0)
        tenants_sweep(core);
    core->actions = NULL;
}

uint64_t core_next_tick(const struct core *core)
{
    const struct heap_node *wake = heap_first(&core->wakes);
    const struct heap_node *deadline = heap_first(&core->deadlines);
    uint64_t due_ns = CLOCK_NEVER;

    if (core->more)
        return 0;
    if (wake)
        due_ns = wake->key;
    if (deadline)
        due_ns = MIN(due_ns, deadline->key);
    for (uint32_t i = 0; i < core->device_count; i++)
        due_ns = MIN(due_ns, device_due(core->devices[i]));
    return MIN(due_ns, pressure_next(core));
}
