/* Segments, one a line. */
#include <errno.h>
#include <inttypes.h>

#include "client/ctl/duration.h"
#include "client/ctl/table.h"
#include "client/ctl/view.h"

static const char *const headings[] = {"<TENANT", "<NAME", "<DEVICE", "<STATE", "SIZE", "DEVICE",
    "?HOST", "READERS", "WAITING", "IDLE", "VERIFIED", "AGE", "<FOUND"};

static const struct {
    const char *name;
    enum style style;
} states[] = {
    [GMB__SEGMENT_STATE__SEGMENT_STATE_ASKED] = {"asked", STYLE_WARNING},
    [GMB__SEGMENT_STATE__SEGMENT_STATE_WRITING] = {"writing", STYLE_WARNING},
    [GMB__SEGMENT_STATE__SEGMENT_STATE_SEALING] = {"sealing", STYLE_WARNING},
    [GMB__SEGMENT_STATE__SEGMENT_STATE_SEALED] = {"sealed", STYLE_GOOD},
    [GMB__SEGMENT_STATE__SEGMENT_STATE_DEMOTING] = {"demoting", STYLE_PLAIN},
    [GMB__SEGMENT_STATE__SEGMENT_STATE_DEMOTED] = {"demoted", STYLE_PLAIN},
    [GMB__SEGMENT_STATE__SEGMENT_STATE_FILLING] = {"filling", STYLE_WARNING},
    [GMB__SEGMENT_STATE__SEGMENT_STATE_RESTORING] = {"restoring", STYLE_WARNING},
    [GMB__SEGMENT_STATE__SEGMENT_STATE_QUARANTINED] = {"quarantined", STYLE_ALARM},
    [GMB__SEGMENT_STATE__SEGMENT_STATE_REMOVED] = {"removed", STYLE_PLAIN},
};

static void span_cell(struct table *table, uint64_t ns, uint64_t none, const char *otherwise)
{
    char text[DURATION_TEXT_MAX];

    table_cell(table, STYLE_PLAIN, "%s", ns == none ? otherwise : duration_format(text, ns));
}

static void segment_add(struct table *table, const Gmb__SegmentStatus *segment)
{
    size_t state = (size_t) segment->state;
    bool known = state < ARRAY_SIZE(states);

    table_cell(table, STYLE_PLAIN, "%s", segment->tenant);
    table_cell(table, STYLE_PLAIN, "%s", segment->name);
    view_device_cell(table, &segment->device, segment->mig);
    table_cell(table, known ? states[state].style : STYLE_PLAIN, "%s",
        known ? states[state].name : "unknown");
    table_size(table, STYLE_PLAIN, segment->size_bytes);
    table_size(table, STYLE_PLAIN, segment->bytes);
    table_size(table, STYLE_PLAIN, segment->host_bytes);
    table_cell(table, STYLE_PLAIN, "%u", segment->readers);
    table_count(table, segment->waiting, UINT32_MAX);
    span_cell(table, segment->idle_ns, 0, "");
    span_cell(table, segment->verified_ns, UINT64_MAX, "never");
    span_cell(table, segment->age_ns, UINT64_MAX, "");
    table_cell(table, STYLE_ALARM, "%s", segment->text);
}

int view_segments(const struct view *view, const struct listing *segments)
{
    _cleanup_(table_free_ptr) struct table *table = table_new(headings, ARRAY_SIZE(headings));

    for (size_t i = 0; table != NULL && i < segments->count; i++)
        segment_add(table, (const Gmb__SegmentStatus *) segments->items[i]);
    return table_print(table, view->to, view->colour);
}

int view_segment_changed(
    const struct view *view, const Gmb__SegmentChanged *changed, const char *done)
{
    return fprintf(view->to, "%u segments %s\n", changed->segments, done) < 0 ? -EIO : 0;
}
