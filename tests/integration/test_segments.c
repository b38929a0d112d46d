/* Weights that one process writes and others read: who waits, who reads, and what outlives whom. */
#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "tests/integration/segments.h"
#include "tests/unit/unit.h"

#define WEIGHTS MIB(24)

static struct harness harness;
static struct member first, second, third;

static void begin(void)
{
    harness_start(&harness, SEGMENT_BROKER HARNESS_TENANT);
    segment_pair_start(&harness, &first, &second);
}

static void end(void)
{
    segments_clear(&harness);
    harness_stop(&harness);
}

static uint64_t leased(const char *tenant)
{
    Gmb__TenantDevice device;

    raw_tenant(&harness, tenant, &device);
    return device.leased_bytes;
}

START_TEST(what_one_wrote_others_read_and_the_tenant_pays_once)
{
    Gmb__SegmentStatus status;

    begin();
    segment_make(&first, "llama", WEIGHTS, 7);
    segment_do(&second, 0, MEMBER_OPEN, "llama", 0);
    ck_assert_uint_eq(second.answer.writable, 0);
    ck_assert_uint_eq(second.answer.bytes, WEIGHTS);
    ck_assert_int_eq(segment_compare(&second, 7), 0);
    ck_assert_int_eq(segment_compare(&first, 7), 0);
    ck_assert_uint_eq(leased("test"), WEIGHTS);
    ck_assert(segment_status(&harness, "llama", &status));
    ck_assert_int_eq(status.state, STATE(SEALED));
    ck_assert_uint_eq(status.readers, 2);
    ck_assert(status.summed);
    member_end(&first, 0);
    member_end(&second, 0);
    end();
}
END_TEST

START_TEST(it_outlives_its_writer_and_its_readers)
{
    Gmb__SegmentStatus status;

    begin();
    segment_make(&first, "llama", WEIGHTS, 1);
    member_end(&first, SIGKILL);
    segment_do(&second, 0, MEMBER_OPEN, "llama", 0);
    member_end(&second, SIGKILL);
    /* Nobody has it; it is charged all the same, and idle. */
    segment_await_readers(&harness, "llama", 0);
    ck_assert(segment_status(&harness, "llama", &status));
    ck_assert_int_eq(status.state, STATE(SEALED));
    ck_assert_uint_gt(status.idle_ns, 0);
    ck_assert_uint_eq(leased("test"), WEIGHTS);
    member_start(&third, &harness, 0);
    segment_do(&third, 0, MEMBER_OPEN, "llama", 0);
    ck_assert_int_eq(segment_compare(&third, 1), 0);
    ck_assert(segment_status(&harness, "llama", &status));
    ck_assert_uint_eq(status.idle_ns, 0);
    member_end(&third, 0);
    end();
}
END_TEST

START_TEST(of_two_that_create_one_writes_and_the_other_waits)
{
    struct member_order order = segment_order(MEMBER_CREATE, "llama", WEIGHTS);

    begin();
    segment_do(&first, 0, MEMBER_CREATE, "llama", WEIGHTS);
    ck_assert_uint_eq(first.answer.writable, 1);
    member_tell(&second, &order);
    order = segment_order(MEMBER_FILL, "", 0);
    order.seed = 3;
    ck_assert_int_eq(member_do(&first, &order), 0);
    ck_assert(!member_ready(&second, 200));
    segment_do(&first, 0, MEMBER_SEAL, "", 0);
    ck_assert_int_eq(member_answer(&second), 0);
    ck_assert_uint_eq(second.answer.writable, 0);
    ck_assert_int_eq(segment_compare(&second, 3), 0);
    member_end(&first, 0);
    member_end(&second, 0);
    end();
}
END_TEST

START_TEST(a_writer_that_dies_leaves_nothing_and_the_next_one_writes)
{
    const struct member_order create = segment_order(MEMBER_CREATE, "llama", WEIGHTS);
    const struct member_order open = segment_order(MEMBER_OPEN, "llama", 0);

    begin();
    member_start(&third, &harness, 0);
    segment_do(&first, 0, MEMBER_CREATE, "llama", WEIGHTS);
    member_tell(&second, &create);
    member_tell(&third, &open);
    ck_assert(!member_ready(&second, 200) && !member_ready(&third, 0));
    member_end(&first, SIGKILL);
    ck_assert_int_eq(member_answer(&second), 0);
    ck_assert_uint_eq(second.answer.writable, 1);
    ck_assert(!member_ready(&third, 100));
    /* Now nobody is there who would make it. */
    member_end(&second, SIGKILL);
    ck_assert_int_eq(member_answer(&third), GMB_E_NOT_FOUND);
    ck_assert_uint_eq(segment_count(&harness), 0);
    member_end(&third, 0);
    end();
}
END_TEST

/* Released unsealed, killed while it is summed up, killed behind the seal. */
START_TEST(a_writer_may_go_at_every_step)
{
    const struct member_order seal = segment_order(MEMBER_SEAL, "", 0);

    begin();
    segment_do(&first, 0, MEMBER_CREATE, "llama", WEIGHTS);
    segment_do(&first, 0, MEMBER_RELEASE, "", 0);
    segment_do(&second, GMB_E_NOT_FOUND, MEMBER_OPEN, "llama", 0);
    for (int step = 0; step < 8; step++) {
        Gmb__SegmentStatus status;

        segment_do(&first, 0, MEMBER_CREATE, "llama", WEIGHTS);
        member_tell(&first, &seal);
        (void) member_ready(&first, 2 * step);
        member_end(&first, SIGKILL);
        member_start(&first, &harness, 0);
        /* Whichever came first: it is sealed for good, or it never was. */
        segment_do(&first, 0, MEMBER_CREATE, "llama", WEIGHTS);
        if (first.answer.writable)
            segment_do(&first, 0, MEMBER_SEAL, "", 0);
        segment_do(&first, 0, MEMBER_RELEASE, "", 0);
        ck_assert(segment_status(&harness, "llama", &status));
        ck_assert_int_eq(status.state, STATE(SEALED));
        segment_do(&first, 0, MEMBER_REMOVE, "llama", 0);
        segment_await(&harness, "llama", STATE(REMOVED));
    }
    member_end(&first, 0);
    member_end(&second, 0);
    end();
}
END_TEST

START_TEST(who_may_not_wait_is_told_who_writes)
{
    struct member_order order = segment_order(MEMBER_CREATE, "llama", WEIGHTS);
    char pid[32];

    begin();
    segment_do(&first, 0, MEMBER_CREATE, "llama", WEIGHTS);
    (void) snprintf(pid, sizeof(pid), "pid %d", (int) first.pid);
    order.wait_ns = 0;
    ck_assert_int_eq(member_do(&second, &order), GMB_E_EXHAUSTED);
    ck_assert_str_eq(second.answer.limit, "unsealed");
    ck_assert_ptr_nonnull(strstr(second.answer.text, pid));
    order.what = MEMBER_OPEN;
    order.wait_ns = UINT64_C(50000000);
    ck_assert_int_eq(member_do(&second, &order), GMB_E_TIMED_OUT);
    ck_assert_str_eq(second.answer.limit, "unsealed");
    ck_assert_ptr_nonnull(strstr(second.answer.text, "its time to wait is over"));
    /* It is nobody's to be removed, either. */
    segment_do(&second, GMB_E_CONFLICT, MEMBER_REMOVE, "llama", 0);
    segment_do(&first, GMB_E_CONFLICT, MEMBER_OPEN, "llama", 0);
    member_end(&first, 0);
    member_end(&second, 0);
    end();
}
END_TEST

START_TEST(what_makes_no_sense_is_refused_by_name)
{
    struct member_order order = segment_order(MEMBER_CREATE, "llama", MIB(2048));

    begin();
    ck_assert_int_eq(member_do(&first, &order), GMB_E_OVER_LIMIT);
    segment_do(&first, GMB_E_INVALID, MEMBER_CREATE, "", WEIGHTS);
    segment_do(&first, GMB_E_INVALID, MEMBER_CREATE, "llama", 0);
    segment_do(&first, GMB_E_NOT_FOUND, MEMBER_OPEN, "llama", 0);
    segment_do(&first, GMB_E_NOT_FOUND, MEMBER_REMOVE, "llama", 0);
    segment_make(&first, "llama", WEIGHTS, 1);
    segment_do(&first, GMB_E_INVALID, MEMBER_SEAL, "", 0);
    segment_do(&first, GMB_E_INVALID, MEMBER_GROW, "", MIB(2));
    segment_do(&first, GMB_E_CONFLICT, MEMBER_CREATE, "llama", WEIGHTS);
    segment_do(&second, GMB_E_CONFLICT, MEMBER_CREATE, "llama", WEIGHTS - MIB(2));
    segment_do(&second, 0, MEMBER_CREATE, "llama", WEIGHTS);
    segment_do(&second, GMB_E_INVALID, MEMBER_SEAL, "", 0);
    order = segment_order(MEMBER_CREATE, "other", WEIGHTS);
    order.group = 1;
    ck_assert_int_eq(member_do(&second, &order), GMB_E_DENIED);
    ck_assert_str_eq(second.answer.limit, "permission");
    member_end(&first, 0);
    member_end(&second, 0);
    end();
}
END_TEST

START_TEST(requests_without_a_thread_that_blocks_come_to_the_same)
{
    struct member_order order = segment_order(MEMBER_OPEN_ASYNC, "llama", 0);

    begin();
    segment_do(&second, GMB_E_NOT_FOUND, MEMBER_OPEN_ASYNC, "llama", 0);
    segment_do(&first, 0, MEMBER_CREATE_ASYNC, "llama", WEIGHTS);
    ck_assert_uint_eq(first.answer.writable, 1);
    member_tell(&second, &order);
    ck_assert(!member_ready(&second, 100));
    segment_do(&first, 0, MEMBER_SEAL, "", 0);
    ck_assert_int_eq(member_answer(&second), 0);
    ck_assert_uint_eq(second.answer.writable, 0);
    ck_assert_uint_eq(second.answer.bytes, WEIGHTS);
    member_end(&first, 0);
    member_end(&second, 0);
    end();
}
END_TEST

START_TEST(a_removed_one_stays_its_readers_and_its_name_is_free)
{
    begin();
    segment_make(&first, "llama", WEIGHTS, 1);
    segment_do(&first, 0, MEMBER_REMOVE, "llama", 0);
    segment_do(&second, GMB_E_NOT_FOUND, MEMBER_OPEN, "llama", 0);
    ck_assert_int_eq(segment_compare(&first, 1), 0);
    segment_make(&second, "llama", WEIGHTS, 2);
    ck_assert_int_eq(segment_compare(&first, 1), 0);
    ck_assert_int_eq(segment_compare(&second, 2), 0);
    ck_assert_uint_eq(leased("test"), 2 * WEIGHTS);
    segment_do(&first, 0, MEMBER_RELEASE, "", 0);
    segment_do(&first, 0, MEMBER_OPEN, "llama", 0);
    ck_assert_int_eq(segment_compare(&first, 2), 0);
    member_end(&first, 0);
    member_end(&second, 0);
    end();
}
END_TEST

START_TEST(a_process_that_left_its_connection_holds_it_until_it_is_dead)
{
    Gmb__SegmentStatus status;

    begin();
    segment_make(&first, "llama", WEIGHTS, 1);
    segment_do(&first, 0, MEMBER_LEAVE, "", 0);
    segment_do(&second, 0, MEMBER_OPEN, "llama", 0);
    segment_do(&second, 0, MEMBER_REMOVE, "llama", 0);
    segment_do(&second, 0, MEMBER_RELEASE, "", 0);
    ck_assert(segment_status(&harness, "llama", &status));
    ck_assert_uint_eq(status.readers, 1);
    ck_assert_uint_eq(leased("test"), WEIGHTS);
    member_end(&first, SIGKILL);
    segment_await(&harness, "llama", STATE(REMOVED));
    member_end(&second, 0);
    end();
}
END_TEST

START_TEST(it_is_charged_within_the_quota)
{
    harness_start(&harness, SEGMENT_BROKER "[Tenant test]\nUser=*\nMemoryMax=32M\nLeasesMax=2\n");
    member_start(&first, &harness, 0);
    member_start(&second, &harness, 0);
    member_start(&third, &harness, 0);
    segment_make(&third, "a", MIB(24), 1);
    {
        struct member_order order = segment_order(MEMBER_CREATE, "b", MIB(16));

        order.wait_ns = UINT64_C(100000000);
        ck_assert_int_eq(member_do(&second, &order), GMB_E_TIMED_OUT);
        ck_assert_str_eq(second.answer.limit, "MemoryMax");
    }
    segment_make(&first, "c", MIB(4), 1);
    segment_do(&second, GMB_E_EXHAUSTED, MEMBER_CREATE, "d", MIB(2));
    ck_assert_str_eq(second.answer.limit, "LeasesMax");
    /* Readers take no lease of the tenant's. */
    segment_do(&second, 0, MEMBER_OPEN, "a", 0);
    member_end(&third, 0);
    member_end(&first, 0);
    member_end(&second, 0);
    end();
}
END_TEST

START_TEST(an_idle_one_goes_when_its_time_is_over)
{
    harness_start(&harness, SEGMENT_BROKER "SegmentIdle=300ms\n" HARNESS_TENANT);
    member_start(&first, &harness, 0);
    segment_make(&first, "llama", WEIGHTS, 1);
    ck_assert(!member_ready(&first, 600));
    ck_assert_uint_eq(segment_count(&harness), 1);
    segment_do(&first, 0, MEMBER_RELEASE, "", 0);
    segment_await(&harness, "llama", STATE(REMOVED));
    segment_do(&first, GMB_E_NOT_FOUND, MEMBER_OPEN, "llama", 0);
    member_end(&first, 0);
    end();
}
END_TEST

START_TEST(without_a_host_tier_there_are_no_checksums_and_it_serves)
{
    Gmb__SegmentStatus status;

    harness_start(&harness, "[Broker]\nRecycleIdle=20ms\nHostTier=0\n" HARNESS_TENANT);
    member_start(&first, &harness, 0);
    member_start(&second, &harness, 0);
    segment_make(&first, "llama", WEIGHTS, 9);
    segment_do(&second, 0, MEMBER_OPEN, "llama", 0);
    ck_assert_int_eq(segment_compare(&second, 9), 0);
    ck_assert(segment_status(&harness, "llama", &status));
    ck_assert(!status.summed);
    ck_assert_int_eq(segment_change(&harness, "llama", ACTION(VERIFY)), 0);
    member_end(&first, 0);
    member_end(&second, 0);
    end();
}
END_TEST

UNIT_MAIN("integration: segments", what_one_wrote_others_read_and_the_tenant_pays_once,
    it_outlives_its_writer_and_its_readers, of_two_that_create_one_writes_and_the_other_waits,
    a_writer_that_dies_leaves_nothing_and_the_next_one_writes, a_writer_may_go_at_every_step,
    who_may_not_wait_is_told_who_writes, what_makes_no_sense_is_refused_by_name,
    requests_without_a_thread_that_blocks_come_to_the_same,
    a_removed_one_stays_its_readers_and_its_name_is_free,
    a_process_that_left_its_connection_holds_it_until_it_is_dead, it_is_charged_within_the_quota,
    an_idle_one_goes_when_its_time_is_over,
    without_a_host_tier_there_are_no_checksums_and_it_serves)
