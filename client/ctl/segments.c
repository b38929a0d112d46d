/* A verification is begun by one request, and its end is seen in the list: it may take seconds. */
#include "client/ctl/segments.h"

#include <string.h>
#include <time.h>

#include "client/ctl/json.h"

/* Between two looks at the list, and how many: an hour for all that a node may hold. */
#define LOOK_NS 50000000
#define LOOKS_MAX (3600 * 20)

static int shown(int r, struct outcome *outcome)
{
    return r < 0 ? outcome_set_errno(outcome, r, "the answer can't be shown") : 0;
}

static bool named(const struct options *options, const Gmb__SegmentStatus *segment)
{
    return (options->name == NULL || strcmp(options->name, segment->name) == 0) &&
           (options->tenant == NULL || strcmp(options->tenant, segment->tenant) == 0) &&
           (!options->has_device ||
               (segment->device.len == UUID_BYTES &&
                   memcmp(segment->device.data, options->device.bytes, UUID_BYTES) == 0));
}

/* Those that the options name stay in the listing. */
static int list_named(
    const struct options *options, struct conn *conn, struct listing *ret, struct outcome *outcome)
{
    int r = control_list(conn, GMB__CONTROL_REQUEST__BODY_SEGMENTS_GET, ret, outcome);
    size_t kept = 0;

    for (size_t i = 0; r == 0 && i < ret->count; i++) {
        if (named(options, (const Gmb__SegmentStatus *) ret->items[i]))
            ret->items[kept++] = ret->items[i];
    }
    if (r == 0)
        ret->count = kept;
    return r;
}

static int list_show(const struct options *options, struct conn *conn, const struct view *view,
    bool *ret_changed, struct outcome *outcome)
{
    _cleanup_(listing_free) struct listing listing = {0};
    int r = list_named(options, conn, &listing, outcome);

    if (r < 0)
        return r;
    for (size_t i = 0; i < listing.count; i++)
        *ret_changed |= ((const Gmb__SegmentStatus *) listing.items[i])->state ==
                        GMB__SEGMENT_STATE__SEGMENT_STATE_QUARANTINED;
    r = options->json
            ? json_print_consume(json_from_messages(listing.items, listing.count), view->to)
            : view_segments(view, &listing);
    return shown(r, outcome);
}

static int change_ask(const struct options *options, struct conn *conn, Gmb__SegmentAction action,
    Gmb__ControlReply **ret, struct outcome *outcome)
{
    Gmb__ControlRequest request = GMB__CONTROL_REQUEST__INIT;
    struct uuid device = options->device;
    Gmb__SegmentChange change;

    gmb__segment_change__init(&change);
    change.action = action;
    if (options->tenant != NULL)
        change.tenant = (char *) (uintptr_t) options->tenant;
    if (options->name != NULL)
        change.name = (char *) (uintptr_t) options->name;
    if (options->has_device)
        change.device = (ProtobufCBinaryData){.data = device.bytes, .len = UUID_BYTES};
    request.body_case = GMB__CONTROL_REQUEST__BODY_SEGMENT_CHANGE;
    request.segment_change = &change;
    return control_ask(conn, &request, GMB__CONTROL_REPLY__BODY_SEGMENT_CHANGED, ret, outcome);
}

static const Gmb__SegmentStatus *segment_in(const struct listing *listing, uint64_t id)
{
    for (size_t i = 0; i < listing->count; i++) {
        const Gmb__SegmentStatus *segment = (const Gmb__SegmentStatus *) listing->items[i];

        if (segment->id == id)
            return segment;
    }
    return NULL;
}

/* Whether one that was sealed and summed hasn't been looked at since. */
static bool unseen(const Gmb__SegmentStatus *before, const struct listing *now)
{
    const Gmb__SegmentStatus *after = segment_in(now, before->id);

    return before->state == GMB__SEGMENT_STATE__SEGMENT_STATE_SEALED && before->summed &&
           after != NULL && after->state == GMB__SEGMENT_STATE__SEGMENT_STATE_SEALED &&
           after->verifications == before->verifications;
}

static int verified_wait(const struct options *options, struct conn *conn,
    const struct listing *before, struct outcome *outcome)
{
    const struct timespec pause = {.tv_nsec = LOOK_NS};

    for (unsigned looks = 0; looks < LOOKS_MAX; looks++) {
        _cleanup_(listing_free) struct listing now = {0};
        int r = list_named(options, conn, &now, outcome);
        bool waits = false;

        if (r < 0)
            return r;
        for (size_t i = 0; i < before->count; i++)
            waits = waits || unseen((const Gmb__SegmentStatus *) before->items[i], &now);
        if (!waits)
            return 0;
        (void) nanosleep(&pause, NULL);
    }
    return outcome_set(outcome, GMB_E_TIMED_OUT, "gmbd is still comparing");
}

static int verify_run(const struct options *options, struct conn *conn, const struct view *view,
    struct outcome *outcome)
{
    _cleanup_(listing_free) struct listing before = {0};
    Gmb__ControlReply *reply;
    bool changed = false;
    int r = list_named(options, conn, &before, outcome);

    if (r == 0)
        r = change_ask(options, conn, GMB__SEGMENT_ACTION__SEGMENT_ACTION_VERIFY, &reply, outcome);
    if (r < 0)
        return r;
    frame_message_free(&reply->base);
    r = verified_wait(options, conn, &before, outcome);
    if (r == 0)
        r = list_show(options, conn, view, &changed, outcome);
    if (r == 0 && changed)
        return outcome_set(outcome, GMB_E_EXHAUSTED, "a segment is in quarantine");
    return r;
}

static int change_run(const struct options *options, struct conn *conn, const struct view *view,
    Gmb__SegmentAction action, const char *done, struct outcome *outcome)
{
    Gmb__ControlReply *reply;
    int r = change_ask(options, conn, action, &reply, outcome);

    if (r < 0)
        return r;
    r = options->json
            ? json_print_consume(json_from_message(&reply->segment_changed->base), view->to)
            : view_segment_changed(view, reply->segment_changed, done);
    frame_message_free(&reply->base);
    return shown(r, outcome);
}

int segments_run(const struct options *options, struct conn *conn, const struct view *view,
    struct outcome *outcome)
{
    bool ignored = false;

    switch (options->segment) {
    case SEGMENT_LIST:
        return list_show(options, conn, view, &ignored, outcome);
    case SEGMENT_VERIFY:
        return verify_run(options, conn, view, outcome);
    case SEGMENT_REMOVE:
        return change_run(
            options, conn, view, GMB__SEGMENT_ACTION__SEGMENT_ACTION_REMOVE, "removed", outcome);
    case SEGMENT_DEMOTE:
        return change_run(options, conn, view, GMB__SEGMENT_ACTION__SEGMENT_ACTION_DEMOTE,
            "go to the host tier", outcome);
    case SEGMENT_RESTORE:
        return change_run(
            options, conn, view, GMB__SEGMENT_ACTION__SEGMENT_ACTION_RESTORE, "come back", outcome);
    case SEGMENT_OPTION_MAX:
        break;
    }
    return outcome_set(outcome, GMB_E_INTERNAL, "no such change");
}
