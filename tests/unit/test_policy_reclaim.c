/* reclaim_plan() where a scenario's text doesn't reach: names, figures without sense, size. What it
 * decides stands in tests/scenario/reclaim-*.txt. */
#include "policies/reclaim.h"

#include "tests/unit/unit.h"

#define MANY 100000

static struct reclaim_chunk many_chunks[MANY];
static struct reclaim_step many_steps[MANY];
static struct reclaim_tenant many_tenants[1024];

START_TEST(every_value_has_a_name_of_its_own)
{
    for (int i = 0; i < RECLAIM_REASON_MAX; i++) {
        for (int k = 0; k < i; k++)
            ck_assert_str_ne(reclaim_reason_name(i), reclaim_reason_name(k));
    }
    ck_assert_str_eq(reclaim_reason_name(RECLAIM_REASON_MAX), "unknown");
    ck_assert_str_eq(reclaim_shortfall_name(RECLAIM_HOST_FULL), "host tier full");
    ck_assert_str_eq(reclaim_shortfall_name(RECLAIM_SHORTFALL_MAX), "unknown");
    ck_assert_str_eq(reclaim_kill_verdict_name(RECLAIM_KILL_YES), "yes");
    ck_assert_str_eq(reclaim_kill_verdict_name(RECLAIM_KILL_VERDICT_MAX), "unknown");
}
END_TEST

START_TEST(rows_without_sense_are_left_out)
{
    const struct reclaim_tenant tenants[] = {{.used = 100, .high = UINT64_MAX}};
    const struct reclaim_chunk chunks[] = {
        {.tenant = 1, .bytes = 10, .page_bytes = 1},          /* no such tenant */
        {.tenant = UINT32_MAX, .bytes = 10, .page_bytes = 1}, /* nor that one */
        {.tenant = 0, .bytes = 10, .page_bytes = 0, .resident = 1},
        {.tenant = 0, .bytes = 10, .page_bytes = 1, .resident = 1, .pinned = 2},
        {.tenant = 0, .bytes = 10, .page_bytes = UINT64_MAX, .resident = UINT32_MAX},
    };
    const struct reclaim_request request = {1, UINT32_MAX, UINT32_MAX, 0, false};
    struct reclaim_step steps[5];
    enum reclaim_shortfall shortfall;
    uint64_t planned = 1;

    ck_assert_uint_eq(
        reclaim_plan(&request, tenants, 1, chunks, 5, steps, 5, &planned, &shortfall), 0);
    ck_assert_uint_eq(planned, 0);
    ck_assert_int_eq(shortfall, RECLAIM_HOST_FULL); /* of the last: no tier is that large */
    ck_assert_uint_eq(reclaim_plan(&request, NULL, 0, NULL, 0, NULL, 0, &planned, &shortfall), 0);
    ck_assert_int_eq(shortfall, RECLAIM_CUT_SHORT);
}
END_TEST

START_TEST(sums_beyond_64_bits_stay_large)
{
    const struct reclaim_tenant tenants[] = {
        {.used = UINT64_MAX, .host_left = UINT64_MAX, .weight = UINT32_MAX},
        {.used = UINT64_MAX, .host_left = UINT64_MAX}, /* weight 0 counts as 1 */
    };
    const struct reclaim_chunk chunks[] = {
        {.tenant = 0, .bytes = UINT64_MAX - 1, .page_bytes = 1, .resident = 1},
        {.tenant = 1, .bytes = UINT64_MAX - 1, .page_bytes = 1, .resident = 1},
    };
    const struct reclaim_request request = {UINT64_MAX, UINT32_MAX, UINT32_MAX, 0, false};
    struct reclaim_step steps[2];
    enum reclaim_shortfall shortfall;
    uint64_t planned;

    ck_assert_uint_eq(
        reclaim_plan(&request, tenants, 2, chunks, 2, steps, 2, &planned, &shortfall), 2);
    ck_assert_uint_eq(steps[0].chunk, 1); /* it has most for its weight */
    ck_assert_uint_eq(planned, UINT64_MAX);
    ck_assert_int_eq(shortfall, RECLAIM_COMPLETE);
}
END_TEST

static void many_make(void)
{
    uint64_t random = 1;

    for (size_t i = 0; i < ARRAY_SIZE(many_tenants); i++)
        many_tenants[i] = (struct reclaim_tenant){.used = UINT64_C(400) << 20,
            .low = UINT64_C(100) << 20,
            .high = UINT64_C(200) << 20,
            .host_left = UINT64_MAX,
            .priority = (uint32_t) i % 3,
            .weight = 1 + (uint32_t) i % 7};
    for (size_t i = 0; i < MANY; i++) {
        random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        many_chunks[i] = (struct reclaim_chunk){.tenant = (uint32_t) (i % ARRAY_SIZE(many_tenants)),
            .bytes = UINT64_C(2) << 20,
            .page_bytes = 16384,
            .resident = 1 + (uint32_t) (random >> 40) % 128,
            .idle_ns = random >> 20,
            .token = i};
    }
}

/* All that can be had of 10^5 chunks, each of which is looked at: each once. */
START_TEST(a_plan_over_100_000_chunks_takes_each_once)
{
    const struct reclaim_request request = {UINT64_MAX, UINT32_MAX, UINT32_MAX, 0, false};
    static bool taken[MANY];
    enum reclaim_shortfall shortfall;
    uint64_t planned;
    size_t count;

    many_make();
    count = reclaim_plan(&request, many_tenants, ARRAY_SIZE(many_tenants), many_chunks, MANY,
        many_steps, MANY, &planned, &shortfall);
    ck_assert_uint_eq(count, MANY);
    ck_assert_uint_eq(planned, MANY * (UINT64_C(2) << 20));
    for (size_t i = 0; i < count; i++) {
        ck_assert(!taken[many_steps[i].chunk]);
        taken[many_steps[i].chunk] = true;
    }
}
END_TEST

START_TEST(a_cut_plan_is_the_beginning_of_the_whole_one)
{
    const struct reclaim_request request = {UINT64_MAX, UINT32_MAX, UINT32_MAX, 0, false};
    static struct reclaim_step few[1000];
    enum reclaim_shortfall shortfall;
    uint64_t planned;

    many_make();
    ck_assert_uint_eq(reclaim_plan(&request, many_tenants, ARRAY_SIZE(many_tenants), many_chunks,
                          MANY, many_steps, MANY, &planned, &shortfall),
        MANY);
    ck_assert_uint_eq(reclaim_plan(&request, many_tenants, ARRAY_SIZE(many_tenants), many_chunks,
                          MANY, few, ARRAY_SIZE(few), &planned, &shortfall),
        ARRAY_SIZE(few));
    ck_assert_int_eq(shortfall, RECLAIM_CUT_SHORT);
    for (size_t i = 0; i < ARRAY_SIZE(few); i++)
        ck_assert_uint_eq(few[i].chunk, many_steps[i].chunk);
}
END_TEST

UNIT_MAIN("policy_reclaim", every_value_has_a_name_of_its_own, rows_without_sense_are_left_out,
    sums_beyond_64_bits_stay_large, a_plan_over_100_000_chunks_takes_each_once,
    a_cut_plan_is_the_beginning_of_the_whole_one)
