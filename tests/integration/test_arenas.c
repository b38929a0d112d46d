/* Arenas over the real socket: made, filled into holes, given back. Nothing is evicted here. */
#include "tests/integration/raw_arena.h"
#include "tests/unit/unit.h"

#define PAGE (UINT64_C(64) << 10)

START_TEST(an_arena_is_filled_into_its_holes_and_returned)
{
    Gmb__TenantDevice tenant;
    struct harness harness;
    struct raw_arena arena;
    struct raw raw;

    harness_start(&harness, NULL);
    raw_connect(&raw, &harness);
    raw_expect_arena(
        &raw, raw_arena_request(&raw, PAGE, HARNESS_CHUNK, 200 * HARNESS_CHUNK - 1), &arena);
    ck_assert_uint_eq(arena.table.layout.max_chunks, 200);
    raw_tenant(&harness, "test", &tenant);
    ck_assert_uint_eq(tenant.used_bytes, 0);
    raw_expect_fill(&raw, raw_fill(&raw, arena.lease, 198, 2, 0), 198, 2);
    raw_expect_fill(&raw, raw_fill(&raw, arena.lease, 3, 140, 0), 3, 140);
    raw_mapped(&raw, arena.lease, 198, 2);
    raw_mapped(&raw, arena.lease, 3, 140);
    raw_expect_error(&raw, raw_fill(&raw, arena.lease, 142, 2, 0), GMB_STATUS_INVALID);
    raw_expect_error(&raw, raw_fill(&raw, arena.lease, 199, 2, 0), GMB_STATUS_INVALID);
    raw_tenant(&harness, "test", &tenant);
    ck_assert_uint_eq(tenant.leased_bytes, 142 * HARNESS_CHUNK);
    raw_expect_done(&raw, raw_return(&raw, arena.lease, 3, 1));
    raw_expect_error(&raw, raw_return(&raw, arena.lease, 3, 2), GMB_STATUS_INVALID);
    raw_expect_done(&raw, raw_return(&raw, arena.lease, 4, 139));
    raw_expect_fill(&raw, raw_fill(&raw, arena.lease, 3, 1, 0), 3, 1);
    raw_expect_error(&raw, raw_grow(&raw, arena.lease, 1), GMB_STATUS_INVALID);
    raw_expect_done(&raw, raw_release(&raw, arena.lease));
    raw_expect_error(&raw, raw_fill(&raw, arena.lease, 0, 1, 0), GMB_STATUS_NOT_FOUND);
    raw_arena_close(&arena);
    raw_close(&raw);
    harness_stop(&harness);
}
END_TEST

START_TEST(geometry_that_makes_no_sense_is_refused)
{
    static const struct {
        uint64_t page, chunk, max;
    } cases[] = {
        {0, HARNESS_CHUNK, HARNESS_CHUNK},
        {15, HARNESS_CHUNK, HARNESS_CHUNK},
        {UINT64_C(1) << 63, HARNESS_CHUNK, HARNESS_CHUNK},
        {UINT64_C(1) << 63, 0, UINT64_MAX},
        {PAGE, HARNESS_CHUNK - 1, HARNESS_CHUNK},
        {PAGE, UINT64_C(2) << 30, UINT64_C(2) << 30},
        {PAGE, HARNESS_CHUNK, 0},
        {PAGE, HARNESS_CHUNK, UINT64_MAX},
        {PAGE, HARNESS_CHUNK, 65537 * HARNESS_CHUNK},
        {16, HARNESS_CHUNK, HARNESS_CHUNK},
        {3 * PAGE, HARNESS_CHUNK, HARNESS_CHUNK},
    };
    struct harness harness;
    struct raw_arena arena;
    struct raw raw;

    harness_start(&harness, NULL);
    raw_connect(&raw, &harness);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        raw_expect_error(&raw, raw_arena_request(&raw, cases[i].page, cases[i].chunk, cases[i].max),
            GMB_STATUS_INVALID);
    /* The broker chooses a multiple of both. */
    raw_expect_arena(&raw, raw_arena_request(&raw, 3 * PAGE, 0, 1), &arena);
    ck_assert_uint_eq(arena.table.layout.chunk_bytes, 3 * HARNESS_CHUNK);
    raw_expect_done(&raw, raw_release(&raw, arena.lease));
    raw_arena_close(&arena);
    raw_close(&raw);
    harness_stop(&harness);
}
END_TEST

START_TEST(a_client_has_so_many_arenas_and_no_more)
{
    struct harness harness;
    struct raw_arena arena;
    struct raw raw;
    uint64_t leases[LIMIT_ARENAS_PER_CLIENT];

    harness_start(&harness, NULL);
    raw_connect(&raw, &harness);
    for (int i = 0; i < LIMIT_ARENAS_PER_CLIENT; i++) {
        raw_expect_arena(&raw, raw_arena_request(&raw, PAGE, HARNESS_CHUNK, HARNESS_CHUNK), &arena);
        leases[i] = arena.lease;
        raw_arena_close(&arena);
    }
    raw_expect_error(
        &raw, raw_arena_request(&raw, PAGE, HARNESS_CHUNK, HARNESS_CHUNK), GMB_STATUS_EXHAUSTED);
    raw_expect_done(&raw, raw_release(&raw, leases[0]));
    raw_expect_arena(&raw, raw_arena_request(&raw, PAGE, HARNESS_CHUNK, HARNESS_CHUNK), &arena);
    raw_arena_close(&arena);
    leases[0] = arena.lease;
    for (int i = 0; i < LIMIT_ARENAS_PER_CLIENT; i++)
        raw_expect_done(&raw, raw_release(&raw, leases[i]));
    raw_close(&raw);
    harness_stop(&harness);
}
END_TEST

START_TEST(events_about_what_is_not_there_are_ignored)
{
    uint32_t pages[] = {0, 31, 32, UINT32_MAX};
    struct harness harness;
    struct raw_arena arena;
    struct raw raw;

    harness_start(&harness, NULL);
    raw_connect(&raw, &harness);
    raw_expect_arena(&raw, raw_arena_request(&raw, PAGE, HARNESS_CHUNK, HARNESS_CHUNK), &arena);
    raw_mapped(&raw, arena.lease, 0, 1);
    raw_mapped(&raw, arena.lease, 0, UINT32_MAX);
    raw_mapped(&raw, arena.lease, UINT32_MAX, UINT32_MAX);
    raw_mapped(&raw, arena.lease + 1, 0, 1);
    raw_want(&raw, arena.lease, pages, ARRAY_SIZE(pages));
    raw_want(&raw, arena.lease + 1, pages, ARRAY_SIZE(pages));
    raw_expect_fill(&raw, raw_fill(&raw, arena.lease, 0, 1, 0), 0, 1);
    raw_want(&raw, arena.lease, pages, ARRAY_SIZE(pages));
    raw_expect_done(&raw, raw_release(&raw, arena.lease));
    raw_arena_close(&arena);
    raw_close(&raw);
    harness_stop(&harness);
}
END_TEST

UNIT_MAIN("arenas", an_arena_is_filled_into_its_holes_and_returned,
    geometry_that_makes_no_sense_is_refused, a_client_has_so_many_arenas_and_no_more,
    events_about_what_is_not_there_are_ignored)
