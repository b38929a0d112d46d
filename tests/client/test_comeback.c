/*
 * What else a session has when its broker goes away: gangs, attachments, watches, subscriptions,
 * the status page, and what it was about to give back.
 */
#include <fcntl.h>
#include <poll.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/timerfd.h>

#include "base/clock.h"
#include "tests/client/comeback.h"
#include "tests/unit/unit.h"

#define PARTS 2

static struct script script;
static struct script_status status;

static void begin(enum gmb_offline offline)
{
    script_begin(&script);
    script.offline = offline;
    script.tokens = true;
    script_connect_status(&script, &status);
    ck_assert_int_eq(gmb_thread_start(script.session), 0);
}

static void finish(void)
{
    script_end(&script);
    script_status_end(&status);
}

/* ---- gangs ---- */

static gmb_lease *leases[PARTS];

static int call_gang(struct script *s, struct call *call)
{
    struct gmb_lease_params params[PARTS] = {0};

    for (unsigned i = 0; i < PARTS; i++)
        params[i] = (struct gmb_lease_params){.size = sizeof(params[i]),
            .bytes = (i + 1) * CHUNK,
            .max_bytes = 16 * CHUNK,
            .wait_ns = call->wait_ns};
    return gmb_lease_gang(s->session, params, PARTS, leases);
}

static void grant_part(uint64_t id, uint64_t lease, unsigned part)
{
    static struct grant grant;

    grant_fill(&grant, id, 0, part + 1, part + 1);
    grant.grant.lease = lease;
    broker_send(&script, &grant.message.base, part + 1);
}

static void wait_until_accessible(uint64_t bytes)
{
    for (unsigned i = 0; fake_gpu_accessible() != bytes; i++) {
        ck_assert_uint_lt(i, 10000);
        (void) usleep(1000);
    }
}

START_TEST(a_gang_that_broke_off_is_asked_for_again_from_the_start)
{
    struct call call = {.wait_ns = 60 * NSEC_PER_SEC};
    uint64_t id;

    begin(GMB_OFFLINE_WAIT);
    call_start(&script, &call, call_gang);
    id = broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_GANG_REQUEST);
    grant_part(id, LEASE_ID, 0);
    go_away(&script);
    /* One whole part had come: it is nobody's, and not named. */
    come_back_to(&script, 0, 0);
    ck_assert_uint_eq(broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_GANG_REQUEST), id);
    for (unsigned i = 0; i < PARTS; i++)
        grant_part(id, LEASE_ID + 10 + i, i);
    ck_assert_int_eq(call_join(&call), 0);
    wait_until_accessible(3 * CHUNK);
    finish();
}
END_TEST

START_TEST(a_gang_that_broke_off_fails_whole_unless_it_is_to_wait)
{
    struct call call = {.wait_ns = 60 * NSEC_PER_SEC};

    begin(GMB_OFFLINE_FAIL);
    call_start(&script, &call, call_gang);
    grant_part(broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_GANG_REQUEST), LEASE_ID, 0);
    go_away(&script);
    ck_assert_int_eq(call_join(&call), GMB_E_DISCONNECTED);
    ck_assert_uint_eq(fake_gpu_accessible(), 0);
    come_back_to(&script, 0, 0);
    broker_expect_silence(&script);
    finish();
}
END_TEST

/* ---- requests that are withdrawn ---- */

static atomic_int withdrawn_error;

static void note_withdrawn(void *user, gmb_lease *lease, int error)
{
    (void) user;
    ck_assert_ptr_null(lease);
    atomic_store(&withdrawn_error, error);
}

START_TEST(a_request_whose_cancel_went_with_the_connection_is_not_asked_for_again)
{
    const struct gmb_lease_params params = {
        .size = sizeof(params), .bytes = CHUNK, .wait_ns = GMB_WAIT_FOREVER};
    uint64_t id;

    begin(GMB_OFFLINE_WAIT);
    ck_assert_int_eq(gmb_lease_new_async(script.session, &params, note_withdrawn, NULL, &id), 0);
    ck_assert_uint_eq(broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_LEASE_REQUEST), id);
    ck_assert_int_eq(gmb_cancel(script.session, id), 0);
    (void) broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_CANCEL);
    go_away(&script);
    for (unsigned i = 0; atomic_load(&withdrawn_error) == 0; i++) {
        ck_assert_uint_lt(i, 10000);
        (void) usleep(1000);
    }
    ck_assert_int_eq(atomic_load(&withdrawn_error), GMB_E_CANCELLED);
    ck_assert_int_eq(gmb_cancel(script.session, id), GMB_E_NOT_FOUND);
    come_back_to(&script, 0, 0);
    broker_expect_silence(&script);
    finish();
}
END_TEST

/* ---- attachments ---- */

static int call_attach(struct script *s, struct call *call)
{
    struct gmb_attach_params params = {.size = sizeof(params), .name = "prefixes"};

    return gmb_arena_attach(s->session, &params, &call->arena);
}

START_TEST(an_attachment_in_flight_is_asked_for_again)
{
    Gmb__ClientMessage *message;
    struct call call = {0};

    begin(GMB_OFFLINE_WAIT);
    call_start(&script, &call, call_attach);
    (void) broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_ARENA_ATTACH);
    go_away(&script);
    come_back_to(&script, 0, 0);
    message = broker_expect(&script, GMB__CLIENT_MESSAGE__BODY_ARENA_ATTACH);
    ck_assert_str_eq(message->arena_attach->name, "prefixes");
    broker_error(&script, message->id, GMB_STATUS_NOT_FOUND, GMB_LIMIT_NONE, "no such arena");
    message_free(message);
    ck_assert_int_eq(call_join(&call), GMB_E_NOT_FOUND);
    finish();
}
END_TEST

/* ---- watches ---- */

static int watch_fd;
static uint64_t watch_id;

static int call_watch(struct script *s, struct call *call)
{
    struct gmb_watch_params params = {.size = sizeof(params), .level = 1};

    (void) call;
    return gmb_pressure_watch(s->session, &params, &watch_fd, &watch_id);
}

/* Answers a PressureWatch with a timer, as the broker does. */
static void watching(uint64_t id, uint64_t watch)
{
    Gmb__BrokerMessage message = GMB__BROKER_MESSAGE__INIT;
    Gmb__PressureWatching body = GMB__PRESSURE_WATCHING__INIT;
    struct fdset fds = FDSET_EMPTY;

    message.id = id;
    message.body_case = GMB__BROKER_MESSAGE__BODY_PRESSURE_WATCHING;
    message.pressure_watching = &body;
    body.watch = watch;
    ck_assert_int_eq(
        fdset_consume(&fds, timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK)), 0);
    ck_assert_int_eq(conn_send_consume(script.conn, &message.base, &fds), 0);
}

static void watch(uint64_t broker_id)
{
    struct call call = {0};

    call_start(&script, &call, call_watch);
    watching(broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_PRESSURE_WATCH), broker_id);
    ck_assert_int_eq(call_join(&call), 0);
}

START_TEST(a_watch_rings_a_last_time_when_the_broker_goes_away)
{
    struct pollfd fd = {.events = POLLIN};
    uint64_t before;

    begin(GMB_OFFLINE_FAIL);
    watch(5);
    fd.fd = watch_fd;
    ck_assert_int_eq(poll(&fd, 1, 0), 0);
    before = watch_id;
    go_away(&script);
    ck_assert_int_eq(poll(&fd, 1, 10000), 1);
    close_fd(&watch_fd);
    come_back_to(&script, 0, 0);
    /* The next broker counts anew; that the old watch has ended is known here. */
    watch(5);
    ck_assert_uint_ne(watch_id, before);
    ck_assert_int_eq(gmb_pressure_unwatch(script.session, before), GMB_E_NOT_FOUND);
    broker_expect_silence(&script);
    close_fd(&watch_fd);
    finish();
}
END_TEST

/* ---- subscriptions and the status page ---- */

static atomic_uint heard_steps, heard_times;
static atomic_ullong heard_advice;

static void hear_advice(void *user, const struct gmb_advice *advice)
{
    (void) user;
    atomic_store(&heard_steps, advice->step_count);
    atomic_store(&heard_advice, advice->id);
    atomic_fetch_add(&heard_times, 1);
}

static void advise(uint64_t id, double batch)
{
    Gmb__BrokerMessage message = GMB__BROKER_MESSAGE__INIT;
    Gmb__Advice body = GMB__ADVICE__INIT;
    Gmb__AdviceStep step = GMB__ADVICE_STEP__INIT, *steps = &step;

    step.action = GMB__DEGRADE_ACTION__DEGRADE_REDUCE_BATCH;
    step.factor = batch;
    body.advice = id;
    body.rung = 1;
    body.steps = &steps;
    body.n_steps = 1;
    message.body_case = GMB__BROKER_MESSAGE__BODY_ADVICE;
    message.advice = &body;
    broker_send(&script, &message.base, 0);
}

static void wait_heard(unsigned steps)
{
    for (unsigned i = 0; atomic_load(&heard_steps) != steps; i++) {
        ck_assert_uint_lt(i, 10000);
        (void) usleep(1000);
    }
}

static int call_subscribe(struct script *s, struct call *call)
{
    return gmb_pressure_subscribe(s->session, NULL, call->n > 0 ? hear_advice : NULL, NULL);
}

START_TEST(who_was_subscribed_is_subscribed_again)
{
    struct call call = {.n = 1};

    begin(GMB_OFFLINE_FAIL);
    call_start(&script, &call, call_subscribe);
    broker_done(&script, broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_PRESSURE_SUBSCRIBE));
    ck_assert_int_eq(call_join(&call), 0);
    go_away(&script);
    come_back_to(&script, 0, 0);
    broker_done(&script, broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_PRESSURE_SUBSCRIBE));
    /* Who ends it meanwhile isn't. */
    go_away(&script);
    call.n = 0;
    ck_assert_int_eq(call_subscribe(&script, &call), 0);
    come_back_to(&script, 0, 0);
    broker_expect_silence(&script);
    finish();
}
END_TEST

START_TEST(what_the_broker_before_asked_is_taken_back)
{
    struct call call = {.n = 1};

    begin(GMB_OFFLINE_FAIL);
    call_start(&script, &call, call_subscribe);
    broker_done(&script, broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_PRESSURE_SUBSCRIBE));
    ck_assert_int_eq(call_join(&call), 0);
    advise(7, 0.5);
    wait_heard(1);
    go_away(&script);
    come_back_to(&script, 0, 0);
    ck_assert_uint_eq(atomic_load(&heard_times), 1);
    broker_done(&script, broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_PRESSURE_SUBSCRIBE));
    wait_heard(0);
    ck_assert_uint_eq(atomic_load(&heard_advice), 0);
    advise(1, 0.5);
    wait_heard(1);
    ck_assert_uint_eq(atomic_load(&heard_advice), 1);
    ck_assert_uint_eq(atomic_load(&heard_times), 3);
    finish();
}
END_TEST

START_TEST(the_status_page_is_the_new_brokers)
{
    const struct status_copy first = {.used = 11}, second = {.used = 22};
    struct gmb_pressure pressure = {.size = sizeof(pressure)};
    struct script_status other;
    Gmb__ClientMessage *message;
    int fd;

    begin(GMB_OFFLINE_FAIL);
    status_publish(&status, STATUS_FLAG_LIVE, &first);
    ck_assert_int_eq(gmb_pressure_read(script.session, 0, &pressure), 0);
    ck_assert_uint_eq(pressure.used_bytes, 11);
    ck_assert_uint_eq(pressure.flags & GMB_PRESSURE_STALE, 0);
    go_away(&script);
    /* The last word of the one before, and said to be that. */
    ck_assert_int_eq(gmb_pressure_read(script.session, 0, &pressure), 0);
    ck_assert_uint_eq(pressure.used_bytes, 11);
    ck_assert_uint_ne(pressure.flags & GMB_PRESSURE_STALE, 0);
    fd = status_make(&other, 1, STATUS_SEALS);
    status_publish(&other, STATUS_FLAG_LIVE, &second);
    script.resumed = true;
    broker_welcome_consume(&script, hello_again(&script), fd);
    message = broker_expect(&script, GMB__CLIENT_MESSAGE__BODY_RESUME);
    resumed(&script, message->id, NULL, 0);
    message_free(message);
    wait_for_connection(&script, GMB_CONNECTION_READY);
    ck_assert_int_eq(gmb_pressure_read(script.session, 0, &pressure), 0);
    ck_assert_uint_eq(pressure.used_bytes, 22);
    ck_assert_uint_eq(pressure.flags & GMB_PRESSURE_STALE, 0);
    script_status_end(&other);
    finish();
}
END_TEST

/* ---- what was on its way back ---- */

START_TEST(what_is_given_back_means_nothing_to_a_broker_that_resumed_nothing)
{
    struct call call = {0};
    uint64_t id;

    begin(GMB_OFFLINE_FAIL);
    call.lease = script_lease(&script, 2);
    go_away(&script);
    /* It is released while the next one is being greeted, which may use the same numbers anew. */
    id = hello_again(&script);
    call_start(&script, &call, call_release);
    (void) usleep(
        20000); /* more often than not it stands in the queue then; both orders are right */
    script.resumed = false;
    broker_welcome(&script, id);
    ck_assert_int_eq(call_join(&call), 0);
    wait_for_connection(&script, GMB_CONNECTION_READY);
    broker_expect_silence(&script);
    finish();
}
END_TEST

UNIT_MAIN("client_comeback", a_gang_that_broke_off_is_asked_for_again_from_the_start,
    a_gang_that_broke_off_fails_whole_unless_it_is_to_wait,
    a_request_whose_cancel_went_with_the_connection_is_not_asked_for_again,
    an_attachment_in_flight_is_asked_for_again, a_watch_rings_a_last_time_when_the_broker_goes_away,
    who_was_subscribed_is_subscribed_again, what_the_broker_before_asked_is_taken_back,
    the_status_page_is_the_new_brokers,
    what_is_given_back_means_nothing_to_a_broker_that_resumed_nothing)
