/* Requests over the real socket, at the limits. */
#include <signal.h>
#include <sys/wait.h>

#include "base/error.h"
#include "base/size.h"
#include "tests/integration/raw.h"
#include "tests/unit/unit.h"

START_TEST(a_lease_grows_shrinks_and_goes)
{
    Gmb__TenantDevice tenant;
    struct harness harness;
    struct raw raw;
    uint64_t lease;

    if (raw_slabs())
        return; /* a slab does neither: integration_slabs */
    harness_start(&harness, NULL);
    raw_connect(&raw, &harness);
    lease = raw_expect_lease(&raw, raw_lease(&raw, HARNESS_CHUNK + 1, HARNESS_CHUNK, 0), 2);
    (void) raw_expect_lease(&raw, raw_grow(&raw, lease, 3 * HARNESS_CHUNK), 5);
    raw_tenant(&harness, "test", &tenant);
    ck_assert_uint_eq(tenant.leased_bytes, 5 * HARNESS_CHUNK);
    ck_assert_uint_eq(tenant.peak_bytes, 5 * HARNESS_CHUNK);
    raw_expect_done(&raw, raw_shrink(&raw, lease, 1));
    raw_expect_done(&raw, raw_shrink(&raw, lease, 1));
    raw_tenant(&harness, "test", &tenant);
    ck_assert_uint_eq(tenant.leased_bytes, HARNESS_CHUNK);
    raw_expect_done(&raw, raw_release(&raw, lease));
    raw_expect_error(&raw, raw_release(&raw, lease), GMB_STATUS_NOT_FOUND);
    raw_close(&raw);
    harness_stop(&harness);
}
END_TEST

START_TEST(a_grant_of_a_whole_device_comes_in_order_and_whole)
{
    struct harness harness;
    struct raw raw;
    uint64_t id, next = 0;

    if (raw_slabs())
        return; /* it comes in one piece */
    harness_start(&harness, NULL);
    raw_connect(&raw, &harness);
    id = raw_lease(&raw, HARNESS_MEMORY, HARNESS_CHUNK, 0);
    while (next < HARNESS_MEMORY / HARNESS_CHUNK) {
        Gmb__BrokerMessage *message = raw_receive(&raw);

        ck_assert_ptr_nonnull(message);
        ck_assert_uint_eq(message->id, id);
        ck_assert_int_eq(message->body_case, GMB__BROKER_MESSAGE__BODY_GRANT);
        ck_assert_uint_eq(message->grant->first_chunk, next);
        ck_assert_uint_le(message->grant->n_chunks, LIMIT_FRAME_FDS);
        next += message->grant->n_chunks;
        frame_message_free(&message->base);
    }
    ck_assert_uint_eq(next, 512);
    ck_assert_uint_eq(harness_free_bytes(&harness), 0);
    raw_close(&raw);
    harness_kill(&harness);
    harness_restart(&harness);
    harness_stop(&harness);
}
END_TEST

START_TEST(memory_max_refuses_by_name_what_is_one_chunk_too_much)
{
    struct harness harness;
    struct raw raw;
    uint64_t lease;

    harness_start(&harness, HARNESS_BROKER "[Tenant test]\nUser=*\nMemoryMax=8M\n");
    raw_connect(&raw, &harness);
    lease = raw_expect_lease(&raw, raw_lease(&raw, 8 << 20, HARNESS_CHUNK, 0), 4);
    raw_expect_error(&raw, raw_grow(&raw, lease, 1),
        raw_slabs() ? GMB_STATUS_UNSUPPORTED : GMB_STATUS_OVER_LIMIT);
    raw_expect_error(&raw, raw_lease(&raw, 1, HARNESS_CHUNK, 0), GMB_STATUS_EXHAUSTED);
    ck_assert(harness_logged(&harness, "limit MemoryMax"));
    raw_expect_done(&raw, raw_release(&raw, lease));
    raw_close(&raw);
    harness_stop(&harness);
}
END_TEST

START_TEST(a_wait_times_out_is_cancelled_and_is_served)
{
    struct harness harness;
    struct raw holder, waiter;
    uint64_t lease, id, cancel, more;

    harness_start(&harness, NULL);
    raw_connect(&holder, &harness);
    raw_connect(&waiter, &harness);
    lease = raw_expect_lease(&holder, raw_lease(&holder, HARNESS_MEMORY, 1 << 28, 0), 4);
    raw_expect_error(
        &waiter, raw_lease(&waiter, HARNESS_CHUNK, HARNESS_CHUNK, 30000000), GMB_STATUS_TIMED_OUT);
    id = raw_lease(&waiter, HARNESS_CHUNK, HARNESS_CHUNK, UINT64_MAX);
    cancel = raw_cancel(&waiter, id);
    {
        /* The cancelled request and the cancel itself are both answered. */
        Gmb__BrokerMessage *message = raw_receive(&waiter);

        ck_assert_ptr_nonnull(message);
        ck_assert(message->id == id || message->id == cancel);
        frame_message_free(&message->base);
        message = raw_receive(&waiter);
        ck_assert_ptr_nonnull(message);
        ck_assert(message->id == id || message->id == cancel);
        frame_message_free(&message->base);
    }
    id = raw_lease(&waiter, HARNESS_CHUNK, HARNESS_CHUNK, UINT64_MAX);
    raw_expect_done(&holder, raw_release(&holder, lease));
    more = raw_expect_lease(&waiter, id, 1);
    raw_expect_done(&waiter, raw_release(&waiter, more));
    raw_close(&holder);
    raw_close(&waiter);
    harness_stop(&harness);
}
END_TEST

enum { RACERS = 8, NOBODY = 65534 };

/* Takes chunk after chunk until refused, says how many, and keeps them. */
static void race_child(const struct harness *harness, int go, int result)
{
    struct raw raw;
    uint32_t taken = 0;
    bool granted;
    char byte;

    raw_connect(&raw, harness);
    (void) !read(go, &byte, 1);
    do {
        uint64_t id = raw_lease(&raw, HARNESS_CHUNK, HARNESS_CHUNK, 0);
        Gmb__BrokerMessage *message = raw_receive(&raw);

        granted = message != NULL && message->id == id &&
                  message->body_case == GMB__BROKER_MESSAGE__BODY_GRANT;
        taken += granted;
        if (message != NULL)
            frame_message_free(&message->base);
    } while (granted);
    (void) !write(result, &taken, sizeof(taken));
    for (;;)
        (void) pause();
}

/* Chunks that all racers together got; every other one runs as NOBODY if that is possible. */
static uint32_t race(const struct harness *harness)
{
    int go[2], result[2];
    pid_t pids[RACERS];
    uint32_t total = 0;

    ck_assert_int_eq(pipe(go), 0);
    ck_assert_int_eq(pipe(result), 0);
    for (int i = 0; i < RACERS; i++) {
        pids[i] = fork();
        ck_assert_int_ge(pids[i], 0);
        if (pids[i] == 0) {
            (void) close(go[1]);
            if (geteuid() == 0 && i % 2 == 1 && setuid(NOBODY) < 0)
                _exit(1);
            race_child(harness, go[0], result[1]);
        }
    }
    (void) close(go[0]);
    (void) close(go[1]);
    for (int i = 0; i < RACERS; i++) {
        uint32_t taken = 0;

        ck_assert_int_eq(read(result[0], &taken, sizeof(taken)), sizeof(taken));
        total += taken;
    }
    (void) close(result[0]);
    (void) close(result[1]);
    for (int i = 0; i < RACERS; i++) {
        ck_assert_int_eq(kill(pids[i], SIGKILL), 0);
        ck_assert_int_eq(waitpid(pids[i], NULL, 0), pids[i]);
    }
    return total;
}

START_TEST(processes_of_one_tenant_share_one_limit)
{
    struct harness harness;

    harness_start(&harness, HARNESS_BROKER "[Tenant test]\nUser=*\nMemoryMax=128M\n");
    ck_assert_uint_eq(race(&harness), 64);
    harness_stop(&harness);
}
END_TEST

START_TEST(two_tenants_that_race_for_the_last_bytes_get_each_once)
{
    struct harness harness;

    /* Without root all racers are of the tenant `rest`, and the sum is the same. */
    harness_start(&harness, HARNESS_BROKER "[Tenant nobody]\nUser=65534\n[Tenant rest]\nUser=*\n");
    ck_assert_uint_eq(race(&harness), HARNESS_MEMORY / HARNESS_CHUNK);
    harness_stop(&harness);
}
END_TEST

START_TEST(two_hundred_clients_at_once_are_all_served)
{
    enum { CLIENTS = 200 };
    static struct raw raws[CLIENTS];
    static uint64_t ids[CLIENTS], leases[CLIENTS];
    struct harness harness;

    harness_start(&harness, NULL);
    for (int i = 0; i < CLIENTS; i++)
        raw_connect(&raws[i], &harness);
    for (int i = 0; i < CLIENTS; i++)
        ids[i] = raw_lease(&raws[i], 2 * HARNESS_CHUNK, HARNESS_CHUNK, UINT64_MAX);
    for (int i = 0; i < CLIENTS; i++)
        leases[i] = raw_expect_lease(&raws[i], ids[i], 2);
    for (int i = 0; i < CLIENTS; i++)
        raw_expect_done(&raws[i], raw_release(&raws[i], leases[i]));
    for (int i = 0; i < CLIENTS; i++)
        raw_close(&raws[i]);
    harness_stop(&harness);
}
END_TEST

UNIT_MAIN("leases", a_lease_grows_shrinks_and_goes,
    a_grant_of_a_whole_device_comes_in_order_and_whole,
    memory_max_refuses_by_name_what_is_one_chunk_too_much,
    a_wait_times_out_is_cancelled_and_is_served, processes_of_one_tenant_share_one_limit,
    two_tenants_that_race_for_the_last_bytes_get_each_once,
    two_hundred_clients_at_once_are_all_served)
