/* See segments.h. */
#include "tests/integration/segments.h"

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "proto/frame.h"

void segment_pair_start(const struct harness *harness, struct member *first, struct member *second)
{
    member_start(first, harness, 0);
    member_start(second, harness, 0);
}

void segment_pair_end(struct harness *harness, struct member *first, struct member *second)
{
    member_end(first, 0);
    member_end(second, 0);
    segments_clear(harness);
    harness_stop(harness);
}

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

void segment_make_idle(struct member *member, const char *name, uint64_t bytes, uint64_t seed)
{
    segment_make(member, name, bytes, seed);
    segment_do(member, 0, MEMBER_RELEASE, "", 0);
}

void segment_make_demoted(const struct harness *harness, struct member *member, const char *name,
    uint64_t bytes, uint64_t seed)
{
    segment_make_idle(member, name, bytes, seed);
    segment_demote(harness, name);
    segment_await(harness, name, STATE(DEMOTED));
}

int segment_compare(struct member *member, uint64_t seed)
{
    struct member_order order = segment_order(MEMBER_CHECK, "", 0);

    order.seed = seed;
    return member_do(member, &order);
}

/* Those behind that id, as many as come at once. */
static Gmb__ControlReply *list(const struct harness *harness, uint64_t after)
{
    Gmb__ControlRequest request = GMB__CONTROL_REQUEST__INIT;
    Gmb__SegmentsGet get = GMB__SEGMENTS_GET__INIT;
    Gmb__ControlReply *reply;

    get.after = after;
    request.body_case = GMB__CONTROL_REQUEST__BODY_SEGMENTS_GET;
    request.segments_get = &get;
    reply = raw_control(harness, &request);
    ck_assert_int_eq(reply->body_case, GMB__CONTROL_REPLY__BODY_SEGMENT_PAGE);
    return reply;
}

/* Counts all, or those of that name, of which `ret` is the last. */
static size_t look(const struct harness *harness, const char *name, Gmb__SegmentStatus *ret)
{
    uint64_t after = 0;
    size_t count = 0;
    bool last;

    do {
        Gmb__ControlReply *reply = list(harness, after);

        for (size_t i = 0; i < reply->segment_page->n_segments; i++) {
            const Gmb__SegmentStatus *segment = reply->segment_page->segments[i];

            after = segment->id;
            if (name != NULL && strcmp(segment->name, name) != 0)
                continue;
            count++;
            if (ret != NULL)
                *ret = *segment;
        }
        last = reply->segment_page->last;
        frame_message_free(&reply->base);
    } while (!last);
    return count;
}

bool segment_status(const struct harness *harness, const char *name, Gmb__SegmentStatus *ret)
{
    bool found = look(harness, name, ret) > 0;

    ret->name = ret->tenant = ret->text = NULL;
    return found;
}

size_t segment_count(const struct harness *harness)
{
    return look(harness, NULL, NULL);
}

void segment_await(const struct harness *harness, const char *name, Gmb__SegmentState state)
{
    Gmb__SegmentStatus status = {.state = STATE(ASKED)};
    uint64_t deadline = harness_now_ms() + HARNESS_DEADLINE_MS;
    bool gone = state == STATE(REMOVED);

    while (segment_status(harness, name, &status) ? gone || status.state != state : !gone) {
        ck_assert_msg(harness_now_ms() < deadline, "segment %s stays in state %d, not %d", name,
            (int) status.state, (int) state);
        harness_breathe();
    }
}

void segment_await_waiting(const struct harness *harness, const char *name, uint32_t count)
{
    Gmb__SegmentStatus status;

    wait_until(segment_status(harness, name, &status) && status.waiting == count);
}

void segment_await_readers(const struct harness *harness, const char *name, uint32_t count)
{
    Gmb__SegmentStatus status;

    wait_until(segment_status(harness, name, &status) && status.readers == count);
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

void segment_demote(const struct harness *harness, const char *name)
{
    wait_until(segment_change(harness, name, ACTION(DEMOTE)) == 1);
}

void segments_clear(const struct harness *harness)
{
    (void) segment_change(harness, "", ACTION(REMOVE));
    wait_until(segment_count(harness) == 0);
}

void segments_reload(const struct harness *harness, const char *text)
{
    harness_configure(harness, text);
    ck_assert_int_eq(raw_reload(harness), GMB_STATUS_OK);
}

/* ------------------------------------------------------------------ over restarts */

void segment_succeed(struct harness *harness)
{
    harness_keeper_renew(harness);
    harness_succeed(harness, SIGKILL);
}

void segment_come_back(struct member *member)
{
    segment_do(member, GMB_E_NOT_FOUND, MEMBER_OPEN, "nothing", 0);
}

void segment_expect_use(const struct harness *harness, uint64_t leased, uint64_t evicted)
{
    Gmb__TenantDevice use;

    raw_tenant(harness, "test", &use);
    ck_assert_uint_eq(use.leased_bytes, leased);
    ck_assert_uint_eq(use.evicted_bytes, evicted);
}

void segment_expect_state(const struct harness *harness, const char *name, Gmb__SegmentState state)
{
    Gmb__SegmentStatus status;

    ck_assert(segment_status(harness, name, &status));
    ck_assert_int_eq(status.state, state);
}

void segment_expect_verifies(const struct harness *harness, const char *name)
{
    Gmb__SegmentStatus status;
    uint64_t before;

    ck_assert(segment_status(harness, name, &status));
    before = status.verifications;
    wait_until(segment_change(harness, name, ACTION(VERIFY)) == 1);
    wait_until(segment_status(harness, name, &status) && status.verifications > before);
    ck_assert_int_eq(status.state, STATE(SEALED));
}

/* ------------------------------------------------------------------ by hand */

uint64_t segment_ask_of(struct raw *raw, bool group, const char *name, uint64_t bytes,
    uint64_t chunk_bytes, uint64_t wait_ns)
{
    Gmb__ClientMessage message = GMB__CLIENT_MESSAGE__INIT;
    Gmb__SegmentRequest body;

    gmb__segment_request__init(&body);
    body.name = (char *) (uintptr_t) name;
    body.bytes = bytes;
    body.chunk_bytes = chunk_bytes;
    body.wait_ns = wait_ns;
    body.group = group;
    message.body_case = GMB__CLIENT_MESSAGE__BODY_SEGMENT_REQUEST;
    message.segment_request = &body;
    return raw_send(raw, &message);
}

uint64_t segment_ask(
    struct raw *raw, const char *name, uint64_t bytes, uint64_t chunk_bytes, uint64_t wait_ns)
{
    return segment_ask_of(raw, false, name, bytes, chunk_bytes, wait_ns);
}

uint64_t segment_seal_ask(struct raw *raw, uint64_t lease)
{
    Gmb__ClientMessage message = GMB__CLIENT_MESSAGE__INIT;
    Gmb__SegmentSeal body = GMB__SEGMENT_SEAL__INIT;

    body.lease = lease;
    message.body_case = GMB__CLIENT_MESSAGE__BODY_SEGMENT_SEAL;
    message.segment_seal = &body;
    return raw_send(raw, &message);
}

void segment_expect_read(struct raw *raw)
{
    raw_expect_error(raw, segment_seal_ask(raw, 0), GMB_STATUS_NOT_FOUND);
}

uint64_t segment_crowd_start(struct raw crowd[SEGMENT_CROWD], const struct harness *harness,
    bool group, const char *name, uint64_t bytes)
{
    uint64_t first = 0;

    for (unsigned i = 0; i < LIMIT_SEGMENT_WAITERS; i++) {
        struct raw *raw = &crowd[i / LIMIT_SEGMENT_WAITERS_PER_CLIENT];
        uint64_t id;

        if (i % LIMIT_SEGMENT_WAITERS_PER_CLIENT == 0)
            raw_connect(raw, harness);
        /* Some would make it, some only open it. */
        id = segment_ask_of(raw, group, name, i % 2 == 0 ? 0 : bytes, 0, SEGMENT_WAIT);
        first = i == 0 ? id : first;
        if (i % 32 == 31) /* the broker has read it all */
            segment_expect_read(raw);
    }
    return first;
}

void segment_crowd_end(struct raw crowd[SEGMENT_CROWD])
{
    for (unsigned i = 0; i < SEGMENT_CROWD; i++)
        raw_close(&crowd[i]);
}
