/* Weights that nobody has go to the host tier and come back, byte for byte. */
#include <check.h>
#include <signal.h>
#include <unistd.h>

#include "tests/integration/orders.h"
#include "tests/integration/segments.h"
#include "tests/unit/unit.h"

#define WEIGHTS MIB(16)

static struct harness harness;
static struct member first, second;

static void begin(const char *text)
{
    harness_start(&harness, text);
    segment_pair_start(&harness, &first, &second);
}

static void end(void)
{
    segment_pair_end(&harness, &first, &second);
}

START_TEST(an_open_brings_back_what_was_demoted)
{
    Gmb__SegmentStatus status;
    Gmb__TenantDevice use;

    begin(SEGMENT_BROKER HARNESS_TENANT);
    segment_make_demoted(&harness, &first, "llama", WEIGHTS, 3);
    ck_assert(segment_status(&harness, "llama", &status));
    ck_assert_uint_eq(status.bytes, 0);
    ck_assert_uint_eq(status.host_bytes, MIB(32)); /* whole slabs */
    raw_tenant(&harness, "test", &use);
    ck_assert_uint_eq(use.leased_bytes, 0);
    ck_assert_uint_eq(use.evicted_bytes, WEIGHTS);
    segment_do(&second, 0, MEMBER_OPEN, "llama", 0);
    ck_assert_int_eq(segment_compare(&second, 3), 0);
    ck_assert(segment_status(&harness, "llama", &status));
    ck_assert_int_eq(status.state, STATE(SEALED));
    ck_assert_uint_eq(status.host_bytes, 0);
    ck_assert_uint_eq(status.verifications, 2); /* there and back */
    raw_tenant(&harness, "test", &use);
    ck_assert_uint_eq(use.leased_bytes, WEIGHTS);
    ck_assert_uint_eq(use.evicted_bytes, 0);
    end();
}
END_TEST

START_TEST(an_operator_brings_it_back_and_forth)
{
    begin(SEGMENT_BROKER HARNESS_TENANT);
    segment_make_idle(&first, "llama", WEIGHTS, 4);
    for (int i = 0; i < 5; i++) {
        segment_demote(&harness, "llama");
        segment_await(&harness, "llama", STATE(DEMOTED));
        ck_assert_int_eq(segment_change(&harness, "llama", ACTION(DEMOTE)), 0);
        ck_assert_int_eq(segment_change(&harness, "llama", ACTION(RESTORE)), 1);
        segment_await(&harness, "llama", STATE(SEALED));
        ck_assert_int_eq(segment_change(&harness, "llama", ACTION(RESTORE)), 0);
    }
    segment_do(&second, 0, MEMBER_OPEN, "llama", 0);
    ck_assert_int_eq(segment_compare(&second, 4), 0);
    /* One that somebody has stays. */
    ck_assert_int_eq(segment_change(&harness, "llama", ACTION(DEMOTE)), 0);
    end();
}
END_TEST

/* In whatever moment the open comes: before the copy has ended, or after. */
START_TEST(an_open_in_the_middle_loses_nothing)
{
    begin(SEGMENT_BROKER HARNESS_TENANT);
    segment_make_idle(&first, "llama", WEIGHTS, 5);
    for (int i = 0; i < 20; i++) {
        struct member_order order = segment_order(MEMBER_OPEN, "llama", 0);

        segment_demote(&harness, "llama");
        (void) member_ready(&second, i);
        ck_assert_int_eq(member_do(&second, &order), 0);
        ck_assert_int_eq(segment_compare(&second, 5), 0);
        segment_do(&second, 0, MEMBER_RELEASE, "", 0);
    }
    end();
}
END_TEST

START_TEST(without_room_in_the_host_tier_it_stays)
{
    Gmb__SegmentStatus status;

    begin("[Broker]\nRecycleIdle=20ms\nHostTier=64M\n" HARNESS_TENANT);
    segment_make_idle(&first, "large", MIB(96), 6);
    segment_make_demoted(&harness, &first, "small", MIB(24), 7);
    ck_assert_int_eq(segment_change(&harness, "large", ACTION(DEMOTE)), 0);
    ck_assert(segment_status(&harness, "large", &status));
    ck_assert_int_eq(status.state, STATE(SEALED));
    ck_assert_uint_eq(status.host_bytes, 0);
    segment_do(&second, 0, MEMBER_OPEN, "large", 0);
    ck_assert_int_eq(segment_compare(&second, 6), 0);
    segment_do(&first, 0, MEMBER_OPEN, "small", 0);
    ck_assert_int_eq(segment_compare(&first, 7), 0);
    end();
}
END_TEST

START_TEST(the_tenants_part_of_the_host_tier_bounds_it)
{
    begin(SEGMENT_BROKER "[Tenant test]\nUser=*\nHostMax=32M\n");
    segment_make_idle(&first, "llama", MIB(48), 6);
    ck_assert_int_eq(segment_change(&harness, "llama", ACTION(DEMOTE)), 0);
    segment_do(&second, 0, MEMBER_OPEN, "llama", 0);
    ck_assert_int_eq(segment_compare(&second, 6), 0);
    end();
}
END_TEST

START_TEST(what_was_changed_is_found_on_its_way_out)
{
    begin(SEGMENT_BROKER HARNESS_TENANT);
    segment_make(&first, "llama", WEIGHTS, 6);
    segment_do(&first, 0, MEMBER_POKE, "", MIB(5));
    segment_do(&first, 0, MEMBER_RELEASE, "", 0);
    segment_demote(&harness, "llama");
    segment_await(&harness, "llama", STATE(QUARANTINED));
    ck_assert(harness_logged(&harness, "the 2M at 4M are not what was sealed"));
    segment_do(&second, GMB_E_CONFLICT, MEMBER_OPEN, "llama", 0);
    end();
}
END_TEST

START_TEST(who_opens_waits_for_memory_within_the_quota)
{
    struct member_order order = segment_order(MEMBER_OPEN, "llama", 0);

    begin(SEGMENT_BROKER "[Tenant test]\nUser=*\nMemoryMax=24M\n");
    segment_make_demoted(&harness, &first, "llama", WEIGHTS, 8);
    segment_do(&first, 0, MEMBER_CREATE, "other", MIB(16));
    order.wait_ns = 0;
    ck_assert_int_eq(member_do(&second, &order), GMB_E_EXHAUSTED);
    order.wait_ns = UINT64_C(200000000);
    ck_assert_int_eq(member_do(&second, &order), GMB_E_TIMED_OUT);
    segment_await(&harness, "llama", STATE(DEMOTED));
    order.wait_ns = SEGMENT_WAIT;
    member_tell(&second, &order);
    ck_assert(!member_ready(&second, 100));
    segment_do(&first, 0, MEMBER_RELEASE, "", 0);
    ck_assert_int_eq(member_answer(&second), 0);
    ck_assert_int_eq(segment_compare(&second, 8), 0);
    end();
}
END_TEST

START_TEST(a_mover_that_dies_costs_nothing)
{
    begin(SEGMENT_BROKER HARNESS_TENANT);
    segment_make_idle(&first, "llama", WEIGHTS, 9);
    for (int i = 0; i < 6; i++) {
        pid_t mover;

        segment_demote(&harness, "llama");
        if (harness_movers(&harness, &mover, 1) == 1)
            (void) kill(mover, SIGKILL);
        segment_do(&second, 0, MEMBER_OPEN, "llama", 0);
        ck_assert_int_eq(segment_compare(&second, 9), 0);
        segment_do(&second, 0, MEMBER_RELEASE, "", 0);
    }
    end();
}
END_TEST

START_TEST(who_needs_memory_gets_that_of_an_idle_segment)
{
    Gmb__SegmentStatus status;

    begin(SEGMENT_BROKER "[Tenant test]\nUser=*\nMemoryMax=40M\n");
    segment_make_idle(&first, "old", WEIGHTS, 11);
    segment_make(&first, "used", WEIGHTS, 12);
    /* Of 40M both have 32M: the idle one goes, the other stays. */
    segment_make(&second, "new", WEIGHTS, 13);
    segment_await(&harness, "old", STATE(DEMOTED));
    ck_assert(segment_status(&harness, "used", &status));
    ck_assert_int_eq(status.state, STATE(SEALED));
    ck_assert_int_eq(segment_compare(&first, 12), 0);
    ck_assert(harness_logged(&harness, "idle segment"));
    /* And it comes back when somebody opens it, for which the next idle one goes. */
    segment_do(&first, 0, MEMBER_RELEASE, "", 0);
    segment_do(&first, 0, MEMBER_OPEN, "old", 0);
    ck_assert_int_eq(segment_compare(&first, 11), 0);
    segment_await(&harness, "used", STATE(DEMOTED));
    end();
}
END_TEST

START_TEST(another_tenant_gets_it_within_what_protects_its_owner)
{
    struct claimant claimant;

    unit_need_root();
    begin(SEGMENT_BROKER "[Tenant high]\nUser=65534\nPriority=900\n"
                         "[Tenant test]\nUser=0\nPriority=100\nMemoryMin=24M\n");
    segment_make_idle(&first, "guaranteed", WEIGHTS, 14);
    segment_make_idle(&first, "other", WEIGHTS, 15);
    claimant_start(&claimant, &harness, HARNESS_MEMORY - MIB(24), 1000);
    ck_assert_int_eq(claimant_answer(&claimant), GMB_STATUS_TIMED_OUT);
    claimant_end(&claimant);
    raw_set(&harness, "test", "MemoryMin", "16M");
    claimant_start(&claimant, &harness, HARNESS_MEMORY - MIB(24), 30000);
    ck_assert_int_eq(claimant_answer(&claimant), GMB_STATUS_OK);
    claimant_end(&claimant);
    segment_do(&first, 0, MEMBER_OPEN, "guaranteed", 0);
    ck_assert_int_eq(segment_compare(&first, 14), 0);
    segment_do(&second, 0, MEMBER_OPEN, "other", 0);
    ck_assert_int_eq(segment_compare(&second, 15), 0);
    end();
}
END_TEST

START_TEST(a_drain_moves_them_away)
{
    begin(SEGMENT_BROKER HARNESS_TENANT);
    segment_make_idle(&first, "llama", WEIGHTS, 16);
    (void) order_drain(&harness, false);
    segment_await(&harness, "llama", STATE(DEMOTED));
    (void) order_drain(&harness, true);
    segment_do(&second, 0, MEMBER_OPEN, "llama", 0);
    ck_assert_int_eq(segment_compare(&second, 16), 0);
    end();
}
END_TEST

START_TEST(it_may_be_removed_wherever_it_is)
{
    begin(SEGMENT_BROKER HARNESS_TENANT);
    for (int i = 0; i < 12; i++) {
        segment_make_idle(&first, "llama", WEIGHTS, 10);
        segment_demote(&harness, "llama");
        if (i >= 4)
            segment_await(&harness, "llama", STATE(DEMOTED));
        if (i >= 8)
            ck_assert_int_eq(segment_change(&harness, "llama", ACTION(RESTORE)), 1);
        (void) member_ready(&first, i % 4);
        segment_do(&second, 0, MEMBER_REMOVE, "llama", 0);
        segment_do(&second, GMB_E_NOT_FOUND, MEMBER_OPEN, "llama", 0);
    }
    end();
}
END_TEST

UNIT_MAIN("integration: segments and the host tier", an_open_brings_back_what_was_demoted,
    an_operator_brings_it_back_and_forth, an_open_in_the_middle_loses_nothing,
    without_room_in_the_host_tier_it_stays, the_tenants_part_of_the_host_tier_bounds_it,
    what_was_changed_is_found_on_its_way_out, who_opens_waits_for_memory_within_the_quota,
    a_mover_that_dies_costs_nothing, who_needs_memory_gets_that_of_an_idle_segment,
    another_tenant_gets_it_within_what_protects_its_owner, a_drain_moves_them_away,
    it_may_be_removed_wherever_it_is)
