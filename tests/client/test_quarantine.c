/* Segments that the broker found changed, as conversations. */
#include <poll.h>

#include "tests/client/script.h"
#include "tests/unit/unit.h"

static struct script script;

static struct {
    unsigned count;
    gmb_lease *lease;
} heard;

static void hear(void *user, gmb_lease *lease)
{
    ck_assert_ptr_eq(user, &heard);
    ck_assert_int_ne(gmb_segment_quarantined(lease), 0);
    heard.count++;
    heard.lease = lease;
}

static void release_in_callback(void *user, gmb_lease *lease)
{
    (void) user;
    heard.count++;
    ck_assert_int_eq(gmb_lease_release(lease), 0);
}

static void broker_quarantine(uint64_t lease)
{
    Gmb__BrokerMessage message = GMB__BROKER_MESSAGE__INIT;
    Gmb__SegmentQuarantined body;
    char text[] = "it is not what it was";

    gmb__segment_quarantined__init(&body);
    body.lease = lease;
    body.text = text;
    message.body_case = GMB__BROKER_MESSAGE__BODY_SEGMENT_QUARANTINED;
    message.segment_quarantined = &body;
    broker_send(&script, &message.base, 0);
}

static int call_open(struct script *at, struct call *call)
{
    const struct gmb_segment_params params = {
        .size = sizeof(params), .name = "llama", .wait_ns = GMB_WAIT_FOREVER};

    return gmb_segment_open(at->session, &params, &call->lease);
}

static void grant_read(uint64_t id)
{
    struct grant grant;

    grant_fill(&grant, id, 0, 2, 2);
    grant.grant.read_only = true;
    broker_send(&script, &grant.message.base, 2);
}

/* A segment that this process reads, of two chunks. */
static gmb_lease *segment_open(void)
{
    struct call call = {0};

    call_start(&script, &call, call_open);
    grant_read(broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_SEGMENT_REQUEST));
    ck_assert_int_eq(call_join(&call), 0);
    return call.lease;
}

START_TEST(a_changed_segment_says_so_for_good_and_is_called_for_once)
{
    gmb_lease *lease;

    script_begin(&script);
    script_connect(&script);
    lease = segment_open();
    ck_assert_int_eq(gmb_segment_subscribe(script.session, hear, &heard), 0);
    ck_assert_int_eq(gmb_segment_quarantined(lease), 0);
    broker_quarantine(LEASE_ID);
    ck_assert_int_eq(gmb_dispatch(script.session, 30000), 1);
    ck_assert_uint_eq(heard.count, 1);
    ck_assert_ptr_eq(heard.lease, lease);
    broker_quarantine(LEASE_ID);
    ck_assert_int_eq(gmb_dispatch(script.session, 100), 0);
    ck_assert_int_ne(gmb_segment_quarantined(lease), 0);
    ck_assert_uint_eq(gmb_lease_bytes(lease), 2 * CHUNK);
    script_end(&script);
}
END_TEST

START_TEST(what_came_before_somebody_subscribed_is_handed_on)
{
    struct pollfd fd = {.events = POLLIN};
    gmb_lease *lease;

    script_begin(&script);
    script_connect(&script);
    lease = segment_open();
    broker_quarantine(LEASE_ID);
    ck_assert_int_eq(gmb_dispatch(script.session, 100), 0);
    ck_assert_int_ne(gmb_segment_quarantined(lease), 0);
    ck_assert_int_eq(gmb_segment_subscribe(script.session, hear, &heard), 0);
    fd.fd = gmb_fd(script.session);
    ck_assert_int_eq(poll(&fd, 1, 30000), 1);
    ck_assert_int_eq(gmb_dispatch(script.session, 0), 1);
    ck_assert_ptr_eq(heard.lease, lease);
    script_end(&script);
}
END_TEST

START_TEST(the_callback_may_release_it)
{
    script_begin(&script);
    script_connect(&script);
    (void) segment_open();
    ck_assert_int_eq(gmb_segment_subscribe(script.session, release_in_callback, NULL), 0);
    ck_assert_int_eq(gmb_thread_start(script.session), 0);
    broker_quarantine(LEASE_ID);
    broker_done(&script, broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_LEASE_RELEASE));
    script_end(&script);
    ck_assert_uint_eq(heard.count, 1);
}
END_TEST

/* It may come before the call that opens it has returned. */
START_TEST(one_that_is_being_opened_is_called_for_when_it_is_there)
{
    struct call call = {0};

    script_begin(&script);
    script_connect(&script);
    ck_assert_int_eq(gmb_segment_subscribe(script.session, hear, &heard), 0);
    call_start(&script, &call, call_open);
    grant_read(broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_SEGMENT_REQUEST));
    broker_quarantine(LEASE_ID);
    ck_assert_int_eq(call_join(&call), 0);
    ck_assert_int_eq(gmb_dispatch(script.session, 30000), 1);
    ck_assert_ptr_eq(heard.lease, call.lease);
    script_end(&script);
}
END_TEST

START_TEST(one_that_is_gone_is_passed_over_and_a_workspace_is_a_breach)
{
    script_begin(&script);
    script_connect(&script);
    (void) script_lease(&script, 1);
    ck_assert_int_eq(gmb_segment_subscribe(script.session, hear, &heard), 0);
    broker_quarantine(LEASE_ID + 1);
    broker_quarantine(0);
    ck_assert_int_eq(gmb_dispatch(script.session, 100), 0);
    broker_quarantine(LEASE_ID);
    script.parting = true;
    ck_assert_int_eq(gmb_dispatch(script.session, 30000), GMB_E_PROTOCOL);
    ck_assert_uint_eq(heard.count, 0);
    script_end(&script);
}
END_TEST

UNIT_MAIN("quarantine", a_changed_segment_says_so_for_good_and_is_called_for_once,
    what_came_before_somebody_subscribed_is_handed_on, the_callback_may_release_it,
    one_that_is_being_opened_is_called_for_when_it_is_there,
    one_that_is_gone_is_passed_over_and_a_workspace_is_a_breach)
