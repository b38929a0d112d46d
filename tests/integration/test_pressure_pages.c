/* Pressure of workers whose pages move: who ignores its advice is named when it gives, and waiting
 * for pages is stall. */
#include <poll.h>

#include "tests/integration/orders.h"
#include "tests/integration/pages.h"
#include "tests/integration/raw_pressure.h"
#include "tests/unit/unit.h"

#define PAGE (UINT64_C(64) << 10)
#define PER_CHUNK ((uint32_t) (HARNESS_CHUNK / PAGE))
#define MIB(n) ((uint64_t) (n) << 20)
#define SETUP                                                                                      \
    HARNESS_BROKER "HostTier=256M\nMoverIdle=200ms\nAdviceGrace=100ms\n"                           \
                   "[Tenant test]\nUser=*\nMemoryMax=40M\n"

START_TEST(what_is_taken_from_who_ignores_its_advice_is_logged_with_it)
{
    static struct pages pages;
    struct harness harness;
    uint64_t deadline = harness_now_ms() + HARNESS_DEADLINE_MS;

    harness_start(&harness, SETUP "DegradeLow=reduce-batch 0.5\n");
    pages_open(&pages, &harness, PAGE, HARNESS_CHUNK, MIB(40));
    pages_fill(&pages, 18 * PER_CHUNK); /* nine tenths, and nobody listens */
    while (!pressure_ignored(&harness)) {
        ck_assert_uint_lt(harness_now_ms(), deadline);
        harness_breathe();
    }
    (void) order_evict(&harness, "test", MIB(4));
    pages_wait_evicted(&pages, PER_CHUNK);
    ck_assert(harness_logged(&harness, "it was asked to degrade"));
    ck_assert(harness_logged(&harness, "(advice 1) and nobody answered"));
    pages_close(&pages);
    harness_stop(&harness);
}
END_TEST

/* What the tenant's clients waited, in µs. */
static uint64_t stalled_us(const struct harness *harness)
{
    Gmb__ControlReply *reply = pressure_page(harness);
    uint64_t total_us = reply->pressure_page->tenants[0]->devices[0]->some->total_us;

    frame_message_free(&reply->base);
    return total_us;
}

START_TEST(waiting_for_pages_to_come_back_is_stall)
{
    static struct pages pages;
    struct harness harness;
    uint64_t before, after, deadline = harness_now_ms() + HARNESS_DEADLINE_MS;

    harness_start(&harness, SETUP);
    pages_open(&pages, &harness, PAGE, HARNESS_CHUNK, MIB(32));
    pages_fill(&pages, 8 * PER_CHUNK);
    (void) order_evict(&harness, "test", MIB(16));
    pages_wait_evicted(&pages, 7 * PER_CHUNK);
    before = stalled_us(&harness);
    pages_check(&pages, 0, pages.count, pages.count);
    after = stalled_us(&harness);
    ck_assert_uint_gt(after, before);
    /* Once they are there nobody waits any more: it grows no more, though the broker has looked at
     * the device meanwhile, and brought everything up to date. */
    do {
        ck_assert_uint_lt(harness_now_ms(), deadline);
        before = stalled_us(&harness);
        (void) poll(NULL, 0, 200);
    } while (stalled_us(&harness) != before);
    pages_close(&pages);
    harness_stop(&harness);
}
END_TEST

UNIT_MAIN("pressure_pages", what_is_taken_from_who_ignores_its_advice_is_logged_with_it,
    waiting_for_pages_to_come_back_is_stall)
