/* A broker that vanishes or breaks the protocol, at each step: the call fails, nothing is left. */
#include <errno.h>
#include <string.h>

#include "tests/client/script.h"
#include "tests/unit/unit.h"

static struct script script;

enum step {
    BEFORE_THE_GRANT,
    AFTER_THE_FIRST_PART,
    IN_A_GROW,
    IN_A_GROW_AFTER_THE_FIRST_PART,
    IN_A_SHRINK,
    IN_A_RELEASE,
    STEP_MAX
};

/* Brings a call to the step; returns the request's id. */
static uint64_t step_reach(enum step step, struct call *call)
{
    uint64_t id;

    script_begin(&script);
    script_connect(&script);
    call->bytes = 4 * CHUNK;
    if (step == BEFORE_THE_GRANT || step == AFTER_THE_FIRST_PART) {
        call_start(&script, call, call_lease);
        id = broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_LEASE_REQUEST);
        if (step == AFTER_THE_FIRST_PART)
            broker_grant(&script, id, 0, 3, 4);
        return id;
    }
    call->lease = script_lease(&script, 2);
    if (step == IN_A_SHRINK) {
        call->bytes = CHUNK;
        call_start(&script, call, call_shrink);
        return broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_LEASE_SHRINK);
    }
    if (step == IN_A_RELEASE) {
        call_start(&script, call, call_release);
        return broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_LEASE_RELEASE);
    }
    call_start(&script, call, call_grow);
    id = broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_LEASE_GROW);
    if (step == IN_A_GROW_AFTER_THE_FIRST_PART)
        broker_grant(&script, id, 2, 3, 6);
    return id;
}

/* What the application still has after the failure. */
static uint64_t step_keeps(enum step step)
{
    static const uint64_t kept[] = {
        [BEFORE_THE_GRANT] = 0,
        [AFTER_THE_FIRST_PART] = 0,
        [IN_A_GROW] = 2 * CHUNK,
        [IN_A_GROW_AFTER_THE_FIRST_PART] = 2 * CHUNK,
        [IN_A_SHRINK] = CHUNK,
        [IN_A_RELEASE] = 0,
    };
    _Static_assert(ARRAY_SIZE(kept) == STEP_MAX, "every step");

    return kept[step];
}

START_TEST(broker_that_closes_at_any_step_leaves_what_was_mapped)
{
    struct gmb_lease_params params = {.size = sizeof(params), .bytes = CHUNK};
    struct call call = {0};
    gmb_lease *lease;

    (void) step_reach((enum step) _i, &call);
    broker_close(&script);
    ck_assert_int_eq(call_join(&call), GMB_E_DISCONNECTED);
    ck_assert_uint_eq(fake_gpu_accessible(), step_keeps((enum step) _i));
    ck_assert_uint_eq(fake_gpu_mapped(), step_keeps((enum step) _i));

    /* From now on nothing is asked of anybody, and giving back only unmaps. */
    ck_assert_int_eq(gmb_lease_new(script.session, &params, &lease), GMB_E_DISCONNECTED);
    ck_assert_int_eq(gmb_dispatch(script.session, -1), GMB_E_DISCONNECTED);
    if (step_keeps((enum step) _i) > 0) {
        ck_assert_int_eq(gmb_lease_grow(call.lease, CHUNK, 0), GMB_E_DISCONNECTED);
        ck_assert_int_eq(gmb_lease_release(call.lease), GMB_E_DISCONNECTED);
        ck_assert_uint_eq(fake_gpu_mapped(), 0);
    }
    script_end(&script);
}
END_TEST

/* The lease was never released: disconnecting unmaps it. */
START_TEST(disconnect_after_the_broker_has_gone_unmaps_everything)
{
    script_begin(&script);
    script_connect(&script);
    (void) script_lease(&script, 2);
    (void) script_lease(&script, 3);
    broker_close(&script);
    script_end(&script);
}
END_TEST

START_TEST(garbage_at_any_step_is_a_breach)
{
    static const unsigned char garbage[] = {0x0a, 0xff, 0xff};
    struct call call = {0};

    (void) step_reach((enum step) _i, &call);
    broker_send_bytes(&script, garbage, sizeof(garbage));
    ck_assert_int_eq(call_join(&call), GMB_E_PROTOCOL);
    ck_assert_uint_eq(fake_gpu_mapped(), step_keeps((enum step) _i));
    broker_close(&script);
    script_end(&script);
}
END_TEST

START_TEST(answer_to_nobody_is_a_breach_at_any_step)
{
    struct call call = {0};

    broker_done(&script, step_reach((enum step) _i, &call) + 1);
    ck_assert_int_eq(call_join(&call), GMB_E_PROTOCOL);
    ck_assert_uint_eq(fake_gpu_mapped(), step_keeps((enum step) _i));
    broker_close(&script);
    script_end(&script);
}
END_TEST

static void spoil_fds(struct grant *grant, size_t *n_fds)
{
    *n_fds -= 1;
}
static void spoil_more_fds(struct grant *grant, size_t *n_fds)
{
    *n_fds += 1;
}
static void spoil_no_fds(struct grant *grant, size_t *n_fds)
{
    *n_fds = 0;
}
static void spoil_device(struct grant *grant, size_t *n_fds)
{
    static uint8_t other[16] = {1};

    grant->grant.device.data = other;
}
static void spoil_no_device(struct grant *grant, size_t *n_fds)
{
    grant->grant.device.len = 0;
}
static void spoil_handle_type(struct grant *grant, size_t *n_fds)
{
    grant->grant.handle_type = (Gmb__HandleType) 7;
}
static void spoil_chunk_bytes(struct grant *grant, size_t *n_fds)
{
    grant->grant.chunk_bytes = CHUNK + 4096;
}
static void spoil_larger_chunks(struct grant *grant, size_t *n_fds)
{
    grant->grant.chunk_bytes = 2 * CHUNK;
}
static void spoil_total(struct grant *grant, size_t *n_fds)
{
    grant->grant.total_chunks++;
}
static void spoil_first(struct grant *grant, size_t *n_fds)
{
    grant->grant.first_chunk++;
    grant->grant.total_chunks++;
}
static void spoil_lease(struct grant *grant, size_t *n_fds)
{
    grant->grant.lease = LEASE_ID + 1;
}

static const struct {
    const char *name;
    void (*spoil)(struct grant *grant, size_t *n_fds);
    bool only_grow; /* right for a new lease */
} spoils[] = {
    {"an fd less", spoil_fds, false},
    {"an fd more", spoil_more_fds, false},
    {"no fds", spoil_no_fds, false},
    {"another device", spoil_device, false},
    {"no device", spoil_no_device, false},
    {"an unknown handle type", spoil_handle_type, false},
    {"chunks of no granularity", spoil_chunk_bytes, false},
    {"another total", spoil_total, false},
    {"another first chunk", spoil_first, false},
    {"chunks of another size", spoil_larger_chunks, true},
    {"another lease", spoil_lease, true},
};

START_TEST(grant_that_does_not_fit_the_request_is_a_breach)
{
    struct grant grant;
    size_t n_fds = 4;
    struct call call = {0};
    uint64_t id;

    id = step_reach(spoils[_i].only_grow ? IN_A_GROW : BEFORE_THE_GRANT, &call);
    if (spoils[_i].only_grow)
        grant_fill(&grant, id, 2, 4, 6);
    else
        grant_fill(&grant, id, 0, 4, 4);
    spoils[_i].spoil(&grant, &n_fds);
    broker_send(&script, &grant.message.base, n_fds);
    ck_assert_msg(call_join(&call) == GMB_E_PROTOCOL, "%s gives %d", spoils[_i].name, call.result);
    ck_assert_uint_eq(fake_gpu_mapped(), spoils[_i].only_grow ? 2 * CHUNK : 0);
    broker_close(&script);
    script_end(&script);
}
END_TEST

/* A second part that contradicts the first. */
START_TEST(grant_that_changes_half_way_is_a_breach)
{
    struct grant grant;
    size_t n_fds = 1;
    struct call call = {0};
    uint64_t id = step_reach(AFTER_THE_FIRST_PART, &call);

    grant_fill(&grant, id, 3, 1, 4);
    spoils[_i].spoil(&grant, &n_fds);
    broker_send(&script, &grant.message.base, n_fds);
    ck_assert_msg(call_join(&call) == GMB_E_PROTOCOL, "%s gives %d", spoils[_i].name, call.result);
    ck_assert_uint_eq(fake_gpu_mapped(), 0);
    broker_close(&script);
    script_end(&script);
}
END_TEST

START_TEST(unknown_status_is_a_breach)
{
    struct call call = {0};

    broker_error(&script, step_reach(BEFORE_THE_GRANT, &call), (enum gmb_status) _i, GMB_LIMIT_NONE,
        "strange");
    ck_assert_int_eq(call_join(&call), GMB_E_PROTOCOL);
    broker_close(&script);
    script_end(&script);
}
END_TEST

/* Error with id 0: the broker says why it ends the session. */
START_TEST(parting_words_are_the_reason)
{
    struct call call = {0};

    (void) step_reach(BEFORE_THE_GRANT, &call);
    broker_error(&script, 0, GMB_STATUS_PROTOCOL, GMB_LIMIT_NONE, "you sent nonsense");
    broker_close(&script);
    ck_assert_int_eq(call_join(&call), GMB_E_PROTOCOL);
    ck_assert_str_ne(call.text, "");
    script_end(&script);
}
END_TEST

START_TEST(a_broker_that_said_that_it_ends_was_ended_in_order)
{
    Gmb__BrokerMessage message = GMB__BROKER_MESSAGE__INIT;
    Gmb__Ending ending = GMB__ENDING__INIT;
    gmb_lease *lease;

    script_begin(&script);
    script_connect(&script);
    lease = script_lease(&script, 2);
    message.body_case = GMB__BROKER_MESSAGE__BODY_ENDING;
    message.ending = &ending;
    broker_send(&script, &message.base, 0);
    /* Nothing has changed yet. */
    ck_assert_int_eq(gmb_dispatch(script.session, 0), 0);
    broker_close(&script);
    ck_assert_int_eq(gmb_dispatch(script.session, -1), GMB_E_DISCONNECTED);
    ck_assert_str_eq(gmb_error_text(), "the broker was ended in order");
    ck_assert_uint_eq(gmb_lease_bytes(lease), 2 * CHUNK);
    script_end(&script);
}
END_TEST

START_TEST(a_reply_without_a_request_is_ignored)
{
    struct call call = {0};
    uint64_t id = step_reach(BEFORE_THE_GRANT, &call);

    broker_done(&script, 0);
    broker_grant(&script, id, 0, 4, 4);
    ck_assert_int_eq(call_join(&call), 0);
    script_end(&script);
}
END_TEST

/* An envelope with field 1000, in which a later version has a body of two bytes. */
static void later_body_send(uint64_t id, size_t n_fds)
{
    static uint8_t data[] = {2, 8, 1};
    ProtobufCMessageUnknownField body = {
        .tag = 1000,
        .wire_type = PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED,
        .len = sizeof(data),
        .data = data,
    };
    Gmb__BrokerMessage message = GMB__BROKER_MESSAGE__INIT;

    message.id = id;
    message.base.n_unknown_fields = 1;
    message.base.unknown_fields = &body;
    broker_send(&script, &message.base, n_fds);
}

/* With and without fds: script_end() finds those that stay open. */
START_TEST(events_of_a_later_version_are_ignored_with_their_fds)
{
    struct call call = {0};
    uint64_t id = step_reach(BEFORE_THE_GRANT, &call);

    later_body_send(0, (size_t) _i);
    broker_grant(&script, id, 0, 4, 4);
    ck_assert_int_eq(call_join(&call), 0);
    later_body_send(0, (size_t) _i);
    ck_assert_int_eq(gmb_dispatch(script.session, 0), 0);
    script_end(&script);
}
END_TEST

START_TEST(an_answer_of_a_later_version_is_a_breach)
{
    struct call call = {0};

    later_body_send(step_reach(BEFORE_THE_GRANT, &call), 0);
    ck_assert_int_eq(call_join(&call), GMB_E_PROTOCOL);
    ck_assert_uint_eq(fake_gpu_mapped(), 0);
    broker_close(&script);
    script_end(&script);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client breach");
    TCase *steps = tcase_create("client breach");

    tcase_add_loop_test(steps, broker_that_closes_at_any_step_leaves_what_was_mapped, 0, STEP_MAX);
    tcase_add_test(steps, disconnect_after_the_broker_has_gone_unmaps_everything);
    tcase_add_loop_test(steps, garbage_at_any_step_is_a_breach, 0, STEP_MAX);
    tcase_add_loop_test(steps, answer_to_nobody_is_a_breach_at_any_step, 0, STEP_MAX);
    tcase_add_loop_test(
        steps, grant_that_does_not_fit_the_request_is_a_breach, 0, (int) ARRAY_SIZE(spoils));
    tcase_add_loop_test(
        steps, grant_that_changes_half_way_is_a_breach, 0, (int) ARRAY_SIZE(spoils));
    tcase_add_loop_test(steps, unknown_status_is_a_breach, GMB_STATUS_MAX, GMB_STATUS_MAX + 2);
    tcase_add_loop_test(steps, unknown_status_is_a_breach, 0, 1);
    tcase_add_test(steps, parting_words_are_the_reason);
    tcase_add_test(steps, a_broker_that_said_that_it_ends_was_ended_in_order);
    tcase_add_test(steps, a_reply_without_a_request_is_ignored);
    tcase_add_loop_test(steps, events_of_a_later_version_are_ignored_with_their_fds, 0, 3);
    tcase_add_test(steps, an_answer_of_a_later_version_is_a_breach);
    suite_add_tcase(suite, steps);
    return unit_run_suite(suite);
}
