/* Clients that ask about pressure what makes no sense, too much of it, or don't read: nobody else
 * notices. */
#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>

#include "base/error.h"
#include "base/limits.h"
#include "tests/integration/raw_pressure.h"
#include "tests/unit/unit.h"

#define CHUNK HARNESS_CHUNK
#define CROWD 1000

START_TEST(answers_that_make_no_sense_change_nothing)
{
    const Gmb__AdviceAnswer *answer;
    Gmb__ControlReply *reply;
    struct harness harness;
    uint64_t lease;
    struct raw raw;

    harness_start(&harness, PRESSURE_SETUP PRESSURE_LADDER);
    raw_connect(&raw, &harness);
    raw_expect_error(&raw, pressure_ack(&raw, 0, 1, 0, 0), GMB_STATUS_NOT_FOUND);
    raw_expect_error(&raw, pressure_ack(&raw, 1, 1, 0, 0), GMB_STATUS_NOT_FOUND);
    lease = raw_expect_lease(&raw, raw_lease(&raw, 40 * PRESSURE_MIB, CHUNK, 0), 20);
    raw_expect_error(&raw, pressure_ack(&raw, 2, 1, 0, 0), GMB_STATUS_NOT_FOUND);
    raw_expect_error(&raw, pressure_ack(&raw, UINT64_MAX, 1, 0, 0), GMB_STATUS_NOT_FOUND);
    raw_expect_error(&raw, pressure_ack(&raw, 1, 0, 0, 0), GMB_STATUS_INVALID);
    raw_expect_error(&raw, pressure_ack(&raw, 1, 3, 0, 0), GMB_STATUS_INVALID); /* not asked for */
    raw_expect_error(&raw, pressure_ack(&raw, 1, 7, 0, 0), GMB_STATUS_INVALID);
    raw_expect_error(&raw, pressure_ack(&raw, 1, -1, 0, 0), GMB_STATUS_INVALID);
    raw_expect_error(&raw, pressure_ack(&raw, 1, 1, 3, 0), GMB_STATUS_INVALID);
    raw_expect_error(&raw, pressure_ack(&raw, 1, 1, -1, 0), GMB_STATUS_INVALID);
    /* One client is one answer, however often it says it; what it claims can't overflow. */
    for (int i = 0; i < 2000; i++)
        raw_expect_done(&raw, pressure_ack(&raw, 1, 1, i % 3, UINT64_MAX));
    reply = pressure_page(&harness);
    answer = reply->pressure_page->tenants[0]->answers[0];
    ck_assert_uint_eq(answer->done + answer->partly + answer->refused, 1);
    ck_assert_uint_eq(answer->freed_bytes, UINT64_MAX);
    frame_message_free(&reply->base);
    raw_expect_done(&raw, raw_release(&raw, lease));
    raw_close(&raw);
    harness_stop(&harness);
}
END_TEST

START_TEST(watches_are_bounded_and_what_makes_no_sense_is_refused)
{
    struct harness harness;
    struct raw raw;
    uint64_t number;
    int fds[LIMIT_WATCHES_PER_CLIENT];

    harness_start(&harness, PRESSURE_SETUP);
    raw_connect(&raw, &harness);
    raw_expect_error(&raw, pressure_watch(&raw, 4, 0, 500000), GMB_STATUS_INVALID);
    raw_expect_error(&raw, pressure_watch(&raw, UINT32_MAX, 0, 500000), GMB_STATUS_INVALID);
    raw_expect_error(&raw, pressure_watch(&raw, 1, 0, 499999), GMB_STATUS_INVALID);
    raw_expect_error(&raw, pressure_watch(&raw, 1, 0, 10000001), GMB_STATUS_INVALID);
    raw_expect_error(&raw, pressure_watch(&raw, 0, 0, 500000), GMB_STATUS_INVALID);
    raw_expect_error(&raw, pressure_watch(&raw, 0, 500001, 500000), GMB_STATUS_INVALID);
    raw_expect_error(&raw, pressure_watch(&raw, 0, UINT64_MAX, UINT64_MAX), GMB_STATUS_INVALID);
    for (size_t i = 0; i < LIMIT_WATCHES_PER_CLIENT; i++)
        fds[i] = pressure_watching(&raw, pressure_watch(&raw, 1, 0, 500000), &number);
    for (int i = 0; i < 1000; i++)
        raw_expect_error(&raw, pressure_watch(&raw, 1, 0, 500000), GMB_STATUS_EXHAUSTED);
    raw_expect_done(&raw, pressure_unwatch(&raw, number));
    (void) close(fds[LIMIT_WATCHES_PER_CLIENT - 1]);
    for (int i = 0; i < 1000; i++) {
        int fd = pressure_watching(&raw, pressure_watch(&raw, 1, 0, 500000), &number);

        (void) close(fd);
        raw_expect_done(&raw, pressure_unwatch(&raw, number));
    }
    for (size_t i = 0; i + 1 < LIMIT_WATCHES_PER_CLIENT; i++)
        (void) close(fds[i]);
    /* The broker's ends go with the connection: harness_stop() counts them. */
    raw_close(&raw);
    harness_stop(&harness);
}
END_TEST

START_TEST(an_owner_of_a_watch_cannot_hold_the_broker_up_with_it)
{
    const uint64_t most = UINT64_MAX - 1;
    struct harness harness;
    struct raw raw, other;
    uint64_t number, lease;
    int fd;

    harness_start(&harness, PRESSURE_SETUP);
    raw_connect(&raw, &harness);
    raw_connect(&other, &harness);
    fd = pressure_watching(&raw, pressure_watch(&raw, 1, 0, 500000), &number);
    /* What would block whoever writes to an eventfd. */
    ck_assert_int_eq(fcntl(fd, F_SETFL, 0), 0);
    (void) !write(fd, &most, sizeof(most));
    lease = raw_expect_lease(&other, raw_lease(&other, 40 * PRESSURE_MIB, CHUNK, 0), 20);
    ck_assert(pressure_rings(fd, HARNESS_DEADLINE_MS));
    raw_expect_done(&other, raw_release(&other, lease));
    (void) close(fd);
    raw_close(&raw);
    raw_close(&other);
    harness_stop(&harness);
}
END_TEST

static void fd_limit_raise(void)
{
    struct rlimit limit;

    ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = limit.rlim_max;
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

START_TEST(a_thousand_listeners_half_of_them_stopped_cost_the_others_nothing)
{
    static struct raw crowd[CROWD];
    struct harness harness;
    struct raw holder;
    uint64_t lease;

    fd_limit_raise();
    harness_start(&harness, PRESSURE_SETUP PRESSURE_LADDER);
    for (size_t i = 0; i < CROWD; i++) {
        raw_connect(&crowd[i], &harness);
        fdset_close(&crowd[i].fds);
        raw_expect_done(&crowd[i], pressure_subscribe(&crowd[i], false));
    }
    /* Every other one stops to read, with its socket full of answers. */
    for (size_t i = 0; i < CROWD; i += 2) {
        for (int k = 0; k < 100; k++)
            (void) pressure_subscribe(&crowd[i], false);
    }
    raw_connect(&holder, &harness);
    for (int round = 0; round < 3; round++) {
        lease = raw_expect_lease(&holder, raw_lease(&holder, 40 * PRESSURE_MIB, CHUNK, 0), 20);
        for (size_t i = 1; i < CROWD; i += 2)
            pressure_await(&crowd[i], 3);
        raw_expect_done(&holder, raw_release(&holder, lease));
        for (size_t i = 1; i < CROWD; i += 2)
            pressure_await(&crowd[i], 0);
    }
    lease = raw_expect_lease(&holder, raw_lease(&holder, 36 * PRESSURE_MIB, CHUNK, 0), 18);
    for (size_t i = 1; i < CROWD; i += 2)
        pressure_await(&crowd[i], 2);
    /* Who reads again finds the latest state at the end, and was not dropped. */
    for (size_t i = 0; i < CROWD; i += 2)
        pressure_await(&crowd[i], 2);
    raw_expect_done(&holder, raw_release(&holder, lease));
    for (size_t i = 0; i < CROWD; i++)
        raw_close(&crowd[i]);
    raw_close(&holder);
    harness_stop(&harness);
}
END_TEST

START_TEST(events_of_one_state_come_at_most_every_tenth_of_a_second)
{
    struct harness harness;
    struct raw raw, holder;
    unsigned events = 0;
    uint64_t start, end;

    harness_start(&harness, PRESSURE_SETUP);
    raw_connect(&raw, &harness);
    raw_connect(&holder, &harness);
    raw_expect_done(&raw, pressure_subscribe(&raw, false));
    start = harness_now_ms();
    for (int i = 0; i < 200; i++) {
        uint64_t lease =
            raw_expect_lease(&holder, raw_lease(&holder, 40 * PRESSURE_MIB, CHUNK, 0), 20);

        raw_expect_done(&holder, raw_release(&holder, lease));
        /* Long enough for the level to fall, so that it rises again. */
        (void) poll(NULL, 0, 4);
    }
    raw_expect_done(&holder,
        raw_release(&holder,
            raw_expect_lease(&holder, raw_lease(&holder, 40 * PRESSURE_MIB, CHUNK, 0), 20)));
    end = harness_now_ms();
    for (;;) {
        Gmb__BrokerMessage *message;
        struct pollfd poll_fd = {.fd = conn_fd(raw.conn), .events = POLLIN};

        if (poll(&poll_fd, 1, 300) == 0)
            break;
        message = raw_receive(&raw);
        ck_assert_int_eq(message->body_case, GMB__BROKER_MESSAGE__BODY_PRESSURE);
        events++;
        end = harness_now_ms();
        frame_message_free(&message->base);
    }
    ck_assert_uint_ge(events, 2);
    ck_assert_uint_le(events, (end - start) / 100 + 2);
    raw_close(&raw);
    raw_close(&holder);
    harness_stop(&harness);
}
END_TEST

UNIT_MAIN("pressure_hostile", answers_that_make_no_sense_change_nothing,
    watches_are_bounded_and_what_makes_no_sense_is_refused,
    an_owner_of_a_watch_cannot_hold_the_broker_up_with_it,
    a_thousand_listeners_half_of_them_stopped_cost_the_others_nothing,
    events_of_one_state_come_at_most_every_tenth_of_a_second)
