/*
 * The lease's chunk array is filled at once: ready chunks first, then CREATING ones, which the
 * shell is asked for in a window of each device, so that no tenant floods a step or holds up others
 * in the shell's queue, however many requests it has. Tenants take turns, one chunk each, and
 * within a tenant its requests do. The request is granted when the last one is there, a gang when
 * the last one of all its parts is.
 */
#include "daemon/core/supply.h"

#include <errno.h>

#include "daemon/core/account.h"
#include "daemon/core/answer.h"
#include "daemon/core/chunk.h"
#include "daemon/core/gang.h"
#include "daemon/core/queue.h"
#include "daemon/core/request.h"
#include "daemon/core/stalled.h"
#include "daemon/core/states.h"

/* Chunks with the shell at once; beyond that, one of each tenant that has none there. */
#define WINDOW_CHUNKS 64
/* In all: who asks and cancels has none there, however often it does. */
#define WINDOW_MOST 128
/* Chunks for nobody yet that are with the shell at once: releases stand in the same queue. */
#define PREFETCH_CHUNKS 8

struct supply_plan supply_plan_make(struct core *core, const struct request *request)
{
    struct lease *lease = request->lease;
    struct account *nobody = &lease->account->device->nobody;
    uint32_t left = request->count;
    struct supply_plan plan;

    plan.cached = MIN(left, pool_count(core, lease->account, lease->chunk_bytes));
    left -= plan.cached;
    plan.clean = MIN(left, pool_count(core, nobody, lease->chunk_bytes));
    plan.create = left - plan.clean;
    return plan;
}

static int lease_reserve(struct lease *lease, uint32_t count)
{
    struct chunk **chunks;

    if (count <= lease->room)
        return 0;
    chunks = reallocarray(lease->chunks, count, sizeof(struct chunk *));
    if (!chunks)
        return -ENOMEM;
    lease->chunks = chunks;
    lease->room = count;
    return 0;
}

static void chunk_place(struct request *request, uint32_t index, struct chunk *chunk)
{
    chunk->lease = request->lease;
    chunk->request = request;
    chunk->index = index;
    request->lease->chunks[index] = chunk;
}

/* The chunks that don't exist yet, from `first` on. */
static int place_new(struct core *core, struct request *request, uint32_t first, uint32_t count)
{
    struct lease *lease = request->lease;

    for (uint32_t i = 0; i < count; i++) {
        struct chunk *chunk;
        int r = chunk_new(core, lease->account, lease->chunk_bytes, &chunk);

        if (r != 0) {
            while (i-- > 0) {
                chunk_end(core, lease->chunks[first + i]);
                lease->chunks[first + i] = NULL;
            }
            return r;
        }
        chunk_place(request, first + i, chunk);
    }
    return 0;
}

static void place_ready(struct core *core, struct request *request, struct account *from,
    uint32_t first, uint32_t count)
{
    const struct lease *lease = request->lease;

    for (uint32_t i = 0; i < count; i++) {
        struct chunk *chunk = pool_take(core, from, lease->chunk_bytes);

        chunk_set_state(chunk, CHUNK_LEASED, lease->account);
        chunk_place(request, first + i, chunk);
    }
}

/* From now on the request's chunks are asked for. Who has none with the shell is next. */
static void supply_join(struct account *account, struct request *request)
{
    struct device *device = account->device;

    list_append(&account->supply, &request->supply_link);
    if (list_linked(&account->supply_link))
        return;
    if (account->issued == 0)
        list_insert_after(&device->supply, &account->supply_link);
    else
        list_append(&device->supply, &account->supply_link);
}

static void supply_leave(struct account *account, struct request *request)
{
    list_remove(&request->supply_link);
    if (list_empty(&account->supply))
        list_remove(&account->supply_link);
}

int supply_start(struct core *core, struct request *request, const struct supply_plan *plan)
{
    struct lease *lease = request->lease;
    struct device *device = lease->account->device;
    uint32_t clean = request->first + plan->cached, new = clean + plan->clean;
    int r;

    r = lease_reserve(lease, request->first + request->count);
    if (r < 0)
        return r;
    r = place_new(core, request, new, plan->create);
    if (r != 0)
        return r;
    place_ready(core, request, lease->account, request->first, plan->cached);
    place_ready(core, request, &device->nobody, clean, plan->clean);
    request->supplied = true;
    request->next_issue = new;
    request->missing = plan->create;
    stalled_waited(core, request);
    queue_remove(core, request);
    request_set_state(request, REQUEST_CREATING);
    if (request->missing > 0)
        supply_join(lease->account, request);
    else if (gang_supplied(request))
        request_grant(core, request);
    return 0;
}

static void part_undo(struct core *core, struct request *request)
{
    struct lease *lease = request->lease;
    struct account *nobody = &lease->account->device->nobody;

    for (uint32_t i = request->first; i < request->first + request->count; i++) {
        struct chunk *chunk = lease->chunks[i];

        lease->chunks[i] = NULL;
        if (chunk->state == CHUNK_LEASED && chunk->forsaken)
            chunk_discard(core, chunk);
        else if (chunk->state == CHUNK_LEASED)
            chunk_keep(core, chunk, chunk->exposed ? lease->account : nobody);
        else if (chunk->issued)
            chunk_disown(chunk);
        else
            chunk_end(core, chunk);
    }
    request->supplied = false;
    request->outstanding = request->missing = 0;
    supply_leave(lease->account, request);
    lease->account->device->drain = true;
}

void supply_undo(struct core *core, struct request *request)
{
    for (uint32_t i = 0; i < request_parts(request); i++) {
        struct request *part = request_part(request, i);

        if (part->supplied)
            part_undo(core, part);
    }
}

static void issue(struct core *core, struct device *device, struct chunk *chunk)
{
    struct core_action *action = answer_add(core, CORE_ACTION_CHUNK_CREATE);

    chunk->issued = true;
    chunk->charge.account->issued++;
    device->issued++;
    action->chunk.device = device->index;
    action->chunk.chunk = chunk->slot.number;
    action->chunk.generation = chunk->slot.generation;
    action->chunk.bytes = chunk->charge.bytes;
}

static bool request_unissued(const struct request *request)
{
    return request->next_issue < request->first + request->count;
}

/* The device is closed: what was admitted before gets nothing there any more either. */
static void supply_refuse(struct core *core, struct request *request)
{
    const struct device *device = request->lease->account->device;

    supply_undo(core, request);
    request->limit = device_closed_limit(device);
    request->available_bytes = 0;
    request_refuse(core, request, device_closed_status(device));
}

/* The shell has answered for it. */
static void answered(struct chunk *chunk)
{
    chunk->issued = false;
    chunk->charge.account->issued--;
    chunk->charge.account->device->issued--;
}

void supply_work(struct core *core, struct device *device)
{
    struct account *account;

    while ((account = list_first(&device->supply, struct account, supply_link)) != NULL) {
        struct request *request = list_first(&account->supply, struct request, supply_link);

        if (!device_closed(device) &&
            device->issued >= (account->issued > 0 ? WINDOW_CHUNKS : WINDOW_MOST))
            return;
        if (answer_room(core) == 0) {
            core->more = true;
            return;
        }
        if (device_closed(device)) {
            supply_refuse(core, request);
            continue;
        }
        issue(core, device, request->lease->chunks[request->next_issue++]);
        request->outstanding++;
        list_remove(&account->supply_link);
        list_remove(&request->supply_link);
        if (request_unissued(request))
            list_append(&account->supply, &request->supply_link);
        if (!list_empty(&account->supply))
            list_append(&device->supply, &account->supply_link);
    }
}

/* All is there; but a part of a gang may have been ready before its device was drained. */
static void supply_finish(struct core *core, struct request *request)
{
    for (uint32_t i = 0; i < request_parts(request); i++) {
        struct request *part = request_part(request, i);

        if (!device_closed(part->lease->account->device))
            continue;
        supply_refuse(core, part);
        return;
    }
    request_grant(core, request);
}

void supply_created(struct core *core, struct chunk *chunk)
{
    struct account *account = chunk->charge.account;
    struct request *request = chunk->request;

    if (chunk->state != CHUNK_CREATING || !chunk->issued)
        return;
    answered(chunk);
    if (!request) {
        bool drain = account->device->drain;

        /* It was free memory before: who waits is looked at once all of them are there. */
        chunk_keep(core, chunk, account);
        account->device->drain = drain || account->bytes[CHUNK_CREATING] == 0;
        return;
    }
    chunk_set_state(chunk, CHUNK_LEASED, account);
    request->outstanding--;
    request->missing--;
    if (device_closed(account->device))
        supply_refuse(core, request);
    else if (gang_supplied(request))
        supply_finish(core, request);
}

void supply_failed(struct core *core, struct chunk *chunk, bool out_of_memory)
{
    struct device *device = chunk->charge.account->device;
    struct request *request = chunk->request;

    if (chunk->state != CHUNK_CREATING || !chunk->issued)
        return;
    if (request)
        chunk_disown(chunk);
    answered(chunk);
    if (request) {
        /* It is in the lease's array still, as one that was never asked for: undo ends it. */
        supply_undo(core, request);
    } else {
        chunk_end(core, chunk);
    }
    if (out_of_memory) {
        /* The ledger was contradicted: look what others use, and leave the driver alone a while. */
        device->create_after_ns = add_saturate(core->now_ns, core->options.create_backoff_ns);
        device->observe_ns = MIN(device->observe_ns, core->now_ns);
    }
    device->drain = true;
    if (!request)
        return;
    request->limit = device->failed  ? GMB_LIMIT_DEVICE
                     : out_of_memory ? GMB_LIMIT_DRIVER
                                     : GMB_LIMIT_NONE;
    request->available_bytes = 0;
    if (!out_of_memory || device->failed)
        request_refuse(core, request, GMB_STATUS_GPU);
    else if (request->immediate)
        request_refuse(core, request, GMB_STATUS_EXHAUSTED);
    else
        queue_requeue(core, request);
}

void supply_again(struct core *core, struct request *request)
{
    supply_undo(core, request);
    request->limit = GMB_LIMIT_DRIVER;
    request->available_bytes = 0;
    if (request->immediate)
        request_refuse(core, request, GMB_STATUS_EXHAUSTED);
    else
        queue_requeue(core, request);
}

uint64_t supply_ahead_ready(struct core *core, struct device *device)
{
    uint64_t bytes = device->ahead_chunk_bytes;

    return bytes == 0 ? 0
                      : MIN(device->ahead_bytes, pool_count(core, &device->nobody, bytes) * bytes);
}

void supply_prefetch(struct core *core, struct device *device)
{
    bool ahead = device->waiting_count > 0;
    uint64_t bytes = ahead ? device->ahead_chunk_bytes : device->recent_chunk_bytes;
    uint64_t target = ahead ? device->ahead_bytes : core->options.prefetch_bytes, ready;

    if (bytes == 0 || target == 0 || core->now_ns < device->create_after_ns ||
        device_closed(device))
        return;
    ready = pool_count(core, &device->nobody, bytes) * bytes + device->nobody.bytes[CHUNK_CREATING];
    while (sub_saturate(target, ready) >= bytes && device_free(device) >= bytes &&
           device->nobody.bytes[CHUNK_CREATING] < PREFETCH_CHUNKS * bytes) {
        struct chunk *chunk;

        if (answer_room(core) == 0 || chunk_new(core, &device->nobody, bytes, &chunk) != 0)
            return;
        issue(core, device, chunk);
        ready += bytes;
    }
}
