/* SIGTERM: clients are told, what was begun is finished, in bounded time; a second one cuts it. */
#include <signal.h>
#include <sys/wait.h>

#include "daemon/ending.h"
#include "tests/integration/raw.h"
#include "tests/unit/unit.h"

/* Chunks one by one, or the one slab. */
#define SLOW_CREATE "GMB_SIM_LATENCY=cuMemCreate=100ms,cuMemAlloc_v2=3s"

static void term(const struct harness *harness)
{
    ck_assert_int_eq(kill(harness->pid, SIGTERM), 0);
}

static void expect_status_0(struct harness *harness)
{
    int status;

    ck_assert_int_eq(waitpid(harness->pid, &status, 0), harness->pid);
    ck_assert_int_eq(status, 0);
}

/* The next message; it must be the one that says that the broker ends. */
static void expect_told(struct raw *raw)
{
    Gmb__BrokerMessage *message = raw_receive(raw);

    ck_assert_ptr_nonnull(message);
    ck_assert_int_eq(message->body_case, GMB__BROKER_MESSAGE__BODY_ENDING);
    ck_assert_uint_eq(message->id, 0);
    ck_assert_uint_eq(message->ending->deadline_ns, UINT64_C(5000000000));
    frame_message_free(&message->base);
}

/* The driver is at work on the request: nothing of it is answered, and one chunk was begun. */
static void wait_for_creating(const struct harness *harness)
{
    Gmb__TenantDevice use = {0};
    uint64_t deadline = harness_now_ms() + 30000;

    while (use.used_bytes == 0) {
        ck_assert_uint_lt(harness_now_ms(), deadline);
        raw_tenant(harness, "test", &use);
        harness_breathe();
    }
}

START_TEST(clients_are_told_before_the_broker_ends)
{
    struct harness harness;
    struct raw greeted, silent;

    harness_start(&harness, NULL);
    raw_connect(&greeted, &harness);
    raw_dial(&silent, &harness);
    term(&harness);
    expect_told(&greeted);
    ck_assert_ptr_null(raw_receive(&greeted));
    /* Who has not said Hello is told nothing: no message may come before Welcome. */
    ck_assert_ptr_null(raw_receive(&silent));
    expect_status_0(&harness);
    raw_close(&greeted);
    raw_close(&silent);
    harness_restart(&harness);
    harness_stop(&harness);
}
END_TEST

START_TEST(what_was_begun_is_finished)
{
    struct harness harness;
    struct raw raw;
    uint64_t id;

    harness_start_with(&harness, NULL, (const char *const[]){SLOW_CREATE, NULL});
    raw_connect(&raw, &harness);
    id = raw_lease(&raw, 4 * HARNESS_CHUNK, HARNESS_CHUNK, UINT64_MAX);
    wait_for_creating(&harness);
    term(&harness);
    expect_told(&raw);
    (void) raw_expect_lease(&raw, id, 4);
    ck_assert_ptr_null(raw_receive(&raw));
    expect_status_0(&harness);
    raw_close(&raw);
    harness_restart(&harness);
    harness_stop(&harness);
}
END_TEST

START_TEST(a_second_term_does_not_wait_for_that)
{
    struct harness harness;
    struct raw raw;

    harness_start_with(&harness, NULL, (const char *const[]){SLOW_CREATE, NULL});
    raw_connect(&raw, &harness);
    /* 3.2 s of driver calls, one after another. */
    (void) raw_lease(&raw, 32 * HARNESS_CHUNK, HARNESS_CHUNK, UINT64_MAX);
    wait_for_creating(&harness);
    term(&harness);
    expect_told(&raw);
    term(&harness);
    ck_assert_ptr_null(raw_receive(&raw)); /* no grant */
    expect_status_0(&harness);
    ck_assert(!harness_logged(&harness, "ending without having finished"));
    raw_close(&raw);
    harness_restart(&harness);
    harness_stop(&harness);
}
END_TEST

START_TEST(a_request_that_waits_for_memory_holds_up_nobody)
{
    struct harness harness;
    struct raw raw;

    harness_start(&harness, NULL);
    raw_connect(&raw, &harness);
    (void) raw_expect_lease(&raw, raw_lease(&raw, HARNESS_MEMORY, 1 << 26, 0), 16);
    (void) raw_lease(&raw, 1 << 26, 1 << 26, UINT64_MAX);
    term(&harness);
    expect_told(&raw);
    ck_assert_ptr_null(raw_receive(&raw));
    expect_status_0(&harness);
    ck_assert(!harness_logged(&harness, "ending without having finished"));
    raw_close(&raw);
    harness_restart(&harness);
    harness_stop(&harness);
}
END_TEST

START_TEST(driver_calls_that_take_too_long_are_given_up)
{
    struct harness harness;
    struct raw raw;
    uint64_t began;

    if (raw_slabs())
        return; /* there is one call where these are sixteen */
    harness_start_with(
        &harness, NULL, (const char *const[]){"GMB_SIM_LATENCY=cuMemCreate=2s", NULL});
    raw_connect(&raw, &harness);
    (void) raw_lease(&raw, 16 * HARNESS_CHUNK, HARNESS_CHUNK, UINT64_MAX);
    wait_for_creating(&harness);
    began = harness_now_ms();
    term(&harness);
    expect_told(&raw);
    ck_assert_ptr_null(raw_receive(&raw));
    ck_assert_uint_ge(harness_now_ms() - began, ENDING_MS);
    expect_status_0(&harness);
    ck_assert(harness_logged(&harness, "ending without having finished: driver calls"));
    raw_close(&raw);
    harness_restart(&harness);
    harness_stop(&harness);
}
END_TEST

UNIT_MAIN("ending", clients_are_told_before_the_broker_ends, what_was_begun_is_finished,
    a_second_term_does_not_wait_for_that, a_request_that_waits_for_memory_holds_up_nobody,
    driver_calls_that_take_too_long_are_given_up)
