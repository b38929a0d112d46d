/* Segments as operators see them. */
#include <string.h>

#include "daemon/report.h"
#include "daemon/segment.h"

_Static_assert((int) SEGMENT_ASKED == GMB__SEGMENT_STATE__SEGMENT_STATE_ASKED &&
                   (int) SEGMENT_SEALED == GMB__SEGMENT_STATE__SEGMENT_STATE_SEALED &&
                   (int) SEGMENT_REMOVED == GMB__SEGMENT_STATE__SEGMENT_STATE_REMOVED,
    "states have one number everywhere");

static uint64_t since(uint64_t now_ns, uint64_t then_ns, uint64_t never)
{
    return then_ns == CLOCK_NEVER ? never : sub_saturate(now_ns, then_ns);
}

static void segment_fill_status(const struct broker *broker, const struct segment *segment,
    Gmb__SegmentStatus *status, char tenant_name[LIMIT_NAME_BYTES + 1])
{
    uint64_t now_ns = clock_now(broker->clock);
    struct core_tenant_view tenant = {.name = ""};
    struct core_lease_view lease = {0};

    (void) core_tenant_get(broker->core, segment->space->tenant, &tenant);
    (void) core_lease_get(broker->core, segment->lease, &lease);
    memcpy(tenant_name, tenant.name, sizeof(tenant.name));
    gmb__segment_status__init(status);
    status->id = segment->number;
    status->tenant = tenant_name;
    status->name = (char *) (uintptr_t) segment->name;
    status->device = report_uuid(broker, segment->device);
    status->mig = broker->devices[segment->device].mig;
    status->state = (Gmb__SegmentState) segment->state;
    status->bytes = lease.chunks * lease.chunk_bytes;
    status->size_bytes = segment->size_bytes;
    status->readers = segment->readers;
    status->waiting = segment->waiter_count;
    status->age_ns = sub_saturate(now_ns, segment->asked_ns);
    status->idle_ns = since(now_ns, segment->idle_ns, 0);
    status->verified_ns = since(now_ns, segment->verified_ns, UINT64_MAX);
    status->verifications = segment->verifications;
    status->summed = segment->summed;
    status->text = (char *) (uintptr_t) segment->text;
    status->lease = segment->lease;
    status->host_bytes = segment->store != NULL ? tier_space_charged(segment->store) : 0;
}

void report_segments(const struct broker *broker, uint64_t after, struct report *report)
{
    Gmb__SegmentPage *page = &report->body.segment_page;
    size_t count = 0;

    report_begin(report, GMB__CONTROL_REPLY__BODY_SEGMENT_PAGE);
    gmb__segment_page__init(page);
    report->message.segment_page = page;
    page->last = true;
    list_for_each(segment, &broker->segments->all, struct segment, all_link)
    {
        if (segment->number <= after)
            continue;
        if (count == REPORT_SEGMENTS) {
            page->last = false;
            break;
        }
        segment_fill_status(broker, segment, &report->list.segments.items[count],
            report->list.segments.tenants[count]);
        report->list.segments.pointers[count] = &report->list.segments.items[count];
        count++;
    }
    page->n_segments = count;
    page->segments = report->list.segments.pointers;
}

void report_segment_changed(struct report *report, uint32_t segments)
{
    Gmb__SegmentChanged *changed = &report->body.segment_changed;

    report_begin(report, GMB__CONTROL_REPLY__BODY_SEGMENT_CHANGED);
    gmb__segment_changed__init(changed);
    report->message.segment_changed = changed;
    changed->segments = segments;
}
