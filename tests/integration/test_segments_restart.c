/* Segments whose connections break or whose broker is killed: who had them has them. */
#include <check.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "tests/integration/segments.h"
#include "tests/unit/unit.h"

#define CHUNK HARNESS_CHUNK
#define GROUP SEGMENT_BROKER "[ShareGroup models]\n[Tenant test]\nUser=*\nShareGroup=models\n"

#define WEIGHTS MIB(16)

static struct harness harness;
static struct member first, second;

/* ------------------------------------------------------------------ what is used below */

static void begin(const char *text)
{
    harness_start_kept(&harness, text, NULL);
    segment_pair_start(&harness, &first, &second);
}

static void end(void)
{
    segment_pair_end(&harness, &first, &second);
}

/* The broker and a process are killed, and only then the next broker starts. */
static void succeed_without(struct member *member)
{
    harness_keeper_renew(&harness);
    ck_assert_int_eq(kill(harness.keeper, SIGSTOP), 0);
    ck_assert_int_eq(kill(harness.pid, SIGKILL), 0);
    member_end(member, SIGKILL);
    ck_assert_int_eq(kill(harness.keeper, SIGCONT), 0);
    harness_succeed(&harness, 0);
}

/* ------------------------------------------------------------------ every state */

START_TEST(a_sealed_one_is_there_for_its_readers_and_for_others)
{
    struct member third;

    begin(SEGMENT_BROKER HARNESS_TENANT);
    segment_make(&first, "llama", WEIGHTS, 3);
    segment_do(&second, 0, MEMBER_OPEN, "llama", 0);
    for (int i = 0; i < 3; i++) {
        segment_succeed(&harness);
        segment_await_readers(&harness, "llama", 2);
        segment_expect_state(&harness, "llama", STATE(SEALED));
        ck_assert_int_eq(segment_compare(&first, 3), 0);
        ck_assert_int_eq(segment_compare(&second, 3), 0);
        segment_expect_verifies(&harness, "llama");
        /* Another process has it in the time of a mapping: nothing is created or copied. */
        member_start(&third, &harness, 0);
        segment_do(&third, 0, MEMBER_OPEN, "llama", 0);
        segment_expect_use(&harness, WEIGHTS, 0);
        ck_assert_int_eq(segment_compare(&third, 3), 0);
        member_end(&third, 0);
        segment_await_readers(&harness, "llama", 2);
    }
    segment_come_back(&first);
    segment_do(&first, 0, MEMBER_RELEASE, "", 0);
    segment_do(&second, 0, MEMBER_RELEASE, "", 0);
    segment_succeed(&harness);
    segment_do(&second, 0, MEMBER_OPEN, "llama", 0);
    ck_assert_int_eq(segment_compare(&second, 3), 0);
    end();
}
END_TEST

START_TEST(without_its_readers_it_is_there_all_the_same)
{
    begin(SEGMENT_BROKER HARNESS_TENANT);
    segment_make(&second, "llama", WEIGHTS, 4);
    segment_do(&first, 0, MEMBER_OPEN, "llama", 0);
    succeed_without(&second);
    segment_await_readers(&harness, "llama", 1);
    ck_assert_int_eq(segment_compare(&first, 4), 0);
    succeed_without(&first);
    segment_await_readers(&harness, "llama", 0);
    segment_expect_use(&harness, WEIGHTS, 0);
    member_start(&first, &harness, 0);
    member_start(&second, &harness, 0);
    segment_do(&first, 0, MEMBER_OPEN, "llama", 0);
    ck_assert_int_eq(segment_compare(&first, 4), 0);
    end();
}
END_TEST

START_TEST(one_that_is_being_written_goes_on_with_its_writer)
{
    struct member_order order = segment_order(MEMBER_FILL, "", 0);

    begin(SEGMENT_BROKER HARNESS_TENANT);
    segment_do(&first, 0, MEMBER_CREATE, "llama", WEIGHTS);
    order.seed = 5;
    ck_assert_int_eq(member_do(&first, &order), 0);
    segment_succeed(&harness);
    segment_expect_state(&harness, "llama", STATE(WRITING));
    order = segment_order(MEMBER_OPEN, "llama", 0);
    member_tell(&second, &order);
    segment_await_waiting(&harness, "llama", 1);
    segment_succeed(&harness); /* with one that waits */
    segment_await_waiting(&harness, "llama", 1);
    segment_do(&first, 0, MEMBER_SEAL, "", 0);
    ck_assert_int_eq(member_answer(&second), 0);
    ck_assert_int_eq(segment_compare(&second, 5), 0);
    end();
}
END_TEST

START_TEST(one_whose_writer_died_leaves_nothing)
{
    begin(SEGMENT_BROKER HARNESS_TENANT);
    segment_do(&first, 0, MEMBER_CREATE, "llama", WEIGHTS);
    succeed_without(&first);
    ck_assert_uint_eq(segment_count(&harness), 0);
    segment_do(&second, GMB_E_NOT_FOUND, MEMBER_OPEN, "llama", 0);
    segment_make(&second, "llama", 2 * WEIGHTS, 6);
    ck_assert_int_eq(segment_compare(&second, 6), 0);
    member_start(&first, &harness, 0);
    end();
}
END_TEST

/* In whatever moment the broker dies, the request is answered, and once. */
START_TEST(a_creation_that_is_cut_off_is_made_or_made_again)
{
    begin(SEGMENT_BROKER HARNESS_TENANT);
    for (int i = 0; i < 6; i++) {
        struct member_order order = segment_order(MEMBER_CREATE, "llama", WEIGHTS);

        member_tell(&first, &order);
        (void) member_ready(&first, i);
        segment_succeed(&harness);
        ck_assert_int_eq(member_answer(&first), 0);
        ck_assert_uint_eq(first.answer.writable, 1);
        segment_expect_use(&harness, WEIGHTS, 0);
        segment_come_back(&first);
        segment_do(&first, 0, MEMBER_RELEASE, "", 0);
        segment_await(&harness, "llama", STATE(REMOVED));
    }
    end();
}
END_TEST

START_TEST(a_seal_that_is_cut_off_is_done_once_the_broker_is_back)
{
    begin(SEGMENT_BROKER HARNESS_TENANT);
    for (int i = 0; i < 6; i++) {
        struct member_order order = segment_order(MEMBER_FILL, "", 0);

        segment_do(&first, 0, MEMBER_CREATE, "llama", WEIGHTS);
        order.seed = (uint64_t) i;
        ck_assert_int_eq(member_do(&first, &order), 0);
        order = segment_order(MEMBER_SEAL, "", 0);
        member_tell(&first, &order);
        (void) member_ready(&first, 4 * i);
        segment_succeed(&harness);
        ck_assert_msg(member_answer(&first) == 0, "%s", first.answer.text);
        segment_do(&second, 0, MEMBER_OPEN, "llama", 0);
        ck_assert_int_eq(segment_compare(&second, (uint64_t) i), 0);
        segment_expect_verifies(&harness, "llama");
        segment_do(&second, 0, MEMBER_REMOVE, "llama", 0);
        segment_do(&first, 0, MEMBER_RELEASE, "", 0);
        segment_do(&second, 0, MEMBER_RELEASE, "", 0);
    }
    end();
}
END_TEST

START_TEST(a_demoted_one_comes_back_from_the_host_tier)
{
    Gmb__SegmentStatus status;

    begin(SEGMENT_BROKER HARNESS_TENANT);
    segment_make_demoted(&harness, &first, "llama", WEIGHTS, 7);
    for (int i = 0; i < 2; i++) {
        segment_succeed(&harness);
        ck_assert(segment_status(&harness, "llama", &status));
        ck_assert_int_eq(status.state, STATE(DEMOTED));
        ck_assert_uint_eq(status.bytes, 0);
        ck_assert_uint_eq(status.host_bytes, MIB(32)); /* whole slabs */
        segment_expect_use(&harness, 0, WEIGHTS);
    }
    segment_do(&second, 0, MEMBER_OPEN, "llama", 0);
    ck_assert_int_eq(segment_compare(&second, 7), 0);
    ck_assert(segment_status(&harness, "llama", &status));
    ck_assert_uint_eq(status.verifications, 2); /* there and back */
    segment_expect_use(&harness, WEIGHTS, 0);
    end();
}
END_TEST

START_TEST(a_broker_that_dies_while_one_leaves_loses_nothing)
{
    begin(SEGMENT_BROKER HARNESS_TENANT);
    segment_make_idle(&first, "llama", WEIGHTS, 8);
    for (int i = 0; i < 8; i++) {
        segment_demote(&harness, "llama");
        (void) member_ready(&second, 3 * i);
        segment_succeed(&harness);
        segment_do(&second, 0, MEMBER_OPEN, "llama", 0);
        ck_assert_int_eq(segment_compare(&second, 8), 0);
        segment_expect_use(&harness, WEIGHTS, 0);
        segment_do(&second, 0, MEMBER_RELEASE, "", 0);
    }
    end();
}
END_TEST

START_TEST(a_broker_that_dies_while_one_comes_back_loses_nothing)
{
    begin(SEGMENT_BROKER HARNESS_TENANT);
    segment_make_demoted(&harness, &first, "llama", WEIGHTS, 9);
    for (int i = 0; i < 8; i++) {
        struct member_order order = segment_order(MEMBER_OPEN, "llama", 0);

        member_tell(&second, &order);
        (void) member_ready(&second, 3 * i);
        segment_succeed(&harness);
        ck_assert_msg(member_answer(&second) == 0, "%s", second.answer.text);
        ck_assert_int_eq(segment_compare(&second, 9), 0);
        segment_do(&second, 0, MEMBER_RELEASE, "", 0);
        segment_demote(&harness, "llama");
        segment_await(&harness, "llama", STATE(DEMOTED));
    }
    end();
}
END_TEST

/* i == 0: to bring one back, 1: to make one. */
START_TEST(who_waits_for_memory_waits_on)
{
    struct member_order order = segment_order(MEMBER_OPEN, "llama", 0);
    Gmb__SegmentState state = _i == 0 ? STATE(FILLING) : STATE(ASKED);

    begin(SEGMENT_BROKER "[Tenant test]\nUser=*\nMemoryMax=24M\n");
    if (_i == 0)
        segment_make_demoted(&harness, &first, "llama", WEIGHTS, 19);
    else
        order = segment_order(MEMBER_CREATE, "llama", WEIGHTS);
    segment_make(&first, "other", WEIGHTS, 20);
    member_tell(&second, &order);
    segment_await(&harness, "llama", state);
    segment_succeed(&harness);
    segment_await(&harness, "llama", state);
    ck_assert(!member_ready(&second, 0));
    segment_come_back(&first);
    segment_do(&first, 0, MEMBER_REMOVE, "other", 0);
    segment_do(&first, 0, MEMBER_RELEASE, "", 0);
    ck_assert_msg(member_answer(&second) == 0, "%s", second.answer.text);
    if (_i == 0)
        ck_assert_int_eq(segment_compare(&second, 19), 0);
    segment_do(&second, 0, MEMBER_RELEASE, "", 0);
    end();
}
END_TEST

START_TEST(one_in_quarantine_stays_there)
{
    begin(SEGMENT_BROKER HARNESS_TENANT);
    segment_make(&first, "llama", WEIGHTS, 10);
    segment_do(&first, 0, MEMBER_POKE, "", MIB(5));
    wait_until(segment_change(&harness, "llama", ACTION(VERIFY)) == 1);
    segment_await(&harness, "llama", STATE(QUARANTINED));
    segment_succeed(&harness);
    segment_expect_state(&harness, "llama", STATE(QUARANTINED));
    segment_do(&second, GMB_E_CONFLICT, MEMBER_OPEN, "llama", 0);
    ck_assert_ptr_nonnull(strstr(second.answer.text, "are not what was sealed"));
    segment_expect_use(&harness, WEIGHTS, 0); /* its reader has it still */
    segment_come_back(&first);
    segment_do(&first, 0, MEMBER_RELEASE, "", 0);
    segment_await_readers(&harness, "llama", 0);
    segment_expect_use(&harness, 0, 0);
    segment_succeed(&harness); /* only its name is left */
    segment_expect_use(&harness, 0, 0);
    segment_expect_state(&harness, "llama", STATE(QUARANTINED));
    segment_do(&second, GMB_E_CONFLICT, MEMBER_OPEN, "llama", 0);
    segment_make(&second, "llama", WEIGHTS, 11);
    segment_succeed(&harness);
    segment_expect_state(&harness, "llama", STATE(SEALED));
    ck_assert_int_eq(segment_compare(&second, 11), 0);
    end();
}
END_TEST

START_TEST(one_that_is_removed_ends_with_its_last_reader)
{
    begin(SEGMENT_BROKER HARNESS_TENANT);
    segment_make(&first, "llama", WEIGHTS, 12);
    segment_do(&second, 0, MEMBER_OPEN, "llama", 0);
    segment_do(&second, 0, MEMBER_REMOVE, "llama", 0);
    segment_succeed(&harness);
    segment_do(&second, 0, MEMBER_RELEASE, "", 0);
    segment_do(&second, GMB_E_NOT_FOUND, MEMBER_OPEN, "llama", 0);
    ck_assert_int_eq(segment_compare(&first, 12), 0);
    segment_make(&second, "llama", WEIGHTS, 13);
    segment_succeed(&harness);
    ck_assert_int_eq(segment_compare(&first, 12), 0);
    ck_assert_int_eq(segment_compare(&second, 13), 0);
    segment_expect_use(&harness, 2 * WEIGHTS, 0);
    segment_come_back(&first);
    segment_do(&first, 0, MEMBER_RELEASE, "", 0);
    wait_until(segment_count(&harness) == 1);
    segment_expect_use(&harness, WEIGHTS, 0);
    end();
}
END_TEST

/* Creates one of the share group's, of so many chunks. */
static uint64_t group_create(struct raw *raw, const char *name, uint32_t chunks)
{
    return raw_expect_lease(raw, segment_ask_of(raw, true, name, chunks * CHUNK, CHUNK, 0), chunks);
}

/* A broker that ends by itself keeps what one keeps that is killed. */
START_TEST(a_renewed_broker_goes_on_with_them)
{
    struct member_order order = segment_order(MEMBER_FILL, "", 0);

    begin(SEGMENT_BROKER HARNESS_TENANT);
    segment_make_demoted(&harness, &first, "demoted", WEIGHTS, 23);
    segment_make(&first, "sealed", WEIGHTS, 24);
    segment_do(&second, 0, MEMBER_CREATE, "written", WEIGHTS);
    order.seed = 25;
    ck_assert_int_eq(member_do(&second, &order), 0);
    ck_assert_int_eq(kill(harness.keeper, SIGUSR1), 0);
    harness_succeed(&harness, 0);
    segment_expect_state(&harness, "demoted", STATE(DEMOTED));
    segment_do(&second, 0, MEMBER_SEAL, "", 0);
    segment_expect_verifies(&harness, "written");
    segment_expect_verifies(&harness, "sealed");
    segment_come_back(&first);
    segment_do(&first, 0, MEMBER_RELEASE, "", 0);
    segment_do(&first, 0, MEMBER_OPEN, "demoted", 0);
    ck_assert_int_eq(segment_compare(&first, 23), 0);
    segment_do(&second, 0, MEMBER_RELEASE, "", 0);
    segment_do(&second, 0, MEMBER_OPEN, "sealed", 0);
    ck_assert_int_eq(segment_compare(&second, 24), 0);
    end();
}
END_TEST

/* ------------------------------------------------------------------ nobody keeps anything */

START_TEST(without_a_store_it_ends_with_the_broker)
{
    struct member_order order = segment_order(MEMBER_SEAL, "", 0);

    harness_start(&harness, SEGMENT_BROKER HARNESS_TENANT);
    member_start(&first, &harness, 0);
    member_start(&second, &harness, 0);
    segment_make(&first, "llama", WEIGHTS, 21);
    segment_do(&second, 0, MEMBER_CREATE, "other", WEIGHTS);
    ck_assert_int_eq(kill(harness.pid, SIGSTOP), 0);
    member_tell(&second, &order);
    ck_assert(!member_ready(&second, 50));
    harness_kill(&harness);
    harness_restart(&harness);
    /* Its lease means nothing to this broker, or something else. */
    ck_assert_int_eq(member_answer(&second), GMB_E_DISCONNECTED);
    segment_come_back(&first);
    ck_assert_uint_eq(segment_count(&harness), 0);
    ck_assert_int_eq(segment_compare(&first, 21), 0); /* it keeps what it has mapped */
    segment_do(&second, 0, MEMBER_RELEASE, "", 0);
    segment_do(&second, GMB_E_NOT_FOUND, MEMBER_OPEN, "llama", 0);
    segment_make(&second, "llama", WEIGHTS, 22);
    segment_do(&first, 0, MEMBER_RELEASE, "", 0);
    segment_do(&first, 0, MEMBER_OPEN, "llama", 0);
    ck_assert_int_eq(segment_compare(&first, 22), 0);
    end();
}
END_TEST

/* ------------------------------------------------------------------ guests */

/* Two sessions of one process, of which neither has anything but of the group's. */
START_TEST(each_session_of_a_process_gets_its_own_guest_back)
{
    struct raw a, b;
    uint64_t one, two;

    harness_start(&harness, GROUP);
    raw_connect(&a, &harness);
    raw_connect(&b, &harness);
    one = group_create(&a, "one", 1);
    two = group_create(&b, "two", 2);
    for (int i = 0; i < 3; i++) {
        struct raw *early = i % 2 == 0 ? &b : &a, *late = i % 2 == 0 ? &a : &b;

        raw_close(&a);
        raw_close(&b);
        ck_assert(raw_come_back(early, &harness));
        ck_assert(raw_come_back(late, &harness));
        ck_assert_uint_eq(raw_resume_one(&a, one, 1), 0);
        ck_assert_uint_eq(raw_resume_one(&b, two, 2), 0);
        ck_assert_uint_eq(segment_count(&harness), 2);
    }
    /* Of what it doesn't name it lets go. */
    ck_assert(raw_come_back(&a, &harness));
    ck_assert_uint_eq(raw_resume(&a, NULL, 0, true), 0);
    segment_await(&harness, "one", STATE(REMOVED));
    raw_expect_done(&b, raw_release(&b, two));
    segment_await(&harness, "two", STATE(REMOVED));
    raw_close(&a);
    raw_close(&b);
    harness_stop(&harness);
}
END_TEST

START_TEST(guests_in_a_share_group_come_back_to_the_next_broker)
{
    struct raw one, two;
    uint64_t lease, other;

    harness_start_kept(&harness, GROUP, NULL);
    raw_connect(&one, &harness);
    raw_connect(&two, &harness);
    lease = group_create(&one, "one", 1);
    other = group_create(&two, "two", 2);
    for (int i = 0; i < 2; i++) {
        segment_succeed(&harness);
        ck_assert(raw_come_back(&two, &harness));
        ck_assert(raw_come_back(&one, &harness));
        ck_assert_uint_eq(raw_resume_one(&two, other, 2), 0);
        ck_assert_uint_eq(raw_resume_one(&one, lease, 1), 0);
    }
    raw_expect_done(&one, segment_seal_ask(&one, lease));
    raw_expect_done(&one, raw_release(&one, lease));
    segment_expect_state(&harness, "one", STATE(SEALED));
    raw_close(&one);
    raw_close(&two);
    (void) segment_change(&harness, "one", ACTION(REMOVE));
    segment_succeed(&harness);
    ck_assert(raw_come_back(&two, &harness));
    ck_assert_uint_eq(raw_resume(&two, NULL, 0, true), 0);
    wait_until(segment_count(&harness) == 0);
    raw_close(&two);
    harness_stop(&harness);
}
END_TEST

/* ------------------------------------------------------------------ again and again */

START_TEST(readers_outlive_many_brokers)
{
    unsigned long restarts = strtoul(getenv("RESTARTS"), NULL, 10);

    begin(SEGMENT_BROKER HARNESS_TENANT);
    segment_make(&first, "llama", WEIGHTS, 18);
    for (unsigned long i = 0; i < restarts; i++) {
        struct member_order order = segment_order(MEMBER_OPEN, "llama", 0);

        member_tell(&second, &order);
        (void) member_ready(&second, (int) (i % 4));
        segment_succeed(&harness);
        ck_assert_msg(member_answer(&second) == 0, "%s", second.answer.text);
        ck_assert_int_eq(segment_compare(&second, 18), 0);
        ck_assert_int_eq(segment_compare(&first, 18), 0);
        segment_do(&second, 0, MEMBER_RELEASE, "", 0);
        segment_expect_use(&harness, WEIGHTS, 0);
    }
    segment_come_back(&second);
    segment_await_readers(&harness, "llama", 1);
    segment_expect_verifies(&harness, "llama");
    end();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("integration: segments over restarts");
    TCase *tcase = tcase_create("segments over restarts");

    (void) setenv("MEMBER_PATIENT", "1", 1);
    if (getenv("RESTARTS") != NULL) {
        tcase_add_test(tcase, readers_outlive_many_brokers);
        suite_add_tcase(suite, tcase);
        return unit_run_suite(suite);
    }
    tcase_add_test(tcase, a_sealed_one_is_there_for_its_readers_and_for_others);
    tcase_add_test(tcase, without_its_readers_it_is_there_all_the_same);
    tcase_add_test(tcase, one_that_is_being_written_goes_on_with_its_writer);
    tcase_add_test(tcase, one_whose_writer_died_leaves_nothing);
    tcase_add_test(tcase, a_creation_that_is_cut_off_is_made_or_made_again);
    tcase_add_test(tcase, a_seal_that_is_cut_off_is_done_once_the_broker_is_back);
    tcase_add_test(tcase, a_demoted_one_comes_back_from_the_host_tier);
    tcase_add_test(tcase, a_broker_that_dies_while_one_leaves_loses_nothing);
    tcase_add_test(tcase, a_broker_that_dies_while_one_comes_back_loses_nothing);
    tcase_add_loop_test(tcase, who_waits_for_memory_waits_on, 0, 2);
    tcase_add_test(tcase, one_in_quarantine_stays_there);
    tcase_add_test(tcase, one_that_is_removed_ends_with_its_last_reader);
    tcase_add_test(tcase, a_renewed_broker_goes_on_with_them);
    tcase_add_test(tcase, without_a_store_it_ends_with_the_broker);
    tcase_add_test(tcase, each_session_of_a_process_gets_its_own_guest_back);
    tcase_add_test(tcase, guests_in_a_share_group_come_back_to_the_next_broker);
    suite_add_tcase(suite, tcase);
    return unit_run_suite(suite);
}
