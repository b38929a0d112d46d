/* What operators do to segments: by name, tenant and device, or to all of them. */
#include <string.h>

#include "base/log.h"
#include "daemon/broker.h"
#include "daemon/operate.h"
#include "daemon/report.h"
#include "daemon/segment.h"
#include "daemon/segment_walk.h"

/* An operator's wish for memory waits so long for it. */
#define RESTORE_WAIT_NS (60 * NSEC_PER_SEC)

static const char *const actions[] = {
    [GMB__SEGMENT_ACTION__SEGMENT_ACTION_REMOVE] = "remove",
    [GMB__SEGMENT_ACTION__SEGMENT_ACTION_VERIFY] = "verify",
    [GMB__SEGMENT_ACTION__SEGMENT_ACTION_DEMOTE] = "demote",
    [GMB__SEGMENT_ACTION__SEGMENT_ACTION_RESTORE] = "restore",
};

static bool change_names(const struct broker *broker, const Gmb__SegmentChange *change,
    const struct segment *segment, const uint32_t *device)
{
    struct core_tenant_view tenant = {.name = ""};

    (void) core_tenant_get(broker->core, segment->space->tenant, &tenant);
    return segment->state != SEGMENT_REMOVED &&
           (change->tenant[0] == '\0' || strcmp(change->tenant, tenant.name) == 0) &&
           (change->name[0] == '\0' || strcmp(change->name, segment->name) == 0) &&
           (device == NULL || segment->device == *device);
}

/* True when it was done or begun. */
static bool change_do(struct segment *segment, Gmb__SegmentAction action)
{
    switch (action) {
    case GMB__SEGMENT_ACTION__SEGMENT_ACTION_REMOVE:
        if (segment->state < SEGMENT_SEALED)
            return false;
        segment_remove(segment);
        return true;
    case GMB__SEGMENT_ACTION__SEGMENT_ACTION_VERIFY:
        return segment->state == SEGMENT_SEALED && segment->summed &&
               segment->walk.kind == SEGMENT_WALK_NONE &&
               segment_walk_start(segment, SEGMENT_WALK_VERIFY);
    case GMB__SEGMENT_ACTION__SEGMENT_ACTION_DEMOTE:
        return segment_demote(segment, UINT32_MAX) == 0;
    case GMB__SEGMENT_ACTION__SEGMENT_ACTION_RESTORE:
        if (segment->state != SEGMENT_DEMOTED)
            return false;
        segment_fill(segment, RESTORE_WAIT_NS);
        return true;
    case _GMB__SEGMENT_ACTION_IS_INT_SIZE:
        break;
    }
    return false;
}

void operate_segments(struct broker *broker, const struct operate_caller *caller,
    const Gmb__SegmentChange *change, struct report *report)
{
    uint32_t device, named = 0, done = 0;
    bool any_device = change->device.len == 0;

    if ((unsigned) change->action >= ARRAY_SIZE(actions) ||
        (!any_device &&
            !broker_device_find(broker, change->device.data, change->device.len, &device))) {
        report_error(report, any_device ? GMB_STATUS_INVALID : GMB_STATUS_NOT_FOUND, GMB_LIMIT_NONE,
            any_device ? "no such change" : "no such device");
        return;
    }
    list_for_each(segment, &broker->segments->all, struct segment, all_link)
    {
        if (!change_names(broker, change, segment, any_device ? NULL : &device))
            continue;
        named++;
        done += change_do(segment, change->action);
    }
    if (named == 0) {
        report_error(report, GMB_STATUS_NOT_FOUND, GMB_LIMIT_NONE,
            "there is no such segment (gmbctl segments shows them)");
        return;
    }
    log_info("operator uid %u pid %d: %s %u of %u segments named %.64s of tenant %.64s",
        (unsigned) caller->uid, (int) caller->pid, actions[change->action], done, named,
        change->name[0] != '\0' ? change->name : "anything",
        change->tenant[0] != '\0' ? change->tenant : "any");
    report_segment_changed(report, done);
}
