/*
 * A mover's context takes device memory, and with Reserve=0 it takes what others could have. What
 * one took is kept while it isn't there, and one that found none gets what comes back next.
 */
#include <check.h>
#include <signal.h>

#include "tests/integration/orders.h"
#include "tests/integration/pages.h"
#include "tests/unit/unit.h"

#define PAGE (UINT64_C(64) << 10)
#define PER_CHUNK ((uint32_t) (HARNESS_CHUNK / PAGE))
#define MIB(n) ((uint64_t) (n) << 20)
#define WAIT_NS UINT64_C(40000000000)
#define BROKER HARNESS_BROKER "HostTier=64M\nMoverIdle=1h\n" HARNESS_TENANT

static const char *const environment[] = {"GMB_SIM_CONTEXT_OVERHEAD=64M", NULL};
static struct harness harness;
static struct pages pages;

/* Another mover than `before` is there, and can copy. */
static void wait_mover(pid_t before)
{
    uint64_t deadline = harness_now_ms() + HARNESS_DEADLINE_MS;
    uint64_t evictions = pages_stats(&pages).evictions;
    pid_t pid = 0;

    while (harness_movers(&harness, &pid, 1) == 0 || pid == before ||
           pages_stats(&pages).evictions == evictions) {
        ck_assert_msg(harness_now_ms() < deadline, "no mover has come");
        (void) order_evict(&harness, "test", MIB(2));
        harness_breathe();
    }
}

/* Leases all that the driver has but `left` bytes. */
static uint64_t device_fill(struct raw *raw, uint64_t left)
{
    uint64_t bytes = (harness_free_bytes(&harness) - left) / HARNESS_CHUNK * HARNESS_CHUNK;
    uint64_t id = raw_lease(raw, bytes, HARNESS_CHUNK, WAIT_NS);

    return raw_expect_lease(raw, id, (uint32_t) (bytes / HARNESS_CHUNK));
}

/* Until not even a chunk is granted any more: all that is free is kept back. */
static void wait_held(struct raw *raw)
{
    uint64_t deadline = harness_now_ms() + HARNESS_DEADLINE_MS;

    for (;;) {
        uint64_t id = raw_lease(raw, HARNESS_CHUNK, HARNESS_CHUNK, 0);
        Gmb__BrokerMessage *message = raw_receive(raw);
        bool granted;

        ck_assert(message != NULL && message->id == id);
        granted = message->body_case == GMB__BROKER_MESSAGE__BODY_GRANT;
        if (granted)
            raw_expect_done(raw, raw_release(raw, message->grant->lease));
        frame_message_free(&message->base);
        if (!granted)
            return;
        ck_assert_msg(harness_now_ms() < deadline, "memory is granted still");
        harness_breathe();
    }
}

static void expect_waits(struct raw *raw, uint64_t id)
{
    raw_expect_done(raw, raw_cancel(raw, id));
    raw_expect_error(raw, id, GMB_STATUS_CANCELLED);
}

START_TEST(a_mover_that_died_on_a_full_device_comes_back)
{
    struct raw raw, other;
    uint64_t lease, waiting;
    pid_t mover;

    harness_start_with(&harness, BROKER, environment);
    pages_open(&pages, &harness, PAGE, HARNESS_CHUNK, MIB(64));
    pages_fill(&pages, 8 * PER_CHUNK);
    wait_mover(0);
    ck_assert_uint_eq(harness_movers(&harness, &mover, 1), 1);
    /* What was ordered last may be under way still. */
    ck_assert_int_ge(gmb_page_pin(pages.arena, pages.count, pages.pages), 0);
    ck_assert_int_eq(gmb_page_wait(pages.arena, pages.count, pages.pages, WAIT_NS), GMB_PIN_READY);
    raw_connect(&raw, &harness);
    raw_connect(&other, &harness);
    lease = device_fill(&raw, 0);
    ck_assert_uint_lt(harness_free_bytes(&harness), HARNESS_CHUNK);
    /* It would take just what the mover leaves. */
    waiting = raw_lease(&other, MIB(64), HARNESS_CHUNK, WAIT_NS);
    ck_assert_int_eq(kill(mover, SIGKILL), 0);
    ck_assert_int_eq(gmb_page_unpin(pages.arena, pages.count, pages.pages), 0);
    wait_mover(mover);
    expect_waits(&other, waiting);
    raw_expect_done(&raw, raw_release(&raw, lease));
    raw_close(&other);
    raw_close(&raw);
    pages_check(&pages, 0, pages.count, 16);
    pages_close(&pages);
    harness_stop(&harness);
}
END_TEST

START_TEST(a_mover_that_finds_no_memory_gets_what_comes_back_next)
{
    uint64_t deadline = harness_now_ms() + HARNESS_DEADLINE_MS, lease, waiting;
    struct raw raw, other;

    harness_start_with(&harness, BROKER, environment);
    pages_open(&pages, &harness, PAGE, HARNESS_CHUNK, MIB(64));
    raw_connect(&raw, &harness);
    raw_connect(&other, &harness);
    lease = device_fill(&raw, 6 * HARNESS_CHUNK); /* for two or three of the arena's */
    pages_fill(&pages, PER_CHUNK);
    while (!harness_logged(&harness, "no device memory for its context")) {
        ck_assert_uint_lt(harness_now_ms(), deadline);
        harness_breathe();
    }
    wait_held(&other);
    waiting = raw_lease(&other, MIB(64), HARNESS_CHUNK, WAIT_NS);
    /* Enough for either of them at a time. */
    raw_expect_done(&raw, raw_shrink(&raw, lease, (uint32_t) (MIB(840) / HARNESS_CHUNK)));
    wait_mover(0);
    expect_waits(&other, waiting);
    /* What isn't needed after all is everybody's again. */
    raw_expect_done(&raw, raw_release(&raw, lease));
    lease = raw_expect_lease(&other, raw_lease(&other, MIB(768), HARNESS_CHUNK, WAIT_NS),
        (uint32_t) (MIB(768) / HARNESS_CHUNK));
    raw_expect_done(&other, raw_release(&other, lease));
    raw_close(&other);
    raw_close(&raw);
    pages_check(&pages, 0, pages.count, 16);
    pages_close(&pages);
    harness_stop(&harness);
}
END_TEST

UNIT_MAIN("mover_room", a_mover_that_died_on_a_full_device_comes_back,
    a_mover_that_finds_no_memory_gets_what_comes_back_next)
