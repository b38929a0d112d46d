/* Steps as they are written: each at the edge of what it takes and just past it. */
#include "policies/ladder.h"

#include <errno.h>
#include <string.h>

#include "tests/unit/unit.h"

static struct ladder_rung parsed(const char *text)
{
    char reason[LADDER_REASON_BYTES];
    struct ladder_rung rung;

    ck_assert_msg(ladder_rung_parse(text, &rung, reason) == 0, "%s: %s", text, reason);
    return rung;
}

/* Refused, with a sentence that holds `why`, and nothing written. */
static void refused(const char *text, const char *why)
{
    char reason[LADDER_REASON_BYTES] = "";
    struct ladder_rung rung, before;

    memset(&rung, 0x5a, sizeof(rung));
    before = rung;
    ck_assert_msg(ladder_rung_parse(text, &rung, reason) == -EINVAL, "%s is taken", text);
    ck_assert_msg(strstr(reason, why) != NULL, "%s: %s", text, reason);
    ck_assert_int_eq(memcmp(&rung, &before, sizeof(rung)), 0);
}

START_TEST(every_step_is_read_with_its_value)
{
    struct ladder_rung rung = parsed("reduce-batch 0.75, quantize-kv fp8 ,shrink-context 8192,"
                                     "drop-prefix-cache 1,\treject-below-priority 50, pause-new");

    ck_assert_uint_eq(rung.present, 0x7e);
    ck_assert_uint_eq(rung.batch_factor, 750000);
    ck_assert_uint_eq(rung.format, LADDER_FP8);
    ck_assert_uint_eq(rung.context_tokens, 8192);
    ck_assert_uint_eq(rung.prefix_share, 1000000);
    ck_assert_uint_eq(rung.reject_below, 50);
    ck_assert_uint_eq(parsed("").present, 0);
    ck_assert_uint_eq(parsed(" \t ").present, 0);
}
END_TEST

START_TEST(shares_are_read_to_the_millionth)
{
    ck_assert_uint_eq(parsed("reduce-batch 0.000001").batch_factor, 1);
    ck_assert_uint_eq(parsed("reduce-batch 0.999999").batch_factor, 999999);
    ck_assert_uint_eq(parsed("reduce-batch .5").batch_factor, 500000);
    ck_assert_uint_eq(parsed("reduce-batch 0.5000000").batch_factor, 500000);
    ck_assert_uint_eq(parsed("drop-prefix-cache 1.0").prefix_share, 1000000);
    refused("reduce-batch 0.9999999", "reduce-batch takes");
    refused("reduce-batch 1", "above 0 and below 1");
    refused("reduce-batch 0", "above 0");
    refused("reduce-batch 0.0", "above 0");
    refused("reduce-batch .", "above 0");
    refused("reduce-batch 1.5", "above 0");
    refused("reduce-batch 10", "above 0");
    refused("reduce-batch -0.5", "above 0");
    refused("reduce-batch 0.5.5", "above 0");
    refused("reduce-batch 5e-1", "above 0");
    refused("drop-prefix-cache 1.000001", "at most 1");
    refused("drop-prefix-cache 2", "at most 1");
}
END_TEST

START_TEST(numbers_are_read_to_the_largest)
{
    ck_assert_uint_eq(parsed("shrink-context 1").context_tokens, 1);
    ck_assert_uint_eq(parsed("shrink-context 4294967295").context_tokens, UINT32_MAX);
    ck_assert_uint_eq(parsed("reject-below-priority 4294967295").reject_below, UINT32_MAX);
    refused("shrink-context 0", "tokens from 1");
    refused("shrink-context 4294967296", "tokens from 1");
    refused("shrink-context 99999999999999999999", "tokens from 1");
    refused("shrink-context 8k", "tokens from 1");
    refused("reject-below-priority 0", "priority from 1");
    refused("reject-below-priority", "priority from 1");
}
END_TEST

START_TEST(what_is_no_step_refuses_the_whole_rung)
{
    refused("reduce-batch 0.5, shrink-contxt 1", "no step 'shrink-contxt'");
    refused("none", "no step 'none'");
    refused("Reduce-Batch 0.5", "no step 'Reduce-Batch'");
    refused("reduce-batch 0.5 shrink-context 1", "reduce-batch takes");
    refused("reduce-batch 0.5,", "no step");
    refused(",reduce-batch 0.5", "no step");
    refused("pause-new,,pause-new", "no step");
    refused("pause-new now", "pause-new takes no value");
    refused("quantize-kv int4", "int8 or fp8");
    refused("quantize-kv", "int8 or fp8");
    refused("pause-new, pause-new", "twice");
    refused(
        "a-name-of-a-step-that-is-longer-than-any-line-of-a-terminal-could-show-it 5", "no step");
}
END_TEST

START_TEST(an_empty_ladder_asks_for_nothing_on_any_rung)
{
    struct ladder ladder = {0};

    ck_assert_uint_eq(ladder_merge(&ladder, PRESSURE_CRITICAL).present, 0);
    ladder.rungs[PRESSURE_CRITICAL] = parsed("pause-new");
    ck_assert_uint_ne(ladder_merge(&ladder, PRESSURE_CRITICAL).present, 0);
    ck_assert_uint_eq(ladder_merge(&ladder, PRESSURE_MEDIUM).present, 0);
    ck_assert(ladder_rung_has(&(struct ladder_rung){.present = 0x40}, LADDER_PAUSE_NEW));
}
END_TEST

UNIT_MAIN("policy_ladder", every_step_is_read_with_its_value, shares_are_read_to_the_millionth,
    numbers_are_read_to_the_largest, what_is_no_step_refuses_the_whole_rung,
    an_empty_ladder_asks_for_nothing_on_any_rung)
