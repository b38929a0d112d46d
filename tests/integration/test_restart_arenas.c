/*
 * Arenas whose broker is killed without a warning, at rest and while pages move: its successor goes
 * on with them, and every page has the bytes that it had.
 */
#include <check.h>
#include <signal.h>

#include "tests/integration/orders.h"
#include "tests/integration/pages.h"
#include "tests/integration/raw.h"
#include "tests/unit/unit.h"

#define PAGE (UINT64_C(64) << 10)
#define PER_CHUNK ((uint32_t) (HARNESS_CHUNK / PAGE))
#define MIB(n) ((uint64_t) (n) << 20)
#define BROKER HARNESS_BROKER "HostTier=256M\nMoverIdle=200ms\n"
#define CHUNKS 16u
#define SECOND "GPU-676d6274-696d-4000-8000-000000000001"
/* Of a kill while pages move; each comes after another number of them. */
#define KILLS 8

static void succeed(struct harness *harness, const struct pages *pages)
{
    harness_succeed(harness, SIGKILL);
    pages_wait_connected(pages);
}

START_TEST(evicted_pages_outlive_the_broker)
{
    static struct pages pages;
    struct harness harness;
    Gmb__TenantDevice tenant;

    harness_start_kept(&harness, BROKER HARNESS_TENANT, NULL);
    pages_open(&pages, &harness, PAGE, HARNESS_CHUNK, MIB(64));
    pages_fill(&pages, CHUNKS * PER_CHUNK);
    for (unsigned i = 0; i < 3; i++) {
        uint64_t evicted;

        (void) order_evict(&harness, "test", MIB(16));
        pages_wait_evicted(&pages, 7 * PER_CHUNK);
        pages_wait_mapped(&pages, MIB(20));
        evicted = pages_stats(&pages).evicted_pages;
        succeed(&harness, &pages);
        /* As many lie in the tier as before, and the broker knows it. */
        raw_tenant(&harness, "test", &tenant);
        ck_assert_uint_eq(tenant.evicted_bytes, evicted * PAGE);
        ck_assert_uint_eq(pages_stats(&pages).evicted_pages, evicted);
        pages_check(&pages, 0, pages.count, pages.count);
        ck_assert_uint_eq(pages_stats(&pages).evicted_pages, 0);
    }
    pages_fill(&pages, 4 * PER_CHUNK);
    pages_check(&pages, 0, pages.count, 7);
    pages_close(&pages);
    harness_stop(&harness);
}
END_TEST

/* Kills the broker once so many pages more have been moved, as the table counts them. */
static void kill_after(struct harness *harness, const struct pages *pages, bool evictions,
    uint64_t before, uint64_t count)
{
    uint64_t deadline = harness_now_ms() + HARNESS_DEADLINE_MS, now;

    do {
        struct gmb_arena_stats stats = pages_stats(pages);

        now = evictions ? stats.evictions : stats.restores;
    } while (now < before + count && harness_now_ms() < deadline);
    ck_assert_uint_ge(now, before + count);
    succeed(harness, pages);
}

START_TEST(a_broker_that_is_killed_while_pages_leave_loses_none)
{
    static struct pages pages;
    struct harness harness;

    harness_start_kept(&harness, BROKER HARNESS_TENANT, NULL);
    pages_open(&pages, &harness, PAGE, HARNESS_CHUNK, MIB(64));
    pages_fill(&pages, CHUNKS * PER_CHUNK);
    for (uint64_t i = 0; i < KILLS; i++) {
        uint64_t before = pages_stats(&pages).evictions;

        (void) order_evict(&harness, "test", MIB(24));
        kill_after(&harness, &pages, true, before, 1 + i * PER_CHUNK / 2);
        pages_check(&pages, 0, pages.count, 16);
    }
    pages_close(&pages);
    harness_stop(&harness);
}
END_TEST

START_TEST(a_broker_that_is_killed_while_pages_come_back_loses_none)
{
    static struct pages pages;
    struct harness harness;

    harness_start_kept(&harness, BROKER HARNESS_TENANT, NULL);
    pages_open(&pages, &harness, PAGE, HARNESS_CHUNK, MIB(64));
    pages_fill(&pages, CHUNKS * PER_CHUNK);
    for (uint64_t i = 0; i < KILLS; i++) {
        uint64_t before;

        (void) order_evict(&harness, "test", MIB(64));
        pages_wait_evicted(&pages, (CHUNKS - 2) * PER_CHUNK);
        before = pages_stats(&pages).restores;
        ck_assert_int_eq(gmb_page_pin(pages.arena, pages.count, pages.pages), GMB_PIN_WAITING);
        kill_after(&harness, &pages, false, before, 1 + i * PER_CHUNK / 2);
        ck_assert_int_eq(gmb_page_wait(pages.arena, pages.count, pages.pages,
                             HARNESS_DEADLINE_MS * UINT64_C(1000000)),
            GMB_PIN_READY);
        ck_assert_int_eq(gmb_page_unpin(pages.arena, pages.count, pages.pages), 0);
        pages_check(&pages, 0, pages.count, pages.count);
    }
    pages_close(&pages);
    harness_stop(&harness);
}
END_TEST

START_TEST(pages_are_allocated_pinned_and_freed_while_there_is_no_broker)
{
    static struct pages pages;
    uint32_t fresh[PER_CHUNK / 4];
    struct harness harness;

    harness_start_kept(&harness, BROKER HARNESS_TENANT, NULL);
    pages_open(&pages, &harness, PAGE, HARNESS_CHUNK, MIB(64));
    pages_fill(&pages, PER_CHUNK / 2); /* of a chunk that is here whole */
    ck_assert_int_eq(kill(harness.keeper, SIGSTOP), 0);
    wait_until(harness_process_state(harness.keeper) == 'T');
    ck_assert_int_eq(kill(harness.pid, SIGKILL), 0);
    wait_until(gmb_connection(pages.session) == GMB_CONNECTION_AWAY);
    for (unsigned i = 0; i < 3; i++) {
        ck_assert_int_eq(gmb_page_alloc(pages.arena, ARRAY_SIZE(fresh), fresh, GMB_WAIT_NONE), 0);
        ck_assert_int_eq(gmb_page_pin(pages.arena, ARRAY_SIZE(fresh), fresh), GMB_PIN_READY);
        pages_check(&pages, 0, pages.count, 8);
        ck_assert_int_eq(gmb_page_unpin(pages.arena, ARRAY_SIZE(fresh), fresh), 0);
        ck_assert_int_eq(gmb_page_unref(pages.arena, ARRAY_SIZE(fresh), fresh), 0);
    }
    ck_assert_uint_eq(pages_stats(&pages).used_pages, PER_CHUNK / 2);
    ck_assert_int_eq(gmb_connection(pages.session), GMB_CONNECTION_AWAY);
    ck_assert_int_eq(kill(harness.keeper, SIGCONT), 0);
    harness_succeed(&harness, 0);
    pages_wait_connected(&pages);
    pages_fill(&pages, 4 * PER_CHUNK);
    pages_check(&pages, 0, pages.count, 7);
    pages_close(&pages);
    harness_stop(&harness);
}
END_TEST

START_TEST(holders_of_a_shared_arena_go_on_with_it)
{
    static struct pages pages, other;
    struct harness harness;

    harness_start_kept(&harness, BROKER HARNESS_TENANT, NULL);
    pages_share(&pages, &harness, PAGE, HARNESS_CHUNK, MIB(64), "kv");
    pages_attach(&other, &harness, "kv");
    pages_use(&pages);
    pages_fill(&pages, CHUNKS * PER_CHUNK);
    pages_use(&other);
    pages_fill(&other, 2 * PER_CHUNK);
    (void) order_evict(&harness, "test", MIB(16));
    pages_wait_evicted(&pages, 7 * PER_CHUNK);
    succeed(&harness, &pages);
    pages_wait_connected(&other);
    pages_use(&pages);
    pages_check(&pages, 0, pages.count, 16);
    pages_use(&other);
    pages_check(&other, 0, other.count, 16);
    pages_fill(&other, 2 * PER_CHUNK);
    /* It is found by its name, too. */
    pages_close(&other);
    pages_attach(&other, &harness, "kv");
    pages_fill(&other, PER_CHUNK);
    pages_check(&other, 0, other.count, 16);
    pages_close(&other);
    pages_use(&pages);
    pages_check(&pages, 0, pages.count, 16);
    pages_close(&pages);
    harness_stop(&harness);
}
END_TEST

START_TEST(an_arena_that_is_given_up_leaves_nothing_in_the_store)
{
    static struct pages pages;
    struct harness harness;

    harness_start_kept(&harness, BROKER HARNESS_TENANT, NULL);
    for (unsigned i = 0; i < 3; i++) {
        pages_open(&pages, &harness, PAGE, HARNESS_CHUNK, MIB(64));
        pages_fill(&pages, 4 * PER_CHUNK);
        (void) order_evict(&harness, "test", MIB(64));
        pages_wait_evicted(&pages, 3 * PER_CHUNK);
        succeed(&harness, &pages);
        pages_close(&pages);
        harness_settle(&harness);
    }
    harness_stop(&harness);
}
END_TEST

static gmb_arena *arena_on(const struct pages *pages, const char *device)
{
    const struct gmb_arena_params params = {
        .size = sizeof(params),
        .device = device,
        .page_bytes = PAGE,
        .max_bytes = MIB(8),
        .chunk_bytes = HARNESS_CHUNK,
        .label = "other",
    };
    gmb_arena *arena;

    ck_assert_int_eq(gmb_arena_new(pages->session, &params, &arena), 0);
    return arena;
}

/* The first device's thread is busy, and takes the arena's names back when the second one's has put
 * there those of the next arena, whose lease has its slot. */
START_TEST(an_arena_in_the_place_of_one_on_another_device_is_kept)
{
    static const char *const environment[] = {"GMB_SIM_DEVICES=2", NULL};
    static struct pages pages;
    struct harness harness;
    gmb_arena *arena;
    struct raw raw;
    uint64_t lease;

    harness_start_kept(&harness, BROKER HARNESS_TENANT, environment);
    raw_connect(&raw, &harness);
    pages_open(&pages, &harness, PAGE, HARNESS_CHUNK, MIB(8));
    arena = arena_on(&pages, NULL);
    lease = raw_lease(&raw, 100 * HARNESS_CHUNK, HARNESS_CHUNK, 0);
    ck_assert_int_eq(gmb_arena_free(arena), 0);
    arena = arena_on(&pages, SECOND);
    lease = raw_expect_lease(&raw, lease, 100);
    raw_expect_done(&raw, raw_release(&raw, lease));
    raw_close(&raw);
    succeed(&harness, &pages);
    ck_assert(!harness_logged(&harness, "can't be gone on with"));
    ck_assert_int_eq(gmb_arena_free(arena), 0);
    pages_close(&pages);
    harness_stop(&harness);
}
END_TEST

UNIT_MAIN("restart_arenas", evicted_pages_outlive_the_broker,
    a_broker_that_is_killed_while_pages_leave_loses_none,
    a_broker_that_is_killed_while_pages_come_back_loses_none,
    pages_are_allocated_pinned_and_freed_while_there_is_no_broker,
    holders_of_a_shared_arena_go_on_with_it, an_arena_that_is_given_up_leaves_nothing_in_the_store,
    an_arena_in_the_place_of_one_on_another_device_is_kept)
