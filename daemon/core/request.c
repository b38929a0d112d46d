/*
 * A request is checked against what can never be, put into its tenant's queue and taken from there
 * by the device's drain, in the same step if nothing is in its way. So there is one path to a
 * grant, and no way past those who wait.
 */
#include "daemon/core/request.h"

#include "base/size.h"
#include "daemon/core/account.h"
#include "daemon/core/answer.h"
#include "daemon/core/gang.h"
#include "daemon/core/holder.h"
#include "daemon/core/lease.h"
#include "daemon/core/queue.h"
#include "daemon/core/states.h"
#include "daemon/core/supply.h"

/* chunk_bytes = 0: the smallest power-of-two multiple of the granularity with so few chunks. */
#define CHOICE_CHUNKS 64
/* How long a request that may not wait is held while the broker recovers what lies ready. */
#define RECOVERY_NS (100 * NSEC_PER_MSEC)

static struct request *request_find(const struct client *client, uint64_t id)
{
    list_for_each(request, &client->requests, struct request, client_link)
    {
        if (request->id == id)
            return request;
    }
    return NULL;
}

static void part_end(struct core *core, struct request *request)
{
    struct lease *lease = request->lease;

    queue_remove(core, request);
    /* Those behind it may come forward, on devices too whose turn in this step is over. */
    if (request->gang)
        lease->account->device->drain = core->more = true;
    list_remove(&request->client_link);
    request->client->request_count--;
    list_remove(&request->lease_link);
    lease->request_count--;
    if (lease->state == LEASE_PENDING)
        lease_drop_pending(core, lease);
    slots_give(&core->requests, request);
}

static void request_end(struct core *core, struct request *request, enum request_state state)
{
    struct gang *gang = request->gang;
    uint32_t parts = request_parts(request);

    for (uint32_t i = 0; i < parts; i++) {
        struct request *part = gang ? gang->parts[i] : request;

        request_set_state(part, state);
        part_end(core, part);
    }
    gang_free(gang);
}

static void part_grant(struct core *core, struct request *request, uint32_t part)
{
    struct lease *lease = request->lease;
    struct core_action *action = answer_add(core, CORE_ACTION_GRANT);

    action->client = slot_id(&request->client->slot);
    action->request = request->id;
    action->grant.lease = slot_id(&lease->slot);
    action->grant.first = request->first;
    action->grant.count = request->count;
    action->grant.part = part;
    action->grant.parts = request_parts(request);
    for (uint32_t i = 0; i < request->count; i++)
        lease->chunks[request->first + i]->request = NULL;
    lease_extend(core, request);
}

void request_grant(struct core *core, struct request *request)
{
    for (uint32_t i = 0; i < request_parts(request); i++)
        part_grant(core, request_part(request, i), i);
    core->granted++;
    request_end(core, request, REQUEST_GRANTED);
}

void request_refuse(struct core *core, struct request *request, enum gmb_status status)
{
    answer_request_refuse(core, request, status);
    if (status == GMB_STATUS_TIMED_OUT)
        core->timed_out++;
    request_end(core, request, REQUEST_REFUSED);
}

void request_drop(struct core *core, struct request *request)
{
    /* Those behind it may come forward. */
    request->lease->account->device->drain = true;
    if (request->state == REQUEST_CREATING)
        supply_undo(core, request);
    request_end(core, request, REQUEST_CANCELLED);
}

void request_cancel_event(struct core *core, struct client *client, const struct core_event *event)
{
    struct request *request = request_find(client, event->cancel.request);

    if (!request) {
        answer_refuse(core, event, GMB_STATUS_NOT_FOUND, GMB_LIMIT_NONE, "no request %llu waits",
            (unsigned long long) event->cancel.request);
        return;
    }
    answer_done(core, event);
    answer_request_refuse(core, request, GMB_STATUS_CANCELLED);
    request_drop(core, request);
}

bool request_allowed(
    struct core *core, const struct client *client, const struct core_event *event, uint32_t count)
{
    const struct tenant *tenant = client->tenant;

    if (!tenant->configured)
        answer_refuse(core, event, GMB_STATUS_DENIED, GMB_LIMIT_NONE,
            "tenant %s is no longer configured and gets no new memory", tenant->name);
    else if (request_find(client, event->request))
        answer_refuse(core, event, GMB_STATUS_INVALID, GMB_LIMIT_NONE,
            "request %llu is in flight already", (unsigned long long) event->request);
    else if (client->request_count + count > LIMIT_REQUESTS_PER_CLIENT)
        answer_refuse(core, event, GMB_STATUS_EXHAUSTED, GMB_LIMIT_REQUESTS,
            "a client has at most %d requests in flight", LIMIT_REQUESTS_PER_CLIENT);
    else if (tenant->waiting + count > LIMIT_REQUESTS_PER_TENANT)
        answer_refuse(core, event, GMB_STATUS_EXHAUSTED, GMB_LIMIT_REQUESTS,
            "tenant %s: a tenant has at most %d requests waiting", tenant->name,
            LIMIT_REQUESTS_PER_TENANT);
    else
        return true;
    return false;
}

/* Size of the chunks of a new lease; 0 and an answer when the event's makes no sense. */
static uint64_t chunk_bytes_choose(struct core *core, const struct device *device,
    const struct core_event *event, uint64_t wanted, uint64_t bytes)
{
    char granularity[SIZE_TEXT_MAX];

    if (bytes == 0) {
        bytes = device->granularity;
        while ((wanted - 1) / bytes + 1 > CHOICE_CHUNKS && bytes <= LIMIT_CHUNK_BYTES / 2)
            bytes *= 2;
        return bytes;
    }
    if (bytes % device->granularity == 0 && bytes <= LIMIT_CHUNK_BYTES)
        return bytes;
    size_format(granularity, device->granularity);
    answer_refuse(core, event, GMB_STATUS_INVALID, GMB_LIMIT_NONE,
        "chunk size %llu is no multiple of device %u's granularity %s up to 1G",
        (unsigned long long) bytes, device->index, granularity);
    return 0;
}

static bool chunk_count_fits(struct core *core, const struct core_event *event, uint64_t have,
    uint64_t bytes, uint64_t chunk)
{
    uint64_t count = (bytes - 1) / chunk + 1;
    char size[SIZE_TEXT_MAX];

    if (count <= LIMIT_LEASE_CHUNKS && have + count <= LIMIT_LEASE_CHUNKS)
        return true;
    size_format(size, chunk);
    answer_refuse(core, event, GMB_STATUS_OVER_LIMIT, GMB_LIMIT_CHUNKS,
        "a lease has at most %d chunks; with chunks of %s this one would have %llu",
        LIMIT_LEASE_CHUNKS, size, (unsigned long long) add_saturate(have, count));
    core->actions->items[core->actions->count - 1].refuse.requested_bytes = bytes;
    core->actions->items[core->actions->count - 1].refuse.available_bytes =
        sub_saturate(LIMIT_LEASE_CHUNKS, have) * chunk;
    return false;
}

/* Of a device that gives whole slabs alone. 0 and an answer. */
static uint64_t slab_bytes_choose(struct core *core, const struct device *device,
    const struct core_event *event, uint64_t wanted, uint64_t asked)
{
    uint64_t bytes;

    if (wanted > device->capacity || !round_up(wanted, device->granularity, &bytes)) {
        answer_refuse(core, event, GMB_STATUS_OVER_LIMIT, GMB_LIMIT_DEVICE,
            "device %u hands out %llu bytes in all, %llu requested", device->index,
            (unsigned long long) device->capacity, (unsigned long long) wanted);
        core->actions->items[core->actions->count - 1].refuse.requested_bytes = wanted;
        core->actions->items[core->actions->count - 1].refuse.available_bytes = device->capacity;
        return 0;
    }
    if (asked == 0)
        return bytes;
    if (asked >= bytes && asked <= device->capacity && asked % device->granularity == 0)
        return asked;
    answer_refuse(core, event, GMB_STATUS_UNSUPPORTED, GMB_LIMIT_NONE,
        "device %u shares memory over CUDA IPC: a lease there is one slab, and its chunk size is "
        "the lease's, not %llu",
        device->index, (unsigned long long) asked);
    return 0;
}

uint64_t request_chunk_bytes(struct core *core, const struct device *device,
    const struct core_event *event, uint64_t wanted, uint64_t asked)
{
    uint64_t chunk_bytes;

    if (wanted == 0) {
        answer_refuse(core, event, GMB_STATUS_INVALID, GMB_LIMIT_NONE, "a lease of 0 bytes");
        return 0;
    }
    if (device->whole)
        return slab_bytes_choose(core, device, event, wanted, asked);
    chunk_bytes = chunk_bytes_choose(core, device, event, wanted, asked);
    if (chunk_bytes == 0 || !chunk_count_fits(core, event, 0, wanted, chunk_bytes))
        return 0;
    return chunk_bytes;
}

struct request *request_make(struct core *core, struct client *client, struct lease *lease,
    const struct core_event *event, uint32_t first, uint64_t bytes, uint64_t wait_ns)
{
    void *item;
    struct request *request;

    if (heap_reserve(&core->deadlines, core->requests.used + 1) < 0 ||
        heap_reserve(&core->wakes, core->requests.used + 1) < 0 ||
        slots_take(&core->requests, &item) != SLOTS_OK) {
        answer_refuse(core, event, GMB_STATUS_INTERNAL, GMB_LIMIT_NONE,
            "no host memory in the broker for another request");
        if (lease->state == LEASE_PENDING)
            lease_drop_pending(core, lease);
        return NULL;
    }
    request = item;
    request->id = event->request;
    request->client = client;
    request->lease = lease;
    request->urgent = event->type == CORE_EVENT_ARENA_FILL && event->arena_fill.urgent;
    request->first = first;
    request->count = (uint32_t) ((bytes - 1) / lease->chunk_bytes + 1);
    request->bytes = request->count * lease->chunk_bytes;
    request->arrival = ++core->arrivals;
    request->immediate = wait_ns == 0;
    request->wait_ns = wait_ns == 0 ? RECOVERY_NS : MIN(wait_ns, LIMIT_WAIT_NS);
    list_init(&request->queue_link);
    list_init(&request->supply_link);
    list_init(&request->client_link);
    list_append(&client->requests, &request->client_link);
    client->request_count++;
    list_init(&request->lease_link);
    list_append(&lease->requests, &request->lease_link);
    lease->request_count++;
    lease->account->device->recent_chunk_bytes = lease->chunk_bytes;
    request_set_state(request, REQUEST_QUEUED);
    return request;
}

/* Makes the request and lets the queue have it. */
static void request_enter(struct core *core, struct client *client, struct lease *lease,
    const struct core_event *event, uint32_t first, uint64_t bytes, uint64_t wait_ns)
{
    struct request *request = request_make(core, client, lease, event, first, bytes, wait_ns);

    if (request)
        queue_enter(core, request);
}

bool request_leases_allowed(
    struct core *core, struct client *client, const struct core_event *event, uint32_t count)
{
    const struct tenant *tenant = client->tenant;

    if ((uint64_t) tenant->leases + tenant->leases_pending + count <= tenant->leases_max)
        return true;
    answer_refuse(core, event, GMB_STATUS_EXHAUSTED, GMB_LIMIT_LEASES_MAX,
        "tenant %s: LeasesMax=%u leases are held or asked for", tenant->name, tenant->leases_max);
    return false;
}

/* The device of an event that asks for a new lease, checked together with LeasesMax; NULL after an
 * answer. */
static struct device *new_lease_device(
    struct core *core, struct client *client, const struct core_event *event, uint32_t index)
{
    if (!request_allowed(core, client, event, 1))
        return NULL;
    if (index >= core->device_count) {
        answer_refuse(
            core, event, GMB_STATUS_NOT_FOUND, GMB_LIMIT_NONE, "there is no device %u", index);
        return NULL;
    }
    return request_leases_allowed(core, client, event, 1) ? core->devices[index] : NULL;
}

void request_no_memory(struct core *core, const struct core_event *event)
{
    answer_refuse(core, event, GMB_STATUS_INTERNAL, GMB_LIMIT_NONE,
        "no host memory in the broker for another lease");
}

void request_new_lease(struct core *core, struct client *client, const struct core_event *event)
{
    uint32_t index = event->lease_request.device;
    uint64_t bytes = event->lease_request.bytes, chunk_bytes;
    struct device *device = new_lease_device(core, client, event, index);
    struct lease *lease;

    if (!device)
        return;
    chunk_bytes = request_chunk_bytes(core, device, event, bytes, event->lease_request.chunk_bytes);
    if (chunk_bytes == 0)
        return;
    lease = lease_new_pending(core, client, index, chunk_bytes);
    if (!lease) {
        request_no_memory(core, event);
        return;
    }
    request_enter(core, client, lease, event, 0, bytes, event->lease_request.wait_ns);
}

/* Empty indices cost no device memory: nothing but this bounds what they cost here. */
static bool indices_allowed(
    struct core *core, const struct tenant *tenant, const struct core_event *event, uint32_t count)
{
    uint32_t left = LIMIT_INDICES_PER_TENANT - tenant->index_count;

    if (count <= left)
        return true;
    answer_refuse(core, event, GMB_STATUS_EXHAUSTED, GMB_LIMIT_CHUNKS,
        "tenant %s: its arenas and segments may have %u chunks more, %u requested", tenant->name,
        left, count);
    return false;
}

void request_new_segment(struct core *core, struct client *client, const struct core_event *event)
{
    uint32_t index = event->lease_request.device;
    uint64_t bytes = event->lease_request.bytes, chunk_bytes;
    struct device *device = new_lease_device(core, client, event, index);
    const struct tenant *tenant = client->tenant;
    struct lease *lease;
    uint32_t chunks;

    if (!device)
        return;
    if (device->whole) {
        answer_refuse(core, event, GMB_STATUS_UNSUPPORTED, GMB_LIMIT_NONE,
            "device %u shares memory over CUDA IPC: what is opened there can't be kept from "
            "writing, nor moved, so it has no segments",
            index);
        return;
    }
    if (tenant->segments >= LIMIT_SEGMENTS_PER_TENANT) {
        answer_refuse(core, event, GMB_STATUS_EXHAUSTED, GMB_LIMIT_LEASES_MAX,
            "tenant %s: a tenant has at most %d segments", tenant->name, LIMIT_SEGMENTS_PER_TENANT);
        return;
    }
    chunk_bytes = request_chunk_bytes(core, device, event, bytes, event->lease_request.chunk_bytes);
    if (chunk_bytes == 0)
        return;
    chunks = (uint32_t) ((bytes - 1) / chunk_bytes + 1);
    if (!indices_allowed(core, tenant, event, chunks))
        return;
    lease = lease_new_segment(core, client, index, chunk_bytes, chunks);
    if (!lease) {
        request_no_memory(core, event);
        return;
    }
    request_enter(core, client, lease, event, 0, bytes, event->lease_request.wait_ns);
}

static bool arena_allowed(struct core *core, const struct tenant *tenant,
    const struct device *device, const struct core_event *event)
{
    if (device->failed)
        answer_refuse(core, event, GMB_STATUS_GPU, GMB_LIMIT_DEVICE,
            "device %u is out of service since it failed: no arena for tenant %s", device->index,
            tenant->name);
    else if (device->draining)
        answer_refuse(core, event, GMB_STATUS_EXHAUSTED, GMB_LIMIT_DRAINING,
            "device %u is being drained by an operator: no arena for tenant %s", device->index,
            tenant->name);
    else if (tenant->arenas >= LIMIT_ARENAS_PER_TENANT)
        answer_refuse(core, event, GMB_STATUS_EXHAUSTED, GMB_LIMIT_LEASES_MAX,
            "tenant %s: a tenant has at most %d arenas", tenant->name, LIMIT_ARENAS_PER_TENANT);
    else
        return indices_allowed(core, tenant, event, event->arena_request.max_chunks);
    return false;
}

void request_new_arena(struct core *core, struct client *client, const struct core_event *event)
{
    uint64_t chunk_bytes = event->arena_request.chunk_bytes;
    uint32_t max_chunks = event->arena_request.max_chunks, index = event->arena_request.device;
    struct device *device = new_lease_device(core, client, event, index);
    struct lease *lease;

    if (!device)
        return;
    if (device->whole) {
        answer_refuse(core, event, GMB_STATUS_UNSUPPORTED, GMB_LIMIT_NONE,
            "device %u shares memory over CUDA IPC: chunks can't come and go at addresses of their "
            "own there, so it has no arenas",
            index);
        return;
    }
    if (chunk_bytes == 0 || chunk_bytes % device->granularity != 0 ||
        chunk_bytes > LIMIT_CHUNK_BYTES || max_chunks == 0 || max_chunks > LIMIT_LEASE_CHUNKS) {
        answer_refuse(core, event, GMB_STATUS_INVALID, GMB_LIMIT_CHUNKS,
            "an arena has 1 to %d chunks, each a multiple of device %u's granularity up to 1G",
            LIMIT_LEASE_CHUNKS, index);
        return;
    }
    if (!arena_allowed(core, client->tenant, device, event))
        return;
    lease = lease_new_arena(core, client, index, chunk_bytes, max_chunks);
    if (!lease) {
        request_no_memory(core, event);
        return;
    }
    answer_grant(core, event, lease, 0, 0);
}

void request_fill(struct core *core, struct client *client, const struct core_event *event)
{
    struct lease *lease = lease_find(core, client, event->arena_fill.lease);
    uint32_t first = event->arena_fill.first, count = event->arena_fill.count;

    if (!request_allowed(core, client, event, 1))
        return;
    if (!lease)
        answer_refuse(
            core, event, GMB_STATUS_NOT_FOUND, GMB_LIMIT_NONE, "the client has no such lease");
    else if (lease->kind == CORE_LEASE_SEGMENT && !client->steward)
        answer_refuse(core, event, GMB_STATUS_INVALID, GMB_LIMIT_NONE,
            "the lease is a segment: it has all its chunks from the start");
    else if (!holder_find(lease, client)->open)
        answer_refuse(core, event, GMB_STATUS_INVALID, GMB_LIMIT_NONE,
            "the client has attached to the arena and not taken part in it yet");
    else if (count == 0 || first >= lease->max || count > lease->max - first)
        answer_refuse(core, event, GMB_STATUS_INVALID, GMB_LIMIT_NONE,
            "the lease has %u indices to fill, not %u from %u on", lease->max, count, first);
    else if (lease_overlaps(lease, first, count))
        answer_refuse(core, event, GMB_STATUS_INVALID, GMB_LIMIT_NONE,
            "an index from %u to %u is filled or asked for already", first, first + count - 1);
    else
        request_enter(core, client, lease, event, first, count * lease->chunk_bytes,
            event->arena_fill.wait_ns);
}

void request_grow(struct core *core, struct client *client, const struct core_event *event)
{
    struct lease *lease = lease_find(core, client, event->lease_grow.lease);
    uint64_t bytes = event->lease_grow.bytes;

    if (!request_allowed(core, client, event, 1))
        return;
    if (!lease)
        answer_refuse(
            core, event, GMB_STATUS_NOT_FOUND, GMB_LIMIT_NONE, "the client has no such lease");
    else if (bytes == 0)
        answer_refuse(core, event, GMB_STATUS_INVALID, GMB_LIMIT_NONE, "growth by 0 bytes");
    else if (lease->max > 0)
        answer_refuse(core, event, GMB_STATUS_INVALID, GMB_LIMIT_NONE,
            "the lease is no workspace: it doesn't grow behind its end");
    else if (lease->account->device->whole)
        answer_refuse(core, event, GMB_STATUS_UNSUPPORTED, GMB_LIMIT_NONE,
            "device %u shares memory over CUDA IPC: a lease there is one slab and can't grow",
            lease->account->device->index);
    else if (lease->request_count > 0)
        answer_refuse(core, event, GMB_STATUS_INVALID, GMB_LIMIT_NONE,
            "a request to grow the lease is in flight");
    else if (chunk_count_fits(core, event, lease->count, bytes, lease->chunk_bytes))
        request_enter(core, client, lease, event, lease->count, bytes, event->lease_grow.wait_ns);
}
