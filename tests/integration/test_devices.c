/* Two devices: each has its arenas, its mover and its reclaim; one is nothing to the other. */
#include <check.h>
#include <signal.h>

#include "tests/integration/orders.h"
#include "tests/integration/pages.h"
#include "tests/unit/unit.h"

#define PAGE (UINT64_C(64) << 10)
#define PER_CHUNK ((uint32_t) (HARNESS_CHUNK / PAGE))
#define MIB(n) ((uint64_t) (n) << 20)
#define COUNT (8 * PER_CHUNK)
#define BROKER HARNESS_BROKER "HostTier=64M\nMoverIdle=200ms\n" HARNESS_TENANT

static struct harness harness;
static struct pages workers[2];

static const char *uuid_of(size_t device)
{
    return harness.gpu->devices[device]->uuid;
}

static void start(void)
{
    static const char *const environment[] = {"GMB_SIM_DEVICES=2", NULL};

    harness_start_with(&harness, BROKER, environment);
    ck_assert_uint_eq(harness.gpu->device_count, 2);
    for (size_t i = 0; i < 2; i++) {
        const struct gmb_arena_params params = {
            .device = uuid_of(i),
            .page_bytes = PAGE,
            .chunk_bytes = HARNESS_CHUNK,
            .max_bytes = MIB(64),
        };

        pages_open_with(&workers[i], &harness, &params);
        pages_fill(&workers[i], COUNT);
    }
}

static void check(size_t device)
{
    pages_use(&workers[device]);
    pages_check(&workers[device], 0, COUNT, 16);
}

static void stop(void)
{
    for (size_t i = 0; i < 2; i++)
        pages_close(&workers[i]);
    harness_stop(&harness);
}

/* Takes everything from one device's worker. */
static void evict(size_t device)
{
    uint64_t deadline = harness_now_ms() + HARNESS_DEADLINE_MS;

    while (pages_stats(&workers[device]).evicted_pages < COUNT) {
        ck_assert_uint_lt(harness_now_ms(), deadline);
        (void) order_evict_on(&harness, uuid_of(device), "test", MIB(64));
        harness_breathe();
    }
}

static void wait_movers(pid_t ret[2], size_t count)
{
    uint64_t deadline = harness_now_ms() + HARNESS_DEADLINE_MS;

    while (harness_movers(&harness, ret, 2) != count) {
        ck_assert_msg(harness_now_ms() < deadline, "%zu movers run, not %zu",
            harness_movers(&harness, ret, 2), count);
        harness_breathe();
    }
}

START_TEST(each_device_has_a_mover_and_reclaim_on_one_leaves_the_other_alone)
{
    struct gmb_arena_stats before, after;
    pid_t pids[2];

    start();
    wait_movers(pids, 2);
    before = pages_stats(&workers[1]);
    evict(0);
    pages_wait_mapped(&workers[0], MIB(4));
    after = pages_stats(&workers[1]);
    ck_assert_uint_eq(after.evictions, 0);
    ck_assert_uint_ge(after.mapped_bytes, before.mapped_bytes);
    check(1);
    check(0);
    ck_assert_uint_eq(pages_stats(&workers[1]).restores, 0);
    evict(1);
    ck_assert_uint_eq(pages_stats(&workers[0]).evicted_pages, 0);
    check(1);
    stop();
}
END_TEST

START_TEST(a_mover_that_dies_costs_the_other_device_nothing)
{
    pid_t pids[2], again[2];

    start();
    wait_movers(pids, 2);
    ck_assert_int_eq(kill(pids[0], SIGKILL), 0);
    for (size_t i = 0; i < 2; i++) {
        evict(i);
        check(i);
    }
    wait_movers(again, 2);
    /* The one that was left alone is the same still, and the other is a new one. */
    ck_assert(again[0] == pids[1] || again[1] == pids[1]);
    ck_assert(again[0] != pids[0] && again[1] != pids[0]);
    stop();
}
END_TEST

START_TEST(memory_of_one_device_is_not_given_for_the_other)
{
    uint64_t id, lease;
    struct raw raw;

    start();
    raw_connect(&raw, &harness);
    /* raw_lease() asks for the first device; nearly all of it has to come from there. */
    id = raw_lease(&raw, HARNESS_MEMORY - MIB(4), HARNESS_CHUNK, UINT64_C(20000000000));
    lease = raw_expect_lease(&raw, id, (uint32_t) ((HARNESS_MEMORY - MIB(4)) / HARNESS_CHUNK));
    ck_assert_uint_ge(pages_stats(&workers[0]).evictions, COUNT - 2 * PER_CHUNK);
    ck_assert_uint_eq(pages_stats(&workers[1]).evictions, 0);
    check(1);
    raw_expect_done(&raw, raw_release(&raw, lease));
    check(0);
    raw_close(&raw);
    stop();
}
END_TEST

UNIT_MAIN("devices", each_device_has_a_mover_and_reclaim_on_one_leaves_the_other_alone,
    a_mover_that_dies_costs_the_other_device_nothing,
    memory_of_one_device_is_not_given_for_the_other)
