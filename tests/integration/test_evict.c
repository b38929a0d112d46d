/* Pages leave a device and come back, byte for byte, through a real mover on the simulated GPU. */
#include <check.h>
#include <unistd.h>

#include "tests/integration/orders.h"
#include "tests/integration/pages.h"
#include "tests/unit/unit.h"

#define PAGE (UINT64_C(64) << 10)
#define PER_CHUNK ((uint32_t) (HARNESS_CHUNK / PAGE))
#define MIB(n) ((uint64_t) (n) << 20)
#define BROKER HARNESS_BROKER "HostTier=256M\nMoverIdle=200ms\n"

START_TEST(evicted_pages_come_back_as_they_were)
{
    static struct pages pages;
    struct harness harness;
    Gmb__TenantDevice tenant;

    harness_start(&harness, BROKER HARNESS_TENANT);
    pages_open(&pages, &harness, PAGE, HARNESS_CHUNK, MIB(64));
    pages_fill(&pages, 16 * PER_CHUNK);
    ck_assert_uint_eq(order_evict(&harness, "test", MIB(16)), MIB(16));
    pages_wait_evicted(&pages, 7 * PER_CHUNK);
    pages_wait_mapped(&pages, MIB(20));
    raw_tenant(&harness, "test", &tenant);
    ck_assert_uint_le(tenant.leased_bytes, MIB(20));
    /* All at once, out of order, and one at a time. */
    pages_check(&pages, 0, pages.count, pages.count);
    ck_assert_uint_eq(pages_stats(&pages).evicted_pages, 0);
    /* Everything, and what the library keeps ready. */
    ck_assert_uint_ge(order_evict(&harness, "test", MIB(64)), MIB(32));
    pages_wait_evicted(&pages, 15 * PER_CHUNK);
    pages_check(&pages, PER_CHUNK / 2, 3, 1);
    pages_check(&pages, 0, pages.count, 7);
    pages_close(&pages);
    harness_stop(&harness);
}
END_TEST

START_TEST(an_entitled_tenant_gets_the_memory_of_cold_pages)
{
    static struct pages pages;
    struct claimant claimant;
    struct harness harness;

    unit_need_root();
    harness_start(&harness,
        BROKER "[Tenant high]\nUser=65534\nMemoryMin=512M\nPriority=900\n[Tenant low]\nUser=*\n"
               "Priority=100\n");
    pages_open(&pages, &harness, PAGE, HARNESS_CHUNK, MIB(512));
    pages_fill(&pages, 64 * PER_CHUNK);
    raw_set(&harness, "high", "MemoryMin", "0");
    claimant_start(&claimant, &harness, HARNESS_MEMORY - MIB(64), 15000);
    ck_assert_int_eq(claimant_answer(&claimant), GMB_STATUS_OK);
    pages_wait_mapped(&pages, MIB(64));
    ck_assert_uint_ge(pages_stats(&pages).evicted_pages, 32 * PER_CHUNK);
    claimant_end(&claimant);
    pages_check(&pages, 0, pages.count, 100);
    pages_close(&pages);
    harness_stop(&harness);
}
END_TEST

START_TEST(a_plan_goes_round_a_pinned_page)
{
    static struct pages pages;
    struct harness harness;

    harness_start(&harness, BROKER HARNESS_TENANT);
    pages_open(&pages, &harness, PAGE, HARNESS_CHUNK, MIB(64));
    pages_fill(&pages, 4 * PER_CHUNK);
    ck_assert_int_eq(gmb_page_pin(pages.arena, 1, pages.pages), GMB_PIN_READY);
    for (int i = 0; i < 3; i++)
        (void) order_evict(&harness, "test", MIB(64));
    pages_wait_evicted(&pages, 3 * PER_CHUNK);
    ck_assert_int_eq(gmb_page_ready(pages.arena, 1, pages.pages), GMB_PIN_READY);
    ck_assert(harness_logged(&harness, "nothing left"));
    ck_assert_int_eq(gmb_page_unpin(pages.arena, 1, pages.pages), 0);
    pages_check(&pages, 0, pages.count, 16);
    pages_close(&pages);
    harness_stop(&harness);
}
END_TEST

START_TEST(a_dry_run_changes_nothing)
{
    static struct pages pages;
    Gmb__TenantDevice before, after;
    struct harness harness;

    harness_start(&harness, BROKER HARNESS_TENANT);
    pages_open(&pages, &harness, PAGE, HARNESS_CHUNK, MIB(64));
    pages_fill(&pages, 4 * PER_CHUNK);
    raw_tenant(&harness, "test", &before);
    ck_assert_uint_eq(order_dry_run(&harness, "test", MIB(4), true), MIB(4));
    (void) order_dry_run(&harness, "test", MIB(4), false);
    raw_tenant(&harness, "test", &after);
    ck_assert_uint_ge(after.leased_bytes, before.leased_bytes);
    ck_assert_uint_eq(pages_stats(&pages).evictions, 0);
    pages_close(&pages);
    harness_stop(&harness);
}
END_TEST

START_TEST(a_full_tier_drops_what_can_be_computed_again_and_keeps_the_rest)
{
    static struct pages pages;
    const struct gmb_page_hint hint = {.parent = UINT32_MAX, .tokens = 16, .recomputable = 1};
    struct harness harness;
    uint32_t lost = 0;
    uint64_t deadline;

    harness_start(
        &harness, HARNESS_BROKER "HostTier=32M\nMoverIdle=200ms\n[Tenant test]\nUser=*\n");
    pages_open(&pages, &harness, PAGE, HARNESS_CHUNK, MIB(128));
    pages_fill(&pages, 32 * PER_CHUNK);
    for (uint32_t i = 0; i < 24 * PER_CHUNK; i++)
        ck_assert_int_eq(gmb_page_set_hint(pages.arena, pages.pages[i], &hint), 0);
    /* 16 chunks fit in the tier. So of the 24 that may be dropped 16 are, from the device or from
     * the tier, and the 8 others have room; and the library keeps some ready. */
    deadline = harness_now_ms() + HARNESS_DEADLINE_MS;
    while (pages_stats(&pages).mapped_bytes > MIB(4)) {
        ck_assert_uint_lt(harness_now_ms(), deadline);
        (void) order_evict(&harness, "test", MIB(128));
        harness_breathe();
    }
    for (uint32_t i = 0; i < pages.count; i++) {
        int r = gmb_page_pin(pages.arena, 1, &pages.pages[i]);

        lost += r == GMB_PIN_LOST;
        ck_assert(r != GMB_PIN_LOST || i < 24 * PER_CHUNK);
        if (r != GMB_PIN_LOST)
            ck_assert_int_eq(gmb_page_unpin(pages.arena, 1, &pages.pages[i]), 0);
    }
    ck_assert_uint_eq(lost, 16 * PER_CHUNK);
    pages_check(&pages, 24 * PER_CHUNK, 8 * PER_CHUNK, 64);
    pages_close(&pages);
    harness_stop(&harness);
}
END_TEST

START_TEST(a_tenants_share_of_the_tier_is_kept)
{
    static struct pages pages;
    struct harness harness;

    harness_start(&harness, BROKER "[Tenant test]\nUser=*\nHostMax=0\n");
    pages_open(&pages, &harness, PAGE, HARNESS_CHUNK, MIB(64));
    pages_fill(&pages, 4 * PER_CHUNK);
    (void) order_evict(&harness, "test", MIB(64));
    ck_assert(harness_logged(&harness, "host tier full"));
    ck_assert_uint_eq(pages_stats(&pages).evictions, 0);
    ck_assert_int_eq(raw_set(&harness, "test", "HostMax", "32M"), GMB_STATUS_OK);
    (void) order_evict(&harness, "test", MIB(64));
    pages_wait_evicted(&pages, 4 * PER_CHUNK);
    pages_check(&pages, 0, pages.count, 16);
    pages_close(&pages);
    harness_stop(&harness);
}
END_TEST

START_TEST(a_drained_device_is_empty_and_comes_back)
{
    static struct pages pages;
    struct harness harness;
    uint64_t deadline;
    uint32_t page;

    harness_start(&harness, BROKER HARNESS_TENANT);
    pages_open(&pages, &harness, PAGE, HARNESS_CHUNK, MIB(64));
    pages_fill(&pages, 8 * PER_CHUNK);
    (void) order_drain(&harness, false);
    pages_wait_evicted(&pages, 8 * PER_CHUNK);
    pages_wait_mapped(&pages, 0);
    ck_assert_int_lt(gmb_page_alloc(pages.arena, 1, &page, 0), 0);
    ck_assert_uint_eq(order_drain(&harness, true), 0);
    deadline = harness_now_ms() + HARNESS_DEADLINE_MS;
    while (gmb_page_alloc(pages.arena, 1, &page, UINT64_C(100000000)) != 0)
        ck_assert_msg(harness_now_ms() < deadline, "nothing is granted: %s", gmb_error_text());
    pages_check(&pages, 0, pages.count, 32);
    pages_close(&pages);
    harness_stop(&harness);
}
END_TEST

UNIT_MAIN("evict", evicted_pages_come_back_as_they_were,
    an_entitled_tenant_gets_the_memory_of_cold_pages, a_plan_goes_round_a_pinned_page,
    a_dry_run_changes_nothing, a_full_tier_drops_what_can_be_computed_again_and_keeps_the_rest,
    a_tenants_share_of_the_tier_is_kept, a_drained_device_is_empty_and_comes_back)
