/* A thousand clients at once, whose broker is killed: all of them come back to the next one. */
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>

#include "tests/integration/raw.h"
#include "tests/unit/unit.h"

#define CLIENTS 1000u
#define CHUNK HARNESS_CHUNK
/* Sockets here; sockets, pidfds and status pages there, which has our limit. */
#define FDS 8192u
#define KILLS 2

static struct raw crowd[CLIENTS];
static uint64_t leases[CLIENTS]; /* 0: it holds nothing */

static void fds_get(void)
{
    struct rlimit limit;

    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    if (limit.rlim_max < FDS)
        unit_skip("%u open files are needed, RLIMIT_NOFILE allows %llu", FDS,
            (unsigned long long) limit.rlim_max);
    limit.rlim_cur = limit.rlim_cur < FDS ? FDS : limit.rlim_cur;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static void crowd_expect(const struct harness *harness)
{
    Gmb__ControlReply *reply = raw_status(harness);

    ck_assert_uint_eq(reply->status->clients, CLIENTS);
    ck_assert_uint_eq(reply->status->leases, CLIENTS / 2);
    ck_assert_uint_eq(reply->status->devices[0]->leased_bytes, CLIENTS / 2 * CHUNK);
    ck_assert_str_eq(reply->status->degraded, "");
    frame_message_free(&reply->base);
    raw_expect_accounts(harness);
}

static void crowd_comes_back(const struct harness *harness)
{
    uint64_t deadline = harness_now_ms() + HARNESS_DEADLINE_MS;

    /* All have knocked before anybody listens to an answer. */
    for (unsigned i = 0; i < CLIENTS; i++)
        raw_knock(&crowd[i], harness);
    for (unsigned i = 0; i < CLIENTS; i++) {
        ck_assert(raw_welcomed(&crowd[i]));
        if (leases[i] != 0)
            ck_assert_uint_eq(raw_resume_one(&crowd[i], leases[i], 1), 0);
        else
            ck_assert_uint_eq(raw_resume(&crowd[i], NULL, 0, true), 0);
    }
    ck_assert_uint_lt(harness_now_ms(), deadline);
}

START_TEST(a_thousand_clients_come_back)
{
    static const char *const environment[] = {"GMB_SIM_MEMORY=4G", "GMB_SIM_FILL=none", NULL};
    struct harness harness;

    fds_get();
    harness_start_kept(&harness, NULL, environment);
    for (unsigned i = 0; i < CLIENTS; i++) {
        raw_connect(&crowd[i], &harness);
        if (i % 2 == 0)
            leases[i] = raw_expect_lease(&crowd[i], raw_lease(&crowd[i], CHUNK, CHUNK, 0), 1);
    }
    crowd_expect(&harness);
    for (unsigned i = 0; i < KILLS; i++) {
        harness_succeed(&harness, SIGKILL);
        crowd_expect(&harness);
        crowd_comes_back(&harness);
        crowd_expect(&harness);
    }
    for (unsigned i = 0; i < CLIENTS; i++) {
        if (leases[i] != 0)
            raw_expect_done(&crowd[i], raw_release(&crowd[i], leases[i]));
        raw_close(&crowd[i]);
    }
    harness_stop(&harness);
}
END_TEST

UNIT_MAIN("crowd", a_thousand_clients_come_back)
