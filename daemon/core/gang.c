/*
 * A gang never holds a part of what it asked for. Each part stands in its tenant's queue on its
 * device and is judged there as any request is, but instead of being admitted it is noted to fit,
 * and what it would take is reserved against all that rank lower. When all parts were found to fit
 * in one step they are admitted together at its end.
 *
 * Two gangs can't wait for each other: what holds a gang back is memory in use, or a reservation of
 * one that ranks higher; a gang has one rank, the same on all devices; and one that is held back by
 * more than its devices (its own MemoryMax, an earlier request of its tenant) reserves nothing.
 */
#include "daemon/core/gang.h"

#include <assert.h>

#include "daemon/core/account.h"
#include "daemon/core/admit.h"
#include "daemon/core/answer.h"
#include "daemon/core/lease.h"
#include "daemon/core/queue.h"
#include "daemon/core/request.h"
#include "daemon/core/supply.h"

/* ------------------------------------------------------------------ making */

void gang_free(struct gang *gang)
{
    if (!gang)
        return;
    list_remove(&gang->link);
    free(gang);
}

static_assert(LIMIT_DEVICES <= 64, "a device has its bit");

void gang_disband(struct gang *gang)
{
    for (uint32_t i = 0; gang && i < gang->count; i++)
        gang->parts[i]->gang = NULL;
    gang_free(gang);
}

/* Each part on a device of its own, which every answer of the core's can name. */
static bool devices_differ(struct core *core, const struct core_event *event)
{
    uint64_t seen = 0;

    if (event->gang_request.count == 0 || event->gang_request.count > LIMIT_DEVICES) {
        answer_refuse(core, event, GMB_STATUS_INVALID, GMB_LIMIT_NONE,
            "a gang has 1 to %d parts, not %u", LIMIT_DEVICES, event->gang_request.count);
        return false;
    }
    for (uint32_t i = 0; i < event->gang_request.count; i++) {
        uint32_t device = event->gang_request.parts[i].device;

        if (device >= core->device_count) {
            answer_refuse(
                core, event, GMB_STATUS_NOT_FOUND, GMB_LIMIT_NONE, "there is no device %u", device);
            return false;
        }
        if ((seen >> device & 1) != 0) {
            answer_refuse(core, event, GMB_STATUS_INVALID, GMB_LIMIT_NONE,
                "two parts of the gang are on device %u", device);
            return false;
        }
        seen |= UINT64_C(1) << device;
    }
    return true;
}

/* NULL after an answer. */
static struct request *part_new(struct core *core, struct client *client,
    const struct core_event *event, const struct core_gang_part *part)
{
    const struct device *device = core->devices[part->device];
    uint64_t chunk_bytes = request_chunk_bytes(core, device, event, part->bytes, part->chunk_bytes);
    struct lease *lease;

    if (chunk_bytes == 0)
        return NULL;
    lease = lease_new_pending(core, client, part->device, chunk_bytes);
    if (!lease) {
        request_no_memory(core, event);
        return NULL;
    }
    return request_make(core, client, lease, event, 0, part->bytes, event->gang_request.wait_ns);
}

void gang_request_event(struct core *core, struct client *client, const struct core_event *event)
{
    uint32_t count = event->gang_request.count;
    struct gang *gang;

    if (!devices_differ(core, event) || !request_allowed(core, client, event, count) ||
        !request_leases_allowed(core, client, event, count))
        return;
    gang = calloc(1, sizeof(*gang) + count * sizeof(struct request *));
    if (!gang) {
        request_no_memory(core, event);
        return;
    }
    list_init(&gang->link);
    while (gang->count < count) {
        struct request *part =
            part_new(core, client, event, &event->gang_request.parts[gang->count]);

        if (!part)
            break;
        part->gang = gang;
        gang->parts[gang->count++] = part;
        part->arrival = gang->parts[0]->arrival;
    }
    if (gang->count == count)
        queue_enter(core, gang->parts[0]);
    else if (gang->count > 0)
        request_drop(core, gang->parts[0]);
    else
        gang_free(gang);
}

/* ------------------------------------------------------------------ waiting */

/* What is known of the gang in an earlier step doesn't count. */
static void gang_refresh(struct core *core, struct gang *gang)
{
    if (gang->step == core->steps)
        return;
    gang->step = core->steps;
    gang->fits = 0;
    gang->ranked = false;
}

/*
 * Where its tenant would have most is what counts, and it is kept for the step: ranks that differed
 * between devices would let two gangs wait for each other.
 */
void gang_rank(
    struct core *core, struct request *request, uint64_t *ret_used, uint64_t *ret_requested)
{
    struct gang *gang = request->gang;

    if (!gang) {
        *ret_used = request->lease->account->used;
        *ret_requested = request->bytes;
        return;
    }
    gang_refresh(core, gang);
    for (uint32_t i = 0; !gang->ranked && i < gang->count; i++) {
        const struct request *part = gang->parts[i];
        uint64_t used = part->lease->account->used;

        if (i == 0 || used + part->bytes > gang->used + gang->requested) {
            gang->used = used;
            gang->requested = part->bytes;
        }
    }
    gang->ranked = true;
    *ret_used = gang->used;
    *ret_requested = gang->requested;
}

void gangs_couple(struct core *core)
{
    bool drain = false;

    for (uint32_t i = 0; i < core->device_count; i++)
        drain |= core->devices[i]->gang_count > 0 && core->devices[i]->drain;
    for (uint32_t i = 0; drain && i < core->device_count; i++)
        core->devices[i]->drain |= core->devices[i]->gang_count > 0;
}

bool gang_stands(struct core *core, struct request *request)
{
    for (uint32_t i = 0; i < request_parts(request); i++) {
        struct request *part = request_part(request, i);

        if (part != request && !admit_stands(core, part))
            return false;
    }
    return true;
}

void gang_fits(struct core *core, struct request *request, uint64_t reserved_bytes)
{
    struct gang *gang = request->gang;

    gang_refresh(core, gang);
    request->reserved_bytes = reserved_bytes;
    if (++gang->fits == gang->count)
        list_append(&core->gangs_fit, &gang->link);
}

struct request *gang_culprit(struct request *request)
{
    for (uint32_t i = 0; i < request_parts(request); i++) {
        struct request *part = request_part(request, i);

        if (part->limit != GMB_LIMIT_NONE)
            return part;
    }
    /* It fitted everywhere, one device at a time. */
    request->limit = GMB_LIMIT_DEVICE;
    return request;
}

/* ------------------------------------------------------------------ admission */

/* Others were admitted since a part was judged: it is looked at again, at once. */
static bool still_fits(struct core *core, struct gang *gang)
{
    for (uint32_t i = 0; i < gang->count; i++) {
        struct request *part = gang->parts[i];

        if (admit_fits(core, part, part->reserved_bytes))
            continue;
        part->lease->account->device->drain = core->more = true;
        return false;
    }
    return true;
}

static bool gang_pauses(struct core *core, struct gang *gang)
{
    bool pauses = false;

    for (uint32_t i = 0; i < gang->count; i++)
        pauses |= admit_pauses(core, gang->parts[i]);
    return pauses;
}

static void gang_start(struct core *core, struct gang *gang)
{
    uint32_t count = gang->count;

    /* The last part that starts may grant, and end, all of them. */
    for (uint32_t i = 0; i < count; i++) {
        struct request *part = gang->parts[i];
        struct supply_plan plan = supply_plan_make(core, part);
        int r = supply_start(core, part, &plan);

        if (r == 0)
            continue;
        supply_undo(core, part);
        part->limit = r == SLOTS_FULL ? GMB_LIMIT_CHUNKS : GMB_LIMIT_NONE;
        part->available_bytes = 0;
        request_refuse(core, part, r == SLOTS_FULL ? GMB_STATUS_EXHAUSTED : GMB_STATUS_INTERNAL);
        return;
    }
}

void gangs_admit(struct core *core)
{
    while (!list_empty(&core->gangs_fit)) {
        struct gang *gang = list_first(&core->gangs_fit, struct gang, link);

        list_remove(&gang->link);
        if (answer_room(core) < gang->count) {
            gang->parts[0]->lease->account->device->drain = core->more = true;
            continue;
        }
        if (still_fits(core, gang) && !gang_pauses(core, gang))
            gang_start(core, gang);
    }
}

bool gang_supplied(struct request *request)
{
    for (uint32_t i = 0; i < request_parts(request); i++) {
        const struct request *part = request_part(request, i);

        if (part->state != REQUEST_CREATING || part->missing > 0)
            return false;
    }
    return true;
}
