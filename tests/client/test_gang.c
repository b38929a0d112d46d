/*
 * Several leases by one request: what the broker hears, and what a failure of one of them undoes.
 */
#include <string.h>

#include "tests/client/script.h"
#include "tests/unit/unit.h"

#define PARTS 3

static struct script script;
static gmb_lease *leases[PARTS];

/* Parts of 1, 2 and 3 chunks; all on the one device that the double has. */
static int call_gang(struct script *s, struct call *call)
{
    struct gmb_lease_params params[PARTS] = {0};

    for (unsigned i = 0; i < PARTS; i++)
        params[i] = (struct gmb_lease_params){
            .size = sizeof(params[i]),
            .bytes = (i + 1) * CHUNK,
            .max_bytes = 16 * CHUNK,
            .wait_ns = call->wait_ns + i,
            .label = i == 0 ? "first" : "other",
        };
    return gmb_lease_gang(s->session, params, PARTS, leases);
}

/* The grant of a whole part: lease LEASE_ID + part. */
static void grant_part(uint64_t id, unsigned part)
{
    static struct grant grant;

    grant_fill(&grant, id, 0, part + 1, part + 1);
    grant.grant.lease = LEASE_ID + part;
    broker_send(&script, &grant.message.base, part + 1);
}

/* `bytes` of the call: the session's timeout, 0: as it comes. */
static void begin(struct call *call)
{
    memset(leases, 0, sizeof(leases));
    script_begin(&script);
    script.timeout_ns = call->bytes;
    script_connect(&script);
    call_start(&script, call, call_gang);
}

/* Every lease is given back, in whatever order, once. */
static void expect_releases(void)
{
    unsigned seen = 0;

    for (unsigned i = 0; i < PARTS; i++) {
        Gmb__ClientMessage *message =
            broker_expect(&script, GMB__CLIENT_MESSAGE__BODY_LEASE_RELEASE);

        seen |= 1u << (message->lease_release->lease - LEASE_ID);
        broker_done(&script, message->id);
        message_free(message);
    }
    ck_assert_uint_eq(seen, (1u << PARTS) - 1);
}

START_TEST(parts_become_leases_in_their_order)
{
    struct call call = {.wait_ns = 1234};
    Gmb__ClientMessage *request;

    begin(&call);
    request = broker_expect(&script, GMB__CLIENT_MESSAGE__BODY_GANG_REQUEST);
    ck_assert_uint_eq(request->gang_request->n_parts, PARTS);
    ck_assert_uint_eq(request->gang_request->wait_ns, 1234);
    ck_assert_str_eq(request->gang_request->label, "first");
    for (unsigned i = 0; i < PARTS; i++) {
        ck_assert_uint_eq(request->gang_request->parts[i]->bytes, (i + 1) * CHUNK);
        ck_assert_int_eq(
            memcmp(request->gang_request->parts[i]->device.data, fake_gpu_uuid, 16), 0);
    }
    for (unsigned i = 0; i < PARTS; i++)
        grant_part(request->id, i);
    message_free(request);
    ck_assert_int_eq(call_join(&call), 0);
    for (unsigned i = 0; i < PARTS; i++) {
        ck_assert_uint_eq(gmb_lease_bytes(leases[i]), (i + 1) * CHUNK);
        ck_assert_uint_eq(gmb_lease_max_bytes(leases[i]), 16 * CHUNK);
    }
    ck_assert_uint_eq(fake_gpu_accessible(), 6 * CHUNK);
    script_end(&script);
}
END_TEST

START_TEST(an_error_leaves_nothing_behind)
{
    struct call call = {0};

    begin(&call);
    broker_error(&script, broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_GANG_REQUEST),
        GMB_STATUS_EXHAUSTED, GMB_LIMIT_DEVICE, "device 1 is full");
    ck_assert_int_eq(call_join(&call), GMB_E_EXHAUSTED);
    ck_assert_str_eq(gmb_strerror(call.result), gmb_strerror(GMB_E_EXHAUSTED));
    ck_assert_ptr_null(leases[0]);
    ck_assert_uint_eq(fake_gpu_mapped(), 0);
    script_end(&script);
}
END_TEST

START_TEST(a_driver_that_fails_in_any_part_undoes_all)
{
    /* The fifth chunk is the second of the last part; the second span is the second part's. */
    static const struct {
        enum fake_gpu_call call;
        unsigned nth;
    } failures[] = {{FAKE_GPU_MAP, 1}, {FAKE_GPU_MAP, 5}, {FAKE_GPU_IMPORT, 2},
        {FAKE_GPU_RESERVE, 3}, {FAKE_GPU_SET_ACCESS, 2}};

    for (size_t i = 0; i < ARRAY_SIZE(failures); i++) {
        struct call call = {0};
        uint64_t id;

        begin(&call);
        id = broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_GANG_REQUEST);
        fake_gpu_fail(failures[i].call, failures[i].nth);
        for (unsigned k = 0; k < PARTS; k++)
            grant_part(id, k);
        expect_releases();
        ck_assert_int_eq(call_join(&call), GMB_E_GPU);
        ck_assert_ptr_null(leases[0]);
        ck_assert_uint_eq(fake_gpu_mapped(), 0);
        script_end(&script);
    }
}
END_TEST

START_TEST(a_broker_that_goes_half_way_leaves_nothing_behind)
{
    struct call call = {0};
    uint64_t id;

    begin(&call);
    id = broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_GANG_REQUEST);
    grant_part(id, 0);
    broker_close(&script);
    ck_assert_int_eq(call_join(&call), GMB_E_DISCONNECTED);
    ck_assert_ptr_null(leases[0]);
    ck_assert_uint_eq(fake_gpu_mapped(), 0);
    script_end(&script);
}
END_TEST

START_TEST(parts_out_of_order_or_of_another_size_break_the_session)
{
    struct call call = {0};
    uint64_t id;

    begin(&call);
    id = broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_GANG_REQUEST);
    grant_part(id, 0);
    grant_part(id, 2);
    ck_assert_int_eq(call_join(&call), GMB_E_PROTOCOL);
    ck_assert_uint_eq(fake_gpu_mapped(), 0);
    script_end(&script);
}
END_TEST

START_TEST(a_gang_that_comes_when_nobody_waits_goes_back_whole)
{
    struct call call = {.bytes = script_impatience_ns()};
    uint64_t id, cancel;

    begin(&call);
    id = broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_GANG_REQUEST);
    ck_assert_int_eq(call_join(&call), GMB_E_TIMED_OUT);
    cancel = broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_CANCEL);
    for (unsigned i = 0; i < PARTS; i++)
        grant_part(id, i);
    broker_error(&script, cancel, GMB_STATUS_NOT_FOUND, GMB_LIMIT_NONE, "answered already");
    ck_assert_int_ge(gmb_dispatch(script.session, 1000), 0);
    expect_releases();
    ck_assert_int_ge(gmb_dispatch(script.session, 1000), 0);
    ck_assert_uint_eq(fake_gpu_mapped(), 0);
    script_end(&script);
}
END_TEST

START_TEST(what_makes_no_sense_is_refused_before_it_is_sent)
{
    struct gmb_lease_params params[2] = {
        {.size = sizeof(params[0]), .bytes = CHUNK}, {.size = sizeof(params[0])}};

    script_begin(&script);
    script_connect(&script);
    ck_assert_int_eq(gmb_lease_gang(script.session, params, 0, leases), GMB_E_INVALID);
    ck_assert_int_eq(gmb_lease_gang(script.session, params, 65, leases), GMB_E_INVALID);
    ck_assert_int_eq(gmb_lease_gang(script.session, NULL, 1, leases), GMB_E_INVALID);
    ck_assert_int_eq(gmb_lease_gang(script.session, params, 2, leases), GMB_E_INVALID);
    params[1].bytes = CHUNK;
    params[1].device = "GPU-00000000-0000-0000-0000-000000000000";
    ck_assert_int_eq(gmb_lease_gang(script.session, params, 2, leases), GMB_E_NOT_FOUND);
    broker_expect_silence(&script);
    script_end(&script);
}
END_TEST

UNIT_MAIN("client_gang", parts_become_leases_in_their_order, an_error_leaves_nothing_behind,
    a_driver_that_fails_in_any_part_undoes_all, a_broker_that_goes_half_way_leaves_nothing_behind,
    parts_out_of_order_or_of_another_size_break_the_session,
    a_gang_that_comes_when_nobody_waits_goes_back_whole,
    what_makes_no_sense_is_refused_before_it_is_sent)
