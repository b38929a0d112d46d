/* Pages leave a device and come back, byte for byte, through a real mover on the simulated GPU. */
#include <check.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "tests/integration/orders.h"
#include "tests/integration/pages.h"
#include "tests/unit/unit.h"

#define PAGE (UINT64_C(64) << 10)
#define PER_CHUNK ((uint32_t) (HARNESS_CHUNK / PAGE))
#define MIB(n) ((uint64_t) (n) << 20)
#define BROKER                                                                                     \
    "[Broker]\nRecycleIdle=20ms\nOrphanGrace=200ms\nObserveInterval=50ms\nVerifyWindow=500ms\n"    \
    "HostTier=256M\nMoverIdle=200ms\n"

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

    if (geteuid() != 0)
        return;
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

UNIT_MAIN(
    "evict", evicted_pages_come_back_as_they_were, an_entitled_tenant_gets_the_memory_of_cold_pages)
