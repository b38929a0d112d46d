/* Requests with callbacks, cancelling, late answers, and a broker that falls silent. */
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "tests/client/script.h"
#include "tests/unit/unit.h"

static struct script script;

/* What callbacks were told, in order. */
static struct {
    int count;
    intptr_t user[8];
    gmb_lease *lease[8];
    int error[8];
    char text[8][300];
} heard;

static void note(void *user, gmb_lease *lease, int error)
{
    if (heard.count >= 8) {
        heard.count++;
        return;
    }
    heard.user[heard.count] = (intptr_t) user;
    heard.lease[heard.count] = lease;
    heard.error[heard.count] = error;
    (void) snprintf(heard.text[heard.count], 300, "%s", error != 0 ? gmb_error_text() : "");
    heard.count++;
}

static uint64_t lease_ask(intptr_t user, uint32_t chunks)
{
    struct gmb_lease_params params = {
        .size = sizeof(params), .bytes = chunks * CHUNK, .max_bytes = 16 * CHUNK};
    uint64_t request = 0, id;

    ck_assert_int_eq(
        gmb_lease_new_async(script.session, &params, note, (void *) user, &request), 0);
    id = broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_LEASE_REQUEST);
    ck_assert_uint_eq(id, request);
    return id;
}

static void begin(void)
{
    memset(&heard, 0, sizeof(heard));
    script_begin(&script);
    script_connect(&script);
}

static bool readable(void)
{
    struct pollfd poll_fd = {.fd = gmb_fd(script.session), .events = POLLIN};

    return poll(&poll_fd, 1, 0) == 1;
}

START_TEST(callbacks_run_in_the_order_of_the_answers)
{
    uint64_t first, second;

    begin();
    first = lease_ask(1, 1);
    second = lease_ask(2, 2);
    ck_assert(!readable());
    ck_assert_int_eq(gmb_dispatch(script.session, 0), 0);
    broker_grant(&script, second, 0, 2, 2);
    broker_error(&script, first, GMB_STATUS_EXHAUSTED, GMB_LIMIT_DEVICE, "full");
    ck_assert(readable());
    ck_assert_int_eq(heard.count, 0);
    ck_assert_int_eq(gmb_dispatch(script.session, 0), 2);
    ck_assert(!readable());

    ck_assert_int_eq(heard.user[0], 2);
    ck_assert_int_eq(heard.error[0], 0);
    ck_assert_uint_eq(gmb_lease_bytes(heard.lease[0]), 2 * CHUNK);
    ck_assert_int_eq(heard.user[1], 1);
    ck_assert_int_eq(heard.error[1], GMB_E_EXHAUSTED);
    ck_assert_ptr_null(heard.lease[1]);
    ck_assert_str_eq(heard.text[1], "full");
    script_end(&script);
}
END_TEST

START_TEST(half_a_grant_calls_nobody_back)
{
    uint64_t id;

    begin();
    id = lease_ask(1, 4);
    broker_grant(&script, id, 0, 3, 4);
    ck_assert_int_eq(gmb_dispatch(script.session, 0), 0);
    ck_assert_uint_eq(fake_gpu_mapped(), 3 * CHUNK);
    ck_assert_uint_eq(fake_gpu_accessible(), 0);
    broker_grant(&script, id, 3, 1, 4);
    ck_assert_int_eq(gmb_dispatch(script.session, 0), 1);
    ck_assert_uint_eq(fake_gpu_accessible(), 4 * CHUNK);
    script_end(&script);
}
END_TEST

/* A blocking call reads everybody's answers; callbacks still wait for whoever dispatches. */
START_TEST(blocking_call_runs_no_callback_and_wakes_the_loop)
{
    struct call call = {.bytes = CHUNK};
    uint64_t waiting, blocking;

    begin();
    waiting = lease_ask(1, 1);
    call_start(&script, &call, call_lease);
    blocking = broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_LEASE_REQUEST);
    broker_grant(&script, waiting, 0, 1, 1);
    broker_grant(&script, blocking, 0, 1, 1);
    ck_assert_int_eq(call_join(&call), 0);
    ck_assert_int_eq(heard.count, 0);
    ck_assert(readable());
    ck_assert_int_eq(gmb_dispatch(script.session, 0), 1);
    ck_assert_int_eq(heard.error[0], 0);
    script_end(&script);
}
END_TEST

START_TEST(lease_with_a_grow_in_flight_is_busy)
{
    gmb_lease *lease;
    uint64_t request, id;

    begin();
    lease = script_lease(&script, 2);
    ck_assert_int_eq(gmb_lease_grow_async(lease, CHUNK, 0, note, NULL, &request), 0);
    id = broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_LEASE_GROW);
    ck_assert_uint_eq(id, request);
    ck_assert_int_eq(gmb_lease_grow(lease, CHUNK, 0), GMB_E_INVALID);
    ck_assert_int_eq(gmb_lease_shrink(lease, 0), GMB_E_INVALID);
    ck_assert_int_eq(gmb_lease_release(lease), GMB_E_INVALID);
    broker_grant(&script, id, 2, 1, 3);
    ck_assert_int_eq(gmb_dispatch(script.session, 0), 1);
    ck_assert_ptr_eq(heard.lease[0], lease);
    ck_assert_uint_eq(gmb_lease_bytes(lease), 3 * CHUNK);
    ck_assert_int_eq(gmb_lease_shrink(lease, 3 * CHUNK), 0);
    script_end(&script);
}
END_TEST

START_TEST(refused_grow_brings_the_lease_as_it_was)
{
    gmb_lease *lease;

    begin();
    lease = script_lease(&script, 2);
    ck_assert_int_eq(gmb_lease_grow_async(lease, CHUNK, 0, note, NULL, NULL), 0);
    broker_error(&script, broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_LEASE_GROW),
        GMB_STATUS_TIMED_OUT, GMB_LIMIT_DEVICE, "waited 0 s");
    ck_assert_int_eq(gmb_dispatch(script.session, 0), 1);
    ck_assert_int_eq(heard.error[0], GMB_E_TIMED_OUT);
    ck_assert_ptr_eq(heard.lease[0], lease);
    ck_assert_uint_eq(fake_gpu_accessible(), 2 * CHUNK);
    script_end(&script);
}
END_TEST

START_TEST(cancelled_request_is_called_back_as_cancelled)
{
    Gmb__ClientMessage *cancel;
    uint64_t id;

    begin();
    id = lease_ask(1, 1);
    ck_assert_int_eq(gmb_cancel(script.session, id + 1), GMB_E_NOT_FOUND);
    ck_assert_int_eq(gmb_cancel(script.session, id), 0);
    cancel = broker_expect(&script, GMB__CLIENT_MESSAGE__BODY_CANCEL);
    ck_assert_uint_eq(cancel->cancel->request, id);
    broker_error(&script, id, GMB_STATUS_CANCELLED, GMB_LIMIT_NONE, "withdrawn");
    broker_done(&script, cancel->id);
    message_free(cancel);
    ck_assert_int_eq(gmb_dispatch(script.session, 0), 1);
    ck_assert_int_eq(heard.error[0], GMB_E_CANCELLED);
    ck_assert_int_eq(gmb_cancel(script.session, id), GMB_E_NOT_FOUND);
    script_end(&script);
}
END_TEST

START_TEST(grant_that_was_on_the_way_survives_the_cancel)
{
    uint64_t id, cancel;

    begin();
    id = lease_ask(1, 2);
    broker_grant(&script, id, 0, 2, 2);
    ck_assert_int_eq(gmb_cancel(script.session, id), 0);
    cancel = broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_CANCEL);
    broker_error(&script, cancel, GMB_STATUS_NOT_FOUND, GMB_LIMIT_NONE, "answered already");
    ck_assert_int_eq(gmb_dispatch(script.session, 0), 1);
    ck_assert_int_eq(heard.error[0], 0);
    ck_assert_uint_eq(gmb_lease_bytes(heard.lease[0]), 2 * CHUNK);
    script_end(&script);
}
END_TEST

START_TEST(broker_that_goes_calls_everybody_back_once)
{
    begin();
    (void) lease_ask(1, 1);
    (void) lease_ask(2, 1);
    broker_close(&script);
    ck_assert(readable());
    ck_assert_int_eq(gmb_dispatch(script.session, -1), 2);
    ck_assert_int_eq(heard.error[0], GMB_E_DISCONNECTED);
    ck_assert_int_eq(heard.error[1], GMB_E_DISCONNECTED);
    ck_assert(readable());
    ck_assert_int_eq(gmb_dispatch(script.session, -1), GMB_E_DISCONNECTED);
    ck_assert_int_eq(gmb_dispatch(script.session, 0), GMB_E_DISCONNECTED);
    script_end(&script);
    ck_assert_int_eq(heard.count, 2);
}
END_TEST

/* Plays the end: answers what is withdrawn in the way that `grant` says. */
static void disconnect_play(uint64_t id, bool grant)
{
    Gmb__ClientMessage *message;
    struct call call;
    uint64_t cancel;

    call_start(&script, &call, call_disconnect);
    message = broker_expect(&script, GMB__CLIENT_MESSAGE__BODY_CANCEL);
    ck_assert_uint_eq(message->cancel->request, id);
    cancel = message->id;
    message_free(message);
    if (grant) {
        broker_grant(&script, id, 0, 2, 2);
        broker_error(&script, cancel, GMB_STATUS_NOT_FOUND, GMB_LIMIT_NONE, "too late");
        message = broker_expect(&script, GMB__CLIENT_MESSAGE__BODY_LEASE_RELEASE);
        ck_assert_uint_eq(message->lease_release->lease, LEASE_ID);
        broker_done(&script, message->id);
        message_free(message);
    } else {
        broker_error(&script, id, GMB_STATUS_CANCELLED, GMB_LIMIT_NONE, "withdrawn");
        broker_done(&script, cancel);
    }
    call_join(&call);
    script.session = NULL;
}

/* A closed connection keeps what it had until the process ends: nothing may be left in it. */
START_TEST(disconnect_gives_back_a_grant_that_comes_late)
{
    begin();
    disconnect_play(lease_ask(1, 2), _i == 1);
    ck_assert_int_eq(heard.count, 1);
    ck_assert_int_eq(heard.error[0], GMB_E_CANCELLED);
    ck_assert_ptr_null(heard.lease[0]);
    ck_assert(fake_gpu_idle());
    script_end(&script);
}
END_TEST

static gmb_lease *held;

/* Asks again, and gives back a lease, which reads whatever has come. */
static void busy_to_the_end(void *user, gmb_lease *lease, int error)
{
    struct gmb_lease_params params = {.size = sizeof(params), .bytes = CHUNK};
    gmb_lease *another;

    note(user, lease, error);
    note(user, NULL, gmb_lease_new(script.session, &params, &another));
    note(user, NULL, gmb_lease_new_async(script.session, &params, note, NULL, NULL));
    note(user, NULL, gmb_lease_release(TAKE_PTR(held)));
}

/* What a callback reads while the session ends must not lose or repeat another's. */
START_TEST(callbacks_of_a_disconnect_may_make_calls)
{
    struct gmb_lease_params params = {.size = sizeof(params), .bytes = CHUNK};
    uint64_t first, second, cancel;
    struct call call;

    begin();
    held = script_lease(&script, 2);
    ck_assert_int_eq(
        gmb_lease_new_async(script.session, &params, busy_to_the_end, (void *) 1, &first), 0);
    (void) broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_LEASE_REQUEST);
    second = lease_ask(2, 1);
    call_start(&script, &call, call_disconnect);
    cancel = broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_CANCEL);
    broker_error(&script, first, GMB_STATUS_CANCELLED, GMB_LIMIT_NONE, "withdrawn");
    broker_done(&script, cancel);
    broker_error(&script, second, GMB_STATUS_TIMED_OUT, GMB_LIMIT_DEVICE, "waited enough");
    broker_done(&script, broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_LEASE_RELEASE));
    call_join(&call);
    script.session = NULL;

    ck_assert_int_eq(heard.count, 5);
    ck_assert_int_eq(heard.error[0], GMB_E_CANCELLED);
    ck_assert_int_eq(heard.error[1], GMB_E_CANCELLED);
    ck_assert_int_eq(heard.error[2], GMB_E_CANCELLED);
    ck_assert_int_eq(heard.error[3], 0);
    ck_assert_int_eq(heard.user[4], 2);
    ck_assert_int_eq(heard.error[4], GMB_E_TIMED_OUT);
    script_end(&script);
}
END_TEST

static void dispatch_again(void *user, gmb_lease *lease, int error)
{
    note(user, lease, gmb_dispatch(script.session, 0));
    note(user, lease, gmb_thread_start(script.session));
}

START_TEST(dispatching_is_for_one_at_a_time)
{
    struct gmb_lease_params params = {.size = sizeof(params), .bytes = CHUNK};

    begin();
    ck_assert_int_eq(gmb_lease_new_async(script.session, &params, dispatch_again, NULL, NULL), 0);
    broker_grant(
        &script, broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_LEASE_REQUEST), 0, 1, 1);
    ck_assert_int_eq(gmb_dispatch(script.session, 0), 1);
    ck_assert_int_eq(heard.error[0], GMB_E_INVALID);
    ck_assert_int_eq(heard.error[1], GMB_E_INVALID);
    script_end(&script);
}
END_TEST

static void begin_impatient(void)
{
    memset(&heard, 0, sizeof(heard));
    script_begin(&script);
    script.timeout_ns = script_impatience_ns();
    script_connect(&script);
}

/* Reads what has come until the broker hears something. */
static void dispatch_until_said(void)
{
    struct pollfd poll_fd = {.fd = conn_fd(script.conn), .events = POLLIN};

    ck_assert_int_eq(gmb_dispatch(script.session, 0), 0);
    ck_assert_int_eq(poll(&poll_fd, 1, 0), 1);
}

START_TEST(silent_broker_does_not_hold_a_lease_for_ever)
{
    struct call call = {.bytes = 2 * CHUNK};
    Gmb__ClientMessage *message;
    uint64_t id;

    begin_impatient();
    call_start(&script, &call, call_lease);
    id = broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_LEASE_REQUEST);
    ck_assert_int_eq(call_join(&call), GMB_E_TIMED_OUT);
    message = broker_expect(&script, GMB__CLIENT_MESSAGE__BODY_CANCEL);
    ck_assert_uint_eq(message->cancel->request, id);

    /* It comes back to life, and the grant was on the way: it is given back unmapped. */
    broker_grant(&script, id, 0, 2, 2);
    broker_error(&script, message->id, GMB_STATUS_NOT_FOUND, GMB_LIMIT_NONE, "too late");
    message_free(message);
    dispatch_until_said();
    ck_assert_uint_eq(fake_gpu_calls(FAKE_GPU_IMPORT), 0);
    broker_done(&script, broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_LEASE_RELEASE));
    script_end(&script);
}
END_TEST

/* A grow that the application gave up on and the broker grants all the same. */
static void late_grow(bool released)
{
    struct call call = {.bytes = 2 * CHUNK};
    Gmb__ClientMessage *message;
    uint64_t id, cancel;

    begin_impatient();
    call.lease = script_lease(&script, 3);
    call_start(&script, &call, call_grow);
    id = broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_LEASE_GROW);
    ck_assert_int_eq(call_join(&call), GMB_E_TIMED_OUT);
    cancel = broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_CANCEL);
    ck_assert_int_eq(gmb_lease_grow(call.lease, CHUNK, 0), GMB_E_TIMED_OUT);
    ck_assert_int_eq(gmb_lease_shrink(call.lease, 0), GMB_E_TIMED_OUT);
    if (released)
        ck_assert_int_eq(gmb_lease_release(call.lease), GMB_E_TIMED_OUT);
    ck_assert_uint_eq(fake_gpu_accessible(), 3 * CHUNK);
    broker_expect_silence(&script);

    broker_grant(&script, id, 3, 2, 5);
    broker_error(&script, cancel, GMB_STATUS_NOT_FOUND, GMB_LIMIT_NONE, "too late");
    dispatch_until_said();
    message = broker_expect(&script, GMB__CLIENT_MESSAGE__BODY_LEASE_SHRINK);
    ck_assert_uint_eq(message->lease_shrink->keep_chunks, 3);
    broker_done(&script, message->id);
    message_free(message);
    if (released) {
        broker_done(&script, broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_LEASE_RELEASE));
        ck_assert_uint_eq(fake_gpu_mapped(), 0);
    } else {
        ck_assert_uint_eq(fake_gpu_accessible(), 3 * CHUNK);
        ck_assert_int_eq(gmb_lease_shrink(call.lease, 3 * CHUNK), 0);
    }
    script_end(&script);
}

START_TEST(late_grant_of_a_grow_is_given_back)
{
    late_grow(false);
}
END_TEST

START_TEST(lease_released_while_unsettled_goes_once_it_is_settled)
{
    late_grow(true);
}
END_TEST

START_TEST(unconfirmed_release_has_unmapped)
{
    struct call call = {0};

    begin_impatient();
    call.lease = script_lease(&script, 3);
    call_start(&script, &call, call_release);
    ck_assert_int_eq(call_join(&call), GMB_E_TIMED_OUT);
    ck_assert_uint_eq(fake_gpu_mapped(), 0);
    /* The late answer is taken and forgotten. */
    broker_done(&script, broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_LEASE_RELEASE));
    ck_assert_int_eq(gmb_dispatch(script.session, 0), 0);
    script_end(&script);
}
END_TEST

/* What doesn't fit the socket waits in the library, in order, and nothing of it is lost. */
START_TEST(requests_beyond_the_sockets_room_are_sent_later)
{
    struct gmb_lease_params params = {.size = sizeof(params), .bytes = CHUNK};
    uint64_t first = 0, request = 0;

    begin();
    for (unsigned i = 0; i < LIMIT_REQUESTS_PER_CLIENT; i++) {
        ck_assert_int_eq(gmb_lease_new_async(script.session, &params, note, NULL, &request), 0);
        if (i == 0)
            first = request;
    }
    ck_assert_int_eq(
        gmb_lease_new_async(script.session, &params, note, NULL, &request), GMB_E_EXHAUSTED);
    ck_assert_str_eq(gmb_error_limit(), "requests");
    for (unsigned i = 0; i < LIMIT_REQUESTS_PER_CLIENT; i++) {
        ck_assert_int_eq(gmb_dispatch(script.session, 0), 0);
        ck_assert_uint_eq(
            broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_LEASE_REQUEST), first + i);
    }
    broker_expect_silence(&script);
    broker_close(&script);
    script_end(&script);
    ck_assert_int_eq(heard.count, LIMIT_REQUESTS_PER_CLIENT);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {callbacks_run_in_the_order_of_the_answers,
        half_a_grant_calls_nobody_back, blocking_call_runs_no_callback_and_wakes_the_loop,
        lease_with_a_grow_in_flight_is_busy, refused_grow_brings_the_lease_as_it_was,
        cancelled_request_is_called_back_as_cancelled,
        grant_that_was_on_the_way_survives_the_cancel, broker_that_goes_calls_everybody_back_once,
        callbacks_of_a_disconnect_may_make_calls, dispatching_is_for_one_at_a_time,
        silent_broker_does_not_hold_a_lease_for_ever, late_grant_of_a_grow_is_given_back,
        lease_released_while_unsettled_goes_once_it_is_settled, unconfirmed_release_has_unmapped,
        requests_beyond_the_sockets_room_are_sent_later};
    Suite *suite = suite_create("client async");
    TCase *tcase = tcase_create("client async");

    for (size_t i = 0; i < ARRAY_SIZE(tests); i++)
        tcase_add_test(tcase, tests[i]);
    tcase_add_loop_test(tcase, disconnect_gives_back_a_grant_that_comes_late, 0, 2);
    suite_add_tcase(suite, tcase);
    return unit_run_suite(suite);
}
