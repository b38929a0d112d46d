/* Leases that are asked back, as conversations. */
#include <poll.h>
#include <semaphore.h>

#include "base/clock.h"
#include "tests/client/script.h"
#include "tests/unit/unit.h"

static struct script script;

static struct {
    unsigned count;
    gmb_lease *lease;
    uint64_t bytes, deadline_ns;
} asked;

static void hear(void *user, gmb_lease *lease, uint64_t bytes, uint64_t deadline_ns)
{
    ck_assert_ptr_eq(user, &asked);
    asked.count++;
    asked.lease = lease;
    asked.bytes = bytes;
    asked.deadline_ns = deadline_ns;
}

static void broker_revoke(uint64_t lease, uint64_t bytes, uint64_t deadline_ns)
{
    Gmb__BrokerMessage message = GMB__BROKER_MESSAGE__INIT;
    Gmb__LeaseRevoke body = GMB__LEASE_REVOKE__INIT;

    message.body_case = GMB__BROKER_MESSAGE__BODY_LEASE_REVOKE;
    message.lease_revoke = &body;
    body.lease = lease;
    body.bytes = bytes;
    body.deadline_ns = deadline_ns;
    broker_send(&script, &message.base, 0);
}

START_TEST(a_revoked_lease_is_heard_of_by_whoever_dispatches_and_given_by_a_shrink)
{
    uint64_t before = clock_now(&clock_monotonic);
    struct call call = {.bytes = 3 * CHUNK};
    Gmb__ClientMessage *message;

    script_begin(&script);
    script_connect(&script);
    call.lease = script_lease(&script, 5);
    ck_assert_int_eq(gmb_revoke_subscribe(script.session, hear, &asked), 0);
    broker_revoke(LEASE_ID, 2 * CHUNK, 5 * NSEC_PER_SEC);
    ck_assert_int_eq(gmb_dispatch(script.session, 30000), 1);
    ck_assert_uint_eq(asked.count, 1);
    ck_assert_ptr_eq(asked.lease, call.lease);
    ck_assert_uint_eq(asked.bytes, 2 * CHUNK);
    ck_assert_uint_ge(asked.deadline_ns, before + 5 * NSEC_PER_SEC);
    ck_assert_uint_le(asked.deadline_ns, clock_now(&clock_monotonic) + 5 * NSEC_PER_SEC);
    ck_assert_int_eq(gmb_dispatch(script.session, 0), 0); /* once */
    broker_expect_silence(&script);                       /* nothing is answered by itself */

    call_start(&script, &call, call_shrink);
    message = broker_expect(&script, GMB__CLIENT_MESSAGE__BODY_LEASE_SHRINK);
    ck_assert_uint_eq(message->lease_shrink->lease, LEASE_ID);
    ck_assert_uint_eq(message->lease_shrink->keep_chunks, 3);
    broker_done(&script, message->id);
    message_free(message);
    ck_assert_int_eq(call_join(&call), 0);
    script_end(&script);
}
END_TEST

static sem_t held, go;

static void hold(void *user, gmb_lease *lease, uint64_t bytes, uint64_t deadline_ns)
{
    (void) user;
    (void) bytes;
    (void) deadline_ns;
    ck_assert_int_eq(sem_post(&held), 0);
    ck_assert_int_eq(sem_wait(&go), 0);
    ck_assert_uint_eq(gmb_lease_chunk_bytes(lease), CHUNK); /* it is still there */
    ck_assert_int_eq(sem_post(&held), 0);
}

START_TEST(a_release_waits_for_the_callback_that_has_the_lease)
{
    struct call call = {0};

    script_begin(&script);
    script_connect(&script);
    ck_assert_int_eq(sem_init(&held, 0, 0), 0);
    ck_assert_int_eq(sem_init(&go, 0, 0), 0);
    call.lease = script_lease(&script, 2);
    ck_assert_int_eq(gmb_revoke_subscribe(script.session, hold, NULL), 0);
    ck_assert_int_eq(gmb_thread_start(script.session), 0);
    broker_revoke(LEASE_ID, CHUNK, NSEC_PER_SEC);
    ck_assert_int_eq(sem_wait(&held), 0);
    call_start(&script, &call, call_release);
    broker_done(&script, broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_LEASE_RELEASE));
    ck_assert_int_eq(sem_post(&go), 0);
    ck_assert_int_eq(call_join(&call), 0);
    ck_assert_int_eq(sem_trywait(&held), 0);
    script_end(&script);
}
END_TEST

static void release_in_callback(void *user, gmb_lease *lease, uint64_t bytes, uint64_t deadline_ns)
{
    (void) user;
    (void) bytes;
    (void) deadline_ns;
    ck_assert_int_eq(gmb_lease_release(lease), 0);
}

START_TEST(the_callback_itself_may_release_the_lease)
{
    script_begin(&script);
    script_connect(&script);
    (void) script_lease(&script, 2);
    ck_assert_int_eq(gmb_revoke_subscribe(script.session, release_in_callback, NULL), 0);
    ck_assert_int_eq(gmb_thread_start(script.session), 0);
    broker_revoke(LEASE_ID, CHUNK, NSEC_PER_SEC);
    broker_done(&script, broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_LEASE_RELEASE));
    script_end(&script);
}
END_TEST

START_TEST(what_was_asked_before_somebody_subscribed_is_kept_the_last_word_of_it)
{
    struct pollfd fd = {.events = POLLIN};
    gmb_lease *lease;

    script_begin(&script);
    script_connect(&script);
    lease = script_lease(&script, 5);
    broker_revoke(LEASE_ID, 2 * CHUNK, NSEC_PER_SEC);
    broker_revoke(LEASE_ID, 4 * CHUNK, NSEC_PER_SEC);
    ck_assert_int_eq(gmb_dispatch(script.session, 100), 0);
    ck_assert_int_eq(gmb_revoke_subscribe(script.session, hear, &asked), 0);
    fd.fd = gmb_fd(script.session);
    ck_assert_int_eq(poll(&fd, 1, 30000), 1);
    ck_assert_int_eq(gmb_dispatch(script.session, 0), 1);
    ck_assert_ptr_eq(asked.lease, lease);
    ck_assert_uint_eq(asked.bytes, 4 * CHUNK);
    /* Who has ended it hears no more. */
    ck_assert_int_eq(gmb_revoke_subscribe(script.session, NULL, NULL), 0);
    broker_revoke(LEASE_ID, CHUNK, NSEC_PER_SEC);
    ck_assert_int_eq(gmb_dispatch(script.session, 100), 0);
    ck_assert_uint_eq(asked.count, 1);
    script_end(&script);
}
END_TEST

START_TEST(a_lease_that_is_gone_is_passed_over_and_nothing_of_one_is_a_breach)
{
    gmb_lease *lease;

    script_begin(&script);
    script_connect(&script);
    lease = script_lease(&script, 1);
    ck_assert_int_eq(gmb_revoke_subscribe(script.session, hear, &asked), 0);
    broker_revoke(LEASE_ID + 1, CHUNK, NSEC_PER_SEC);
    ck_assert_int_eq(gmb_dispatch(script.session, 100), 0);
    ck_assert_uint_eq(gmb_lease_bytes(lease), CHUNK);
    broker_revoke(LEASE_ID, 0, NSEC_PER_SEC);
    script.parting = true;
    ck_assert_int_eq(gmb_dispatch(script.session, 30000), GMB_E_PROTOCOL);
    ck_assert_uint_eq(asked.count, 0);
    script_end(&script);
}
END_TEST

UNIT_MAIN("revoke", a_revoked_lease_is_heard_of_by_whoever_dispatches_and_given_by_a_shrink,
    a_release_waits_for_the_callback_that_has_the_lease, the_callback_itself_may_release_the_lease,
    what_was_asked_before_somebody_subscribed_is_kept_the_last_word_of_it,
    a_lease_that_is_gone_is_passed_over_and_nothing_of_one_is_a_breach)
