/*
 * What the next broker finds of its segments is less, more or other than what was stored: it harms
 * the one that it belongs to, and takes away nothing that anybody has mapped.
 */
#include <check.h>
#include <stdlib.h>

#include "tests/integration/segments.h"
#include "tests/integration/tamper_arm.h"
#include "tests/unit/unit.h"

#define WEIGHTS MIB(16)

static struct harness harness;
static struct member first, second;

/* A broker whose successors are spoiled, and a segment of two readers there. */
static void begin(void)
{
    tamper_start(&harness, SEGMENT_BROKER HARNESS_TENANT, NULL);
    segment_pair_start(&harness, &first, &second);
    segment_make(&first, "harmed", WEIGHTS, 14); /* S1 */
    segment_make(&second, "whole", WEIGHTS, 15); /* S2 */
}

static void succeed_spoiled(const char *what)
{
    tamper_arm(what);
    segment_succeed(&harness);
    tamper_expect_done();
}

static void expect_said(const char *text)
{
    tamper_expect_said(&harness, text);
}

static void end(void)
{
    member_end(&first, 0);
    member_end(&second, 0);
    segments_clear(&harness);
    tamper_stop(&harness);
}

/* The other one is as it was, and nobody loses what it has mapped. */
static void expect_other_whole(void)
{
    segment_await_readers(&harness, "whole", 1);
    ck_assert_int_eq(segment_compare(&first, 14), 0);
    ck_assert_int_eq(segment_compare(&second, 15), 0);
    segment_expect_verifies(&harness, "whole");
}

/* Without its record nothing is known of it but what its reader has. */
START_TEST(a_record_that_is_missing_or_unreadable_costs_that_segment)
{
    static const char *const ways[] = {"lose S1", "twice S1", "garble S1:0", "garble S1:8"};

    begin();
    succeed_spoiled(ways[_i]);
    expect_said("1 segment can't be served any more");
    expect_other_whole();
    segment_do(&first, 0, MEMBER_RELEASE, "", 0);
    segment_do(&first, GMB_E_NOT_FOUND, MEMBER_OPEN, "harmed", 0);
    segment_make(&first, "harmed", WEIGHTS, 16);
    segment_succeed(&harness);
    ck_assert_int_eq(segment_compare(&first, 16), 0);
    end();
}
END_TEST

/* Its sums, or a chunk: its name says why nobody gets it. */
START_TEST(one_that_is_not_whole_is_in_quarantine)
{
    static const char *const ways[] = {"garble S1:4096", "lose C1"};

    begin();
    succeed_spoiled(ways[_i]);
    expect_said(_i == 0 ? "any more: harmed: " : "1 segment can't be served any more; ");
    segment_expect_state(&harness, "harmed", STATE(QUARANTINED));
    expect_other_whole();
    member_end(&second, 0);
    member_start(&second, &harness, 0);
    segment_do(&second, GMB_E_CONFLICT, MEMBER_OPEN, "harmed", 0);
    segment_do(&first, 0, MEMBER_RELEASE, "", 0);
    segment_make(&second, "harmed", WEIGHTS, 17);
    end();
}
END_TEST

START_TEST(an_fd_that_is_no_segments_record_is_let_go)
{
    begin();
    succeed_spoiled("extra S7");
    expect_said("");
    ck_assert(harness_logged(&harness, "its record S7 can't be read"));
    expect_other_whole();
    segment_await_readers(&harness, "harmed", 1);
    segment_expect_verifies(&harness, "harmed");
    segment_succeed(&harness);
    expect_other_whole();
    end();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("integration: segments in the store");
    TCase *tcase = tcase_create("segments in the store");

    (void) setenv("MEMBER_PATIENT", "1", 1);
    tcase_add_loop_test(tcase, a_record_that_is_missing_or_unreadable_costs_that_segment, 0, 4);
    tcase_add_loop_test(tcase, one_that_is_not_whole_is_in_quarantine, 0, 2);
    tcase_add_test(tcase, an_fd_that_is_no_segments_record_is_let_go);
    suite_add_tcase(suite, tcase);
    return unit_run_suite(suite);
}
