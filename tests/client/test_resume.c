/* A broker that goes away and comes back: what stays, what is said to it, what is asked again. */
#include "client/gmb.h"

#include <poll.h>
#include <string.h>

#include "base/clock.h"
#include "tests/client/comeback.h"
#include "tests/unit/unit.h"

static struct script script;

static void begin(enum gmb_offline offline)
{
    script_begin(&script);
    script.offline = offline;
    script.tokens = true;
    script_connect(&script);
    ck_assert_int_eq(gmb_thread_start(script.session), 0);
}

static void grow_works(gmb_lease *lease, uint32_t from)
{
    struct call call = {.lease = lease, .bytes = CHUNK, .wait_ns = SCRIPT_WAIT_NS};

    call_start(&script, &call, call_grow);
    broker_grant(&script, broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_LEASE_GROW), from, 1,
        from + 1);
    ck_assert_int_eq(call_join(&call), 0);
}

START_TEST(what_is_mapped_stays_and_is_named)
{
    gmb_lease *lease;

    begin(GMB_OFFLINE_FAIL);
    lease = script_lease(&script, 2);
    go_away(&script);
    ck_assert_uint_eq(fake_gpu_accessible(), 2 * CHUNK);
    come_back_to(&script, 1, 2);
    ck_assert_uint_eq(fake_gpu_accessible(), 2 * CHUNK);
    grow_works(lease, 2);
    /* And again: the session is as good as it was. */
    go_away(&script);
    come_back_to(&script, 1, 3);
    script_end(&script);
}
END_TEST

START_TEST(requests_fail_while_it_is_away_unless_they_are_to_wait)
{
    struct call call = {.bytes = CHUNK, .wait_ns = 10 * NSEC_PER_SEC};

    begin(GMB_OFFLINE_FAIL);
    call_start(&script, &call, call_lease);
    (void) broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_LEASE_REQUEST);
    go_away(&script);
    ck_assert_int_eq(call_join(&call), GMB_E_DISCONNECTED);
    ck_assert_int_eq(call_lease(&script, &call), GMB_E_DISCONNECTED);
    come_back_to(&script, 0, 0);
    (void) script_lease(&script, 1);
    script_end(&script);
}
END_TEST

START_TEST(a_patient_request_is_sent_again_and_answered_once)
{
    struct call call = {.bytes = 3 * CHUNK, .wait_ns = 10 * NSEC_PER_SEC};
    Gmb__ClientMessage *message;
    uint64_t id;

    begin(GMB_OFFLINE_WAIT);
    call_start(&script, &call, call_lease);
    id = broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_LEASE_REQUEST);
    /* Two of three chunks have come when the broker dies: they aren't anybody's. */
    broker_grant(&script, id, 0, 2, 3);
    go_away(&script);
    ck_assert_uint_eq(fake_gpu_accessible(), 0);
    come_back_to(&script, 0, 0);
    message = broker_expect(&script, GMB__CLIENT_MESSAGE__BODY_LEASE_REQUEST);
    ck_assert_uint_eq(message->id, id);
    ck_assert_uint_eq(message->lease_request->bytes, 3 * CHUNK);
    ck_assert_uint_lt(message->lease_request->wait_ns, 10 * NSEC_PER_SEC);
    ck_assert_uint_gt(message->lease_request->wait_ns, 0);
    message_free(message);
    broker_grant(&script, id, 0, 3, 3);
    ck_assert_int_eq(call_join(&call), 0);
    ck_assert_uint_eq(fake_gpu_accessible(), 3 * CHUNK);
    script_end(&script);
}
END_TEST

START_TEST(a_patient_request_may_begin_while_it_is_away)
{
    struct call call = {.bytes = CHUNK, .wait_ns = 10 * NSEC_PER_SEC};
    struct call impatient = {.bytes = CHUNK, .wait_ns = 0};

    begin(GMB_OFFLINE_WAIT);
    go_away(&script);
    ck_assert_int_eq(call_lease(&script, &impatient), GMB_E_DISCONNECTED);
    call_start(&script, &call, call_lease);
    come_back_to(&script, 0, 0);
    broker_grant(
        &script, broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_LEASE_REQUEST), 0, 1, 1);
    ck_assert_int_eq(call_join(&call), 0);
    script_end(&script);
}
END_TEST

START_TEST(a_patient_request_waits_no_longer_than_it_may)
{
    struct call call = {.bytes = CHUNK, .wait_ns = 50 * NSEC_PER_MSEC};

    begin(GMB_OFFLINE_WAIT);
    go_away(&script);
    ck_assert_int_eq(call_lease(&script, &call), GMB_E_DISCONNECTED);
    come_back_to(&script, 0, 0);
    broker_expect_silence(&script);
    script_end(&script);
}
END_TEST

START_TEST(what_is_given_back_meanwhile_is_not_named)
{
    gmb_lease *lease;

    begin(GMB_OFFLINE_FAIL);
    lease = script_lease(&script, 4);
    go_away(&script);
    ck_assert_int_eq(gmb_lease_shrink(lease, CHUNK), 0);
    ck_assert_uint_eq(fake_gpu_accessible(), CHUNK);
    come_back_to(&script, 1, 1);
    broker_expect_silence(&script);
    go_away(&script);
    ck_assert_int_eq(gmb_lease_release(lease), 0);
    ck_assert_uint_eq(fake_gpu_accessible(), 0);
    come_back_to(&script, 0, 0);
    broker_expect_silence(&script);
    script_end(&script);
}
END_TEST

START_TEST(a_release_that_was_on_its_way_is_done)
{
    struct call call = {0};

    begin(GMB_OFFLINE_FAIL);
    call.lease = script_lease(&script, 2);
    call_start(&script, &call, call_release);
    (void) broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_LEASE_RELEASE);
    go_away(&script);
    ck_assert_int_eq(call_join(&call), 0);
    come_back_to(&script, 0, 0);
    script_end(&script);
}
END_TEST

/* i == 0: it knows nobody. i == 1: it lost this lease. */
START_TEST(a_lost_lease_can_be_used_and_given_back_but_not_grown)
{
    uint64_t lost[] = {LEASE_ID};
    Gmb__ClientMessage *message;
    gmb_lease *lease;

    begin(GMB_OFFLINE_WAIT);
    lease = script_lease(&script, 2);
    go_away(&script);
    if (_i == 0) {
        script.resumed = false;
        broker_welcome(&script, hello_again(&script));
    } else {
        message = come_back(&script);
        resumed(&script, message->id, lost, 1);
        message_free(message);
    }
    wait_for_connection(&script, GMB_CONNECTION_READY);
    ck_assert_uint_eq(fake_gpu_accessible(), 2 * CHUNK);
    ck_assert_int_eq(gmb_lease_grow(lease, CHUNK, 0), GMB_E_DISCONNECTED);
    ck_assert_int_eq(gmb_lease_shrink(lease, CHUNK), 0);
    ck_assert_uint_eq(fake_gpu_accessible(), CHUNK);
    ck_assert_int_eq(gmb_lease_release(lease), 0);
    ck_assert_uint_eq(fake_gpu_accessible(), 0);
    broker_expect_silence(&script);
    (void) script_lease(&script, 1);
    script_end(&script);
}
END_TEST

START_TEST(a_grow_of_a_lost_lease_is_answered)
{
    struct call call = {.bytes = CHUNK, .wait_ns = GMB_WAIT_FOREVER};

    begin(GMB_OFFLINE_WAIT);
    call.lease = script_lease(&script, 1);
    call_start(&script, &call, call_grow);
    (void) broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_LEASE_GROW);
    go_away(&script);
    script.resumed = false;
    broker_welcome(&script, hello_again(&script));
    ck_assert_int_eq(call_join(&call), GMB_E_DISCONNECTED);
    ck_assert_ptr_nonnull(strstr(call.text, "lost"));
    ck_assert_int_eq(gmb_lease_release(call.lease), 0);
    script_end(&script);
}
END_TEST

static void granted_as(uint64_t request, uint64_t lease)
{
    struct grant grant;

    grant_fill(&grant, request, 0, 1, 1);
    grant.grant.lease = lease;
    broker_send(&script, &grant.message.base, 1);
}

START_TEST(many_leases_are_named_in_parts_each_once)
{
    enum { LEASES = 150 };
    bool seen[LEASES] = {false};
    size_t count = 0;
    bool last = false;

    begin(GMB_OFFLINE_FAIL);
    for (uint64_t i = 0; i < LEASES; i++) {
        struct call call = {.bytes = CHUNK};

        call_start(&script, &call, call_lease);
        granted_as(broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_LEASE_REQUEST), 1000 + i);
        ck_assert_int_eq(call_join(&call), 0);
    }
    go_away(&script);
    for (Gmb__ClientMessage *message = come_back(&script); !last;) {
        for (size_t i = 0; i < message->resume->n_held; i++) {
            uint64_t id = message->resume->held[i]->lease - 1000;

            ck_assert_uint_lt(id, LEASES);
            ck_assert(!seen[id]);
            seen[id] = true;
            count++;
        }
        last = message->resume->last;
        /* The next part comes when this one is answered. */
        broker_expect_silence(&script);
        resumed(&script, message->id, NULL, 0);
        message_free(message);
        if (!last)
            message = broker_expect(&script, GMB__CLIENT_MESSAGE__BODY_RESUME);
    }
    ck_assert_uint_eq(count, LEASES);
    wait_for_connection(&script, GMB_CONNECTION_READY);
    script_end(&script);
}
END_TEST

/* The n-th step of coming back is as far as this broker gets; the one behind it finds everything as
 * it was. */
START_TEST(a_broker_may_die_at_any_step_of_coming_back)
{
    struct call call = {.bytes = CHUNK, .wait_ns = GMB_WAIT_FOREVER};
    uint64_t id;

    begin(GMB_OFFLINE_WAIT);
    (void) script_lease(&script, 2);
    call_start(&script, &call, call_lease);
    id = broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_LEASE_REQUEST);
    go_away(&script);
    broker_accept(&script);
    if (_i >= 1)
        (void) broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_HELLO);
    if (_i >= 2) {
        script.resumed = true;
        broker_welcome(&script, 1);
        (void) broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_RESUME);
    }
    if (_i == 3)
        broker_error(&script, 1, GMB_STATUS_EXHAUSTED, GMB_LIMIT_CLIENTS_MAX, "full");
    broker_close(&script);
    come_back_to(&script, 1, 2);
    ck_assert_uint_eq(broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_LEASE_REQUEST), id);
    granted_as(id, 78);
    ck_assert_int_eq(call_join(&call), 0);
    script_end(&script);
}
END_TEST

START_TEST(disconnecting_while_it_is_away_ends_at_once)
{
    struct call call = {.bytes = CHUNK, .wait_ns = GMB_WAIT_FOREVER};

    begin(GMB_OFFLINE_WAIT);
    (void) script_lease(&script, 2);
    go_away(&script);
    (void) call;
    gmb_disconnect(script.session);
    script.session = NULL;
    ck_assert(fake_gpu_idle());
    script_end(&script);
}
END_TEST

static int called_back;

static void note(void *user, gmb_lease *lease, int error)
{
    (void) user;
    (void) lease;
    __atomic_store_n(&called_back, error, __ATOMIC_SEQ_CST);
}

START_TEST(a_request_can_be_cancelled_while_it_is_away)
{
    struct gmb_lease_params params = {
        .size = sizeof(params), .bytes = CHUNK, .wait_ns = GMB_WAIT_FOREVER};
    uint64_t request = 0, hello = 0;

    begin(GMB_OFFLINE_WAIT);
    ck_assert_int_eq(gmb_lease_new_async(script.session, &params, note, NULL, &request), 0);
    (void) broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_LEASE_REQUEST);
    go_away(&script);
    if (_i == 1) /* a broker that takes its time to answer the greeting is away, too */
        hello = hello_again(&script);
    ck_assert_int_eq(gmb_cancel(script.session, request), 0);
    for (unsigned i = 0; __atomic_load_n(&called_back, __ATOMIC_SEQ_CST) == 0; i++) {
        ck_assert_uint_lt(i, 10000);
        (void) usleep(1000);
    }
    ck_assert_int_eq(called_back, GMB_E_CANCELLED);
    if (_i == 1) {
        script.resumed = true;
        broker_welcome(&script, hello);
        resumed(&script, broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_RESUME), NULL, 0);
        wait_for_connection(&script, GMB_CONNECTION_READY);
    } else {
        come_back_to(&script, 0, 0);
    }
    broker_expect_silence(&script);
    script_end(&script);
}
END_TEST

START_TEST(an_event_loop_brings_it_back_too)
{
    struct call call = {.bytes = CHUNK};

    script_begin(&script);
    script.tokens = true;
    script_connect(&script);
    broker_close(&script);
    ck_assert_int_ge(gmb_dispatch(script.session, 100), 0);
    ck_assert_int_eq(gmb_connection(script.session), GMB_CONNECTION_AWAY);
    script.resumed = false;
    for (unsigned i = 0; gmb_connection(script.session) != GMB_CONNECTION_READY; i++) {
        struct pollfd poll_fd = {.fd = gmb_fd(script.session), .events = POLLIN};
        struct pollfd listening = {.fd = script.listen_fd, .events = POLLIN};

        ck_assert_uint_lt(i, 1000);
        if (script.conn == NULL && poll(&listening, 1, 0) == 1)
            broker_welcome(&script, hello_again(&script));
        ck_assert_int_eq(poll(&poll_fd, 1, 10000), 1);
        ck_assert_int_ge(gmb_dispatch(script.session, 0), 0);
    }
    call_start(&script, &call, call_lease);
    broker_grant(
        &script, broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_LEASE_REQUEST), 0, 1, 1);
    ck_assert_int_eq(call_join(&call), 0);
    script_end(&script);
}
END_TEST

/* ------------------------------------------------------------------ arenas */

START_TEST(an_arenas_chunks_are_named_in_runs_and_waiting_pages_wanted_again)
{
    struct gmb_arena_params params = {.size = sizeof(params),
        .page_bytes = CHUNK / 4,
        .chunk_bytes = CHUNK,
        .max_bytes = 16 * CHUNK,
        .idle_ns = UINT64_MAX};
    struct script_arena table;
    Gmb__ClientMessage *message;
    uint32_t pages[4] = {0};
    struct call waiting = {.n = 1, .pages = pages, .wait_ns = GMB_WAIT_FOREVER};
    gmb_arena *arena;
    uint64_t *word;

    begin(GMB_OFFLINE_WAIT);
    arena = script_arena(&script, &params, &table);
    broker_arena_grant(&script, 0, 2);
    (void) broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_ARENA_MAPPED);
    broker_arena_grant(&script, 3, 1);
    (void) broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_ARENA_MAPPED);
    ck_assert_int_eq(gmb_page_alloc(arena, 4, pages, 0), 0);

    /* The broker evicted a page, and it is wanted back when the broker dies. */
    word = &table.table.pages[pages[0]].word;
    *word = (*word & ~UINT64_C(15)) | ARENA_PAGE_EVICTED;
    ck_assert_int_eq(gmb_page_pin(arena, 1, pages), GMB_PIN_WAITING);
    (void) broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_PAGE_WANT);
    waiting.arena = arena;
    call_start(&script, &waiting, call_pages_wait);
    go_away(&script);
    /* What is here goes on. */
    ck_assert_int_eq(gmb_page_pin(arena, 1, &pages[1]), GMB_PIN_READY);
    ck_assert_int_eq(gmb_page_unpin(arena, 1, &pages[1]), 0);

    message = come_back(&script);
    ck_assert_uint_eq(message->resume->n_held, 1);
    ck_assert_uint_eq(message->resume->held[0]->n_runs, 4);
    ck_assert_uint_eq(message->resume->held[0]->runs[0], 0);
    ck_assert_uint_eq(message->resume->held[0]->runs[1], 2);
    ck_assert_uint_eq(message->resume->held[0]->runs[2], 3);
    ck_assert_uint_eq(message->resume->held[0]->runs[3], 1);
    resumed(&script, message->id, NULL, 0);
    message_free(message);
    message = broker_expect(&script, GMB__CLIENT_MESSAGE__BODY_PAGE_WANT);
    ck_assert_uint_eq(message->page_want->n_pages, 1);
    ck_assert_uint_eq(message->page_want->pages[0], pages[0]);
    message_free(message);
    __atomic_store_n(word, (*word & ~UINT64_C(15)) | ARENA_PAGE_RESIDENT, __ATOMIC_SEQ_CST);
    ck_assert_int_eq(write(table.event_fd, &(uint64_t){1}, 8), 8);
    ck_assert_int_eq(call_join(&waiting), GMB_PIN_READY);
    ck_assert_int_eq(gmb_page_unpin(arena, 1, pages), 0);
    ck_assert_int_eq(gmb_page_unref(arena, 4, pages), 0);
    script_arena_end(&table);
    script_end(&script);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client resume");
    TCase *single = tcase_create("single");

    tcase_add_test(single, what_is_mapped_stays_and_is_named);
    tcase_add_test(single, requests_fail_while_it_is_away_unless_they_are_to_wait);
    tcase_add_test(single, a_patient_request_is_sent_again_and_answered_once);
    tcase_add_test(single, a_patient_request_may_begin_while_it_is_away);
    tcase_add_test(single, a_patient_request_waits_no_longer_than_it_may);
    tcase_add_test(single, what_is_given_back_meanwhile_is_not_named);
    tcase_add_test(single, a_release_that_was_on_its_way_is_done);
    tcase_add_loop_test(single, a_lost_lease_can_be_used_and_given_back_but_not_grown, 0, 2);
    tcase_add_test(single, a_grow_of_a_lost_lease_is_answered);
    tcase_add_test(single, many_leases_are_named_in_parts_each_once);
    tcase_add_loop_test(single, a_broker_may_die_at_any_step_of_coming_back, 0, 4);
    tcase_add_test(single, disconnecting_while_it_is_away_ends_at_once);
    tcase_add_loop_test(single, a_request_can_be_cancelled_while_it_is_away, 0, 2);
    tcase_add_test(single, an_event_loop_brings_it_back_too);
    tcase_add_test(single, an_arenas_chunks_are_named_in_runs_and_waiting_pages_wanted_again);
    tcase_set_timeout(single, 60);
    suite_add_tcase(suite, single);
    return unit_run_suite(suite);
}
