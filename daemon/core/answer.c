/*
 * A refusal always says what refused, with its value, and what was asked for: whoever reads it must
 * be able to tell whether to wait, to ask for less, or to call the operator.
 */
#include "daemon/core/answer.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/size.h"

size_t answer_room(const struct core *core)
{
    return CORE_ACTIONS_MAX - core->actions->count;
}

struct core_action *answer_add(struct core *core, enum core_action_type type)
{
    struct core_action *action = &core->actions->items[core->actions->count];

    assert(answer_room(core) > 0);
    core->actions->count++;
    *action = (struct core_action){.type = type};
    return action;
}

void answer_grant(struct core *core, const struct core_event *event, const struct lease *lease,
    uint32_t first, uint32_t count)
{
    struct core_action *action = answer_add(core, CORE_ACTION_GRANT);

    action->client = event->client;
    action->request = event->request;
    action->grant.lease = slot_id(&lease->slot);
    action->grant.first = first;
    action->grant.count = count;
    action->grant.parts = 1;
    core->granted++;
}

void answer_done(struct core *core, const struct core_event *event)
{
    struct core_action *action = answer_add(core, CORE_ACTION_DONE);

    action->client = event->client;
    action->request = event->request;
    action->cookie = event->cookie;
}

void answer_refuse(struct core *core, const struct core_event *event, enum gmb_status status,
    enum gmb_limit limit, const char *format, ...)
{
    struct core_action *action = answer_add(core, CORE_ACTION_REFUSE);
    va_list arguments;

    action->client = event->client;
    action->request = event->request;
    action->cookie = event->cookie;
    action->refuse.status = status;
    action->refuse.limit = limit;
    va_start(arguments, format);
    (void) vsnprintf(action->refuse.text, sizeof(action->refuse.text), format, arguments);
    va_end(arguments);
    core->refused++;
}

/* What the sentence needs, as text. */
struct refusal {
    const char *tenant;
    unsigned device;
    char requested[SIZE_TEXT_MAX], available[SIZE_TEXT_MAX], limit[SIZE_TEXT_MAX];
    bool never, failed;
};

static void refusal_write(
    char *text, size_t size, const struct refusal *r, const struct request *request)
{
    switch (request->limit) {
    case GMB_LIMIT_MEMORY_MAX:
        (void) snprintf(text, size, "tenant %s: MemoryMax=%s on device %u %s %s, %s requested",
            r->tenant, r->limit, r->device, r->never ? "can never give more than" : "leaves",
            r->available, r->requested);
        break;
    case GMB_LIMIT_DEVICE:
        if (r->failed) {
            (void) snprintf(text, size,
                "device %u is out of service since it failed, %s requested by tenant %s", r->device,
                r->requested, r->tenant);
            break;
        }
        (void) snprintf(text, size, "device %u: capacity %s %s %s for tenant %s, %s requested",
            r->device, r->limit, r->never ? "can never give more than" : "has", r->available,
            r->tenant, r->requested);
        break;
    case GMB_LIMIT_GUARANTEED:
        (void) snprintf(text, size,
            "device %u: MemoryMin of other tenants %s %s for tenant %s, %s requested", r->device,
            r->never ? "never leaves more than" : "leaves", r->available, r->tenant, r->requested);
        break;
    case GMB_LIMIT_MEMORY_HIGH:
        (void) snprintf(text, size,
            "tenant %s: above MemoryHigh=%s on device %u growth is slowed down, %s requested",
            r->tenant, r->limit, r->device, r->requested);
        break;
    case GMB_LIMIT_DRIVER:
        (void) snprintf(text, size,
            "device %u: the driver has no memory though the ledger has, %s requested by tenant %s",
            r->device, r->requested, r->tenant);
        break;
    case GMB_LIMIT_CHUNKS:
        (void) snprintf(text, size,
            "the broker keeps at most %u chunks on all devices, %u requested by tenant %s",
            LIMIT_CHUNKS_TOTAL, request->count, r->tenant);
        break;
    case GMB_LIMIT_DRAINING:
        (void) snprintf(text, size,
            "device %u is being drained by an operator, %s requested by tenant %s", r->device,
            r->requested, r->tenant);
        break;
    case GMB_LIMIT_NONE:
    case GMB_LIMIT_CLIENTS_MAX:
    case GMB_LIMIT_LEASES_MAX:
    case GMB_LIMIT_REQUESTS:
    case GMB_LIMIT_PERMISSION:
    case GMB_LIMIT_HOLDERS:
    case GMB_LIMIT_UNSEALED:
    case GMB_LIMIT_MAX:
        (void) snprintf(
            text, size, "tenant %s: %s requested on device %u", r->tenant, r->requested, r->device);
        break;
    }
}

static const char *refusal_prefix(enum gmb_status status)
{
    if (status == GMB_STATUS_CANCELLED)
        return "cancelled: ";
    if (status == GMB_STATUS_GPU)
        return "the driver failed to create memory: ";
    if (status == GMB_STATUS_INTERNAL)
        return "no host memory in the broker: ";
    if (status == GMB_STATUS_DENIED)
        return "the tenant is no longer configured: ";
    return "";
}

/* Cuts off what has no room. */
static void text_append(char text[LIMIT_TEXT_BYTES], const char *more)
{
    size_t length = strlen(text);

    (void) snprintf(text + length, LIMIT_TEXT_BYTES - length, "%s", more);
}

/* Without this, what can never be had looks less than the limit says. */
static void text_append_held(char text[LIMIT_TEXT_BYTES], const struct lease *lease)
{
    char held[SIZE_TEXT_MAX], more[SIZE_TEXT_MAX + 32];

    if (lease->count == 0)
        return;
    (void) snprintf(more, sizeof(more), "; the lease has %s already",
        size_format(held, lease->count * lease->chunk_bytes));
    text_append(text, more);
}

void answer_request_refuse(struct core *core, const struct request *request, enum gmb_status status)
{
    struct account *account = request->lease->account;
    struct core_action *action = answer_add(core, CORE_ACTION_REFUSE);
    size_t length;
    struct refusal r = {
        .tenant = account->tenant->name,
        .device = account->device->index,
        .never = status == GMB_STATUS_OVER_LIMIT,
        .failed = status == GMB_STATUS_GPU && account->device->failed,
    };
    uint64_t limit_bytes = account->device->capacity;

    if (request->limit == GMB_LIMIT_MEMORY_MAX)
        limit_bytes = account->limits.max;
    else if (request->limit == GMB_LIMIT_MEMORY_HIGH)
        limit_bytes = account->limits.high;
    size_format(r.requested, request->bytes);
    size_format(r.available, request->available_bytes);
    size_format(r.limit, limit_bytes);
    action->client = slot_id(&request->client->slot);
    action->request = request->id;
    action->refuse.status = status;
    action->refuse.limit = request->limit;
    action->refuse.requested_bytes = request->bytes;
    action->refuse.available_bytes = request->available_bytes;
    if (!r.failed)
        text_append(action->refuse.text, refusal_prefix(status));
    length = strlen(action->refuse.text);
    refusal_write(action->refuse.text + length, sizeof(action->refuse.text) - length, &r, request);
    if (r.never)
        text_append_held(action->refuse.text, request->lease);
    if (status == GMB_STATUS_TIMED_OUT)
        text_append(action->refuse.text, "; its time to wait is over");
    core->refused++;
}
