/* Who waits for a segment, or for what is done with it, is answered: each by what becomes of it. */
#include <check.h>
#include <stdio.h>
#include <unistd.h>

#include "proto/frame.h"
#include "tests/integration/segments.h"
#include "tests/unit/unit.h"

#define WEIGHTS MIB(16)

static struct harness harness;
static struct member first, second, third;

static void begin(const char *text)
{
    harness_start(&harness, text);
    segment_pair_start(&harness, &first, &second);
    member_start(&third, &harness, 0);
}

static void end(void)
{
    member_end(&third, 0);
    segment_pair_end(&harness, &first, &second);
}

/* An Error with this status, or Done; its request. */
static uint64_t answer_take(struct raw *raw, enum gmb_status status)
{
    Gmb__BrokerMessage *answer = raw_receive(raw);
    uint64_t id;

    ck_assert_ptr_nonnull(answer);
    if (answer->body_case != GMB__BROKER_MESSAGE__BODY_DONE) {
        ck_assert_int_eq(answer->body_case, GMB__BROKER_MESSAGE__BODY_ERROR);
        ck_assert_int_eq((int) answer->error->status, (int) status);
    }
    id = answer->id;
    frame_message_free(&answer->base);
    return id;
}

/* The sums are not there yet when the release comes: a mover has to be started for them. */
START_TEST(who_gives_back_what_is_being_sealed_is_told_so)
{
    struct raw raw;
    uint64_t lease, seal, released;

    begin(SEGMENT_BROKER HARNESS_TENANT);
    raw_connect(&raw, &harness);
    for (int i = 0; i < 4; i++) {
        lease =
            raw_expect_lease(&raw, segment_ask(&raw, "llama", MIB(128), MIB(2), SEGMENT_WAIT), 64);
        seal = segment_seal_ask(&raw, lease);
        released = raw_release(&raw, lease);
        ck_assert_uint_eq(
            answer_take(&raw, GMB_STATUS_CANCELLED) + answer_take(&raw, GMB_STATUS_CANCELLED),
            seal + released);
        (void) segment_change(&harness, "llama", ACTION(REMOVE));
        segment_await(&harness, "llama", STATE(REMOVED));
    }
    raw_close(&raw);
    end();
}
END_TEST

START_TEST(each_waits_for_memory_as_long_as_it_said)
{
    struct member_order order = segment_order(MEMBER_OPEN, "llama", 0);

    begin(SEGMENT_BROKER "[Tenant test]\nUser=*\nMemoryMax=24M\n");
    segment_make_demoted(&harness, &first, "llama", WEIGHTS, 8);
    segment_do(&first, 0, MEMBER_CREATE, "other", MIB(16));
    order.wait_ns = UINT64_C(300000000);
    member_tell(&second, &order);
    segment_await(&harness, "llama", STATE(FILLING));
    order.wait_ns = SEGMENT_WAIT;
    member_tell(&third, &order);
    ck_assert_int_eq(member_answer(&second), GMB_E_TIMED_OUT);
    ck_assert(!member_ready(&third, 200));
    segment_do(&first, 0, MEMBER_RELEASE, "", 0);
    ck_assert_int_eq(member_answer(&third), 0);
    ck_assert_int_eq(segment_compare(&third, 8), 0);
    end();
}
END_TEST

/* Each becomes the next one's writer for the moment in which it is refused. */
START_TEST(a_queue_of_refused_writers_is_answered)
{
    struct raw writer, raw;
    char name[16];
    uint64_t others[100], lease, ids[64];

    begin(SEGMENT_BROKER HARNESS_TENANT);
    raw_connect(&writer, &harness);
    for (unsigned i = 0; i < ARRAY_SIZE(others); i++) {
        (void) snprintf(name, sizeof(name), "other-%u", i);
        others[i] =
            raw_expect_lease(&writer, segment_ask(&writer, name, MIB(2), 0, SEGMENT_WAIT), 1);
    }
    lease = raw_expect_lease(&writer, segment_ask(&writer, "llama", MIB(4), 0, SEGMENT_WAIT), 2);
    raw_connect(&raw, &harness);
    for (unsigned i = 0; i < ARRAY_SIZE(ids); i++) {
        ids[i] = segment_ask(&raw, "llama", MIB(4), MIB(2) + 1, SEGMENT_WAIT);
        if (i % 32 == 31) /* the broker has read it all */
            segment_expect_read(&raw);
    }
    raw_expect_done(&writer, raw_release(&writer, lease));
    for (unsigned i = 0; i < ARRAY_SIZE(ids); i++)
        raw_expect_error(&raw, ids[i], GMB_STATUS_INVALID);
    for (unsigned i = 0; i < ARRAY_SIZE(others); i++)
        raw_expect_done(&writer, raw_release(&writer, others[i]));
    raw_close(&raw);
    raw_close(&writer);
    end();
}
END_TEST

START_TEST(who_is_out_of_the_group_opens_nothing_of_it)
{
    static const char group[] = SEGMENT_BROKER "[ShareGroup models]\n"
                                               "[Tenant other]\nUser=65534\nShareGroup=models\n"
                                               "[Tenant test]\nUser=0\nShareGroup=models\n";
    static const char expelled[] = SEGMENT_BROKER "[ShareGroup models]\n"
                                                  "[Tenant other]\nUser=65534\n"
                                                  "[Tenant test]\nUser=0\nShareGroup=models\n";
    struct member_order order = segment_order(MEMBER_CREATE, "llama", WEIGHTS);
    struct member stranger;

    unit_need_root();
    begin(group);
    member_start(&stranger, &harness, SEGMENT_STRANGER);
    order.group = 1;
    ck_assert_int_eq(member_do(&first, &order), 0);
    order.what = MEMBER_OPEN;
    member_tell(&stranger, &order);
    member_tell(&second, &order);
    segment_await_waiting(&harness, "llama", 2);
    segments_reload(&harness, expelled);
    segment_do(&first, 0, MEMBER_SEAL, "", 0);
    ck_assert_int_eq(member_answer(&second), 0);
    ck_assert_int_eq(member_answer(&stranger), GMB_E_DENIED);
    member_end(&stranger, 0);
    end();
}
END_TEST

/* Each tenant has its own places to wait, whoever's the segment is. */
START_TEST(one_tenant_of_a_group_leaves_room_to_wait_for_the_others)
{
    struct member_order order = segment_order(MEMBER_CREATE, "llama", WEIGHTS);
    struct raw crowd[SEGMENT_CROWD];
    struct member stranger;

    unit_need_root();
    begin(SEGMENT_BROKER "[ShareGroup models]\n"
                         "[Tenant other]\nUser=65534\nShareGroup=models\n"
                         "[Tenant test]\nUser=0\nShareGroup=models\n");
    member_start(&stranger, &harness, SEGMENT_STRANGER);
    order.group = 1;
    ck_assert_int_eq(member_do(&first, &order), 0);
    (void) segment_crowd_start(crowd, &harness, true, order.name, WEIGHTS);
    segment_await_waiting(&harness, "llama", LIMIT_SEGMENT_WAITERS);
    order.what = MEMBER_OPEN;
    ck_assert_int_eq(member_do(&second, &order), GMB_E_EXHAUSTED);
    ck_assert_str_eq(second.answer.limit, "requests");
    member_tell(&stranger, &order);
    segment_await_waiting(&harness, "llama", LIMIT_SEGMENT_WAITERS + 1);
    segment_crowd_end(crowd);
    segment_do(&first, 0, MEMBER_SEAL, "", 0);
    ck_assert_int_eq(member_answer(&stranger), 0);
    member_end(&stranger, 0);
    end();
}
END_TEST

START_TEST(times_that_are_configured_anew_hold_for_what_is_there)
{
    Gmb__SegmentStatus status;

    begin(SEGMENT_BROKER "SegmentVerify=infinity\n" HARNESS_TENANT);
    segment_make(&first, "llama", WEIGHTS, 3);
    segment_do(&first, 0, MEMBER_RELEASE, "", 0);
    segments_reload(&harness, SEGMENT_BROKER "SegmentVerify=50ms\n" HARNESS_TENANT);
    wait_until(segment_status(&harness, "llama", &status) && status.verifications >= 3);
    segments_reload(
        &harness, SEGMENT_BROKER "SegmentVerify=infinity\nSegmentIdle=50ms\n" HARNESS_TENANT);
    segment_await(&harness, "llama", STATE(REMOVED));
    end();
}
END_TEST

START_TEST(no_mover_is_kept_for_what_only_its_name_is_left_of)
{
    Gmb__SegmentStatus status;
    pid_t mover;

    begin(SEGMENT_BROKER HARNESS_TENANT);
    segment_make(&first, "llama", WEIGHTS, 3);
    segment_do(&first, 0, MEMBER_POKE, "", 0);
    ck_assert_int_eq(segment_change(&harness, "llama", ACTION(VERIFY)), 1);
    segment_await(&harness, "llama", STATE(QUARANTINED));
    ck_assert_uint_eq(harness_movers(&harness, &mover, 1), 1);
    segment_do(&first, 0, MEMBER_RELEASE, "", 0);
    wait_until(harness_movers(&harness, &mover, 1) == 0);
    ck_assert(segment_status(&harness, "llama", &status));
    ck_assert_int_eq(status.state, STATE(QUARANTINED));
    end();
}
END_TEST

UNIT_MAIN("integration: who waits for segments", who_gives_back_what_is_being_sealed_is_told_so,
    each_waits_for_memory_as_long_as_it_said, a_queue_of_refused_writers_is_answered,
    who_is_out_of_the_group_opens_nothing_of_it,
    one_tenant_of_a_group_leaves_room_to_wait_for_the_others,
    times_that_are_configured_anew_hold_for_what_is_there,
    no_mover_is_kept_for_what_only_its_name_is_left_of)
