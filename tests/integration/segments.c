/* See segments.h. */
#include "tests/integration/segments.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

#include "proto/frame.h"

struct member_order segment_order(enum member_what what, const char *name, uint64_t bytes)
{
    struct member_order order = {.what = what, .bytes = bytes, .wait_ns = SEGMENT_WAIT};

    (void) snprintf(order.name, sizeof(order.name), "%s", name);
    return order;
}

void segment_do(
    struct member *member, int result, enum member_what what, const char *name, uint64_t bytes)
{
    const struct member_order order = segment_order(what, name, bytes);
    int r = member_do(member, &order);

    ck_assert_msg(
        r == result, "order %d: %d instead of %d: %s", what, r, result, member->answer.text);
}

void segment_make(struct member *member, const char *name, uint64_t bytes, uint64_t seed)
{
    struct member_order order = segment_order(MEMBER_FILL, "", 0);

    segment_do(member, 0, MEMBER_CREATE, name, bytes);
    ck_assert_uint_eq(member->answer.writable, 1);
    order.seed = seed;
    ck_assert_int_eq(member_do(member, &order), 0);
    segment_do(member, 0, MEMBER_SEAL, "", 0);
    ck_assert_uint_eq(member->answer.writable, 0);
}

int segment_compare(struct member *member, uint64_t seed)
{
    struct member_order order = segment_order(MEMBER_CHECK, "", 0);

    order.seed = seed;
    return member_do(member, &order);
}

static Gmb__ControlReply *list(const struct harness *harness)
{
    Gmb__ControlRequest request = GMB__CONTROL_REQUEST__INIT;
    Gmb__SegmentsGet get = GMB__SEGMENTS_GET__INIT;
    Gmb__ControlReply *reply;

    request.body_case = GMB__CONTROL_REQUEST__BODY_SEGMENTS_GET;
    request.segments_get = &get;
    reply = raw_control(harness, &request);
    ck_assert_int_eq(reply->body_case, GMB__CONTROL_REPLY__BODY_SEGMENT_PAGE);
    return reply;
}

bool segment_status(const struct harness *harness, const char *name, Gmb__SegmentStatus *ret)
{
    Gmb__ControlReply *reply = list(harness);
    bool found = false;

    for (size_t i = 0; i < reply->segment_page->n_segments; i++) {
        const Gmb__SegmentStatus *segment = reply->segment_page->segments[i];

        if (strcmp(segment->name, name) != 0)
            continue;
        *ret = *segment;
        found = true;
    }
    ret->name = ret->tenant = ret->text = NULL;
    frame_message_free(&reply->base);
    return found;
}

size_t segment_count(const struct harness *harness)
{
    Gmb__ControlReply *reply = list(harness);
    size_t count = reply->segment_page->n_segments;

    frame_message_free(&reply->base);
    return count;
}

void segment_await(const struct harness *harness, const char *name, Gmb__SegmentState state)
{
    uint64_t deadline = harness_now_ms() + HARNESS_DEADLINE_MS;
    Gmb__SegmentStatus status = {.state = GMB__SEGMENT_STATE__SEGMENT_STATE_ASKED};
    bool gone = state == GMB__SEGMENT_STATE__SEGMENT_STATE_REMOVED;

    while (segment_status(harness, name, &status) ? gone || status.state != state : !gone) {
        ck_assert_msg(harness_now_ms() < deadline, "segment %s stays in state %d, not %d", name,
            (int) status.state, (int) state);
        harness_breathe();
    }
}

int segment_change(const struct harness *harness, const char *name, Gmb__SegmentAction action)
{
    Gmb__ControlRequest request = GMB__CONTROL_REQUEST__INIT;
    Gmb__SegmentChange change;
    Gmb__ControlReply *reply;
    int r;

    gmb__segment_change__init(&change);
    change.name = (char *) (uintptr_t) name;
    change.action = action;
    request.body_case = GMB__CONTROL_REQUEST__BODY_SEGMENT_CHANGE;
    request.segment_change = &change;
    reply = raw_control(harness, &request);
    r = reply->body_case == GMB__CONTROL_REPLY__BODY_ERROR ? -(int) reply->error->status
                                                           : (int) reply->segment_changed->segments;
    frame_message_free(&reply->base);
    return r;
}

void segments_clear(const struct harness *harness)
{
    uint64_t deadline = harness_now_ms() + HARNESS_DEADLINE_MS;

    (void) segment_change(harness, "", GMB__SEGMENT_ACTION__SEGMENT_ACTION_REMOVE);
    while (segment_count(harness) > 0) {
        ck_assert_msg(harness_now_ms() < deadline, "a removed segment stays");
        harness_breathe();
    }
}
