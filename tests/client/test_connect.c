/* Connecting: every step at which the broker may refuse, vanish or talk nonsense. */
#include <string.h>

#include "tests/client/script.h"
#include "tests/unit/unit.h"

static struct script script;

START_TEST(greeting_tells_tenant_and_devices)
{
    struct gmb_device_info info = {.size = sizeof(info)};
    Gmb__ClientMessage *hello;
    struct call call;

    script_begin(&script);
    call_start(&script, &call, call_connect);
    broker_accept(&script);
    hello = broker_expect(&script, GMB__CLIENT_MESSAGE__BODY_HELLO);
    ck_assert_uint_eq(hello->hello->version, 1);
    ck_assert_str_eq(hello->hello->program, "scripted");
    broker_welcome(&script, hello->id);
    message_free(hello);
    ck_assert_int_eq(call_join(&call), 0);

    ck_assert_str_eq(gmb_tenant(script.session), "chat");
    ck_assert_str_eq(gmb_driver(script.session), "sim");
    ck_assert_ptr_null(gmb_driver_symbol(script.session, "cuInit"));
    ck_assert_uint_eq(gmb_device_count(script.session), 1);
    ck_assert_int_eq(gmb_device_get(script.session, 0, &info), 0);
    ck_assert_str_eq(info.uuid, "GPU-abcdef01-2345-6789-abcd-ef0123456789");
    ck_assert_str_eq(info.name, "Book keeper");
    ck_assert_uint_eq(info.capacity_bytes, 1024 * CHUNK);
    ck_assert_uint_eq(info.granularity_bytes, CHUNK);
    ck_assert_uint_eq(info.memory_max_bytes, 512 * CHUNK);
    ck_assert_int_eq(gmb_device_get(script.session, 1, &info), GMB_E_INVALID);
    script_end(&script);
}
END_TEST

START_TEST(nobody_listening_is_disconnected_and_says_what_to_do)
{
    struct gmb_options options = {.size = sizeof(options), .socket = "/nonexistent/client.sock"};
    gmb_session *session = NULL;

    ck_assert_int_eq(gmb_connect(&options, &session), GMB_E_DISCONNECTED);
    ck_assert_str_eq(gmb_error_text(),
        "gmbd isn't listening on /nonexistent/client.sock: is gmbd.service running?");
    ck_assert_ptr_null(session);
}
END_TEST

START_TEST(refusal_of_the_greeting_is_handed_on)
{
    struct call call;

    script_begin(&script);
    call_start(&script, &call, call_connect);
    broker_accept(&script);
    broker_error(&script, broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_HELLO),
        GMB_STATUS_EXHAUSTED, GMB_LIMIT_CLIENTS_MAX, "tenant chat has its 4 clients");
    ck_assert_int_eq(call_join(&call), GMB_E_EXHAUSTED);
    ck_assert_str_eq(call.text, "tenant chat has its 4 clients");
    ck_assert_str_eq(call.limit, "ClientsMax");
    ck_assert_ptr_null(script.session);
    script_end(&script);
}
END_TEST

/* A broker that is full says so before the Hello and closes. */
START_TEST(refusal_before_the_greeting_is_handed_on)
{
    struct call call;

    script_begin(&script);
    call_start(&script, &call, call_connect);
    broker_accept(&script);
    broker_error(&script, 0, GMB_STATUS_DENIED, GMB_LIMIT_NONE, "no tenant");
    broker_close(&script);
    ck_assert_int_eq(call_join(&call), GMB_E_DENIED);
    ck_assert_str_eq(call.text, "no tenant");
    script_end(&script);
}
END_TEST

START_TEST(broker_that_closes_while_greeting_is_disconnected)
{
    struct call call;

    script_begin(&script);
    call_start(&script, &call, call_connect);
    broker_accept(&script);
    (void) broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_HELLO);
    broker_close(&script);
    ck_assert_int_eq(call_join(&call), GMB_E_DISCONNECTED);
    script_end(&script);
}
END_TEST

START_TEST(garbage_instead_of_a_welcome_is_a_breach)
{
    static const unsigned char garbage[] = {0xff, 0x00, 0x13};
    struct call call;

    script_begin(&script);
    call_start(&script, &call, call_connect);
    broker_accept(&script);
    broker_send_bytes(&script, garbage, sizeof(garbage));
    ck_assert_int_eq(call_join(&call), GMB_E_PROTOCOL);
    script_end(&script);
}
END_TEST

START_TEST(answer_of_another_kind_is_a_breach)
{
    struct call call;

    script_begin(&script);
    call_start(&script, &call, call_connect);
    broker_accept(&script);
    broker_done(&script, broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_HELLO));
    ck_assert_int_eq(call_join(&call), GMB_E_PROTOCOL);
    script_end(&script);
}
END_TEST

START_TEST(silent_broker_times_out)
{
    struct gmb_options options = {
        .size = sizeof(options), .socket = script.path, .timeout_ns = 20000000};
    gmb_session *session = NULL;

    script_begin(&script);
    ck_assert_int_eq(gmb_connect(&options, &session), GMB_E_TIMED_OUT);
    ck_assert_ptr_null(session);
    script_end(&script);
}
END_TEST

START_TEST(driver_that_cannot_be_loaded_is_named)
{
    struct call call;

    script_begin(&script);
    fake_gpu_fail(FAKE_GPU_OPEN, 1);
    call_start(&script, &call, call_connect);
    broker_accept(&script);
    broker_welcome(&script, broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_HELLO));
    ck_assert_int_eq(call_join(&call), GMB_E_GPU);
    ck_assert_str_eq(call.text, "call 0 is told to fail");
    script_end(&script);
}
END_TEST

START_TEST(bad_arguments_are_refused)
{
    char long_path[200];
    struct gmb_options options = {.size = offsetof(struct gmb_options, offline) - 1};
    gmb_session *session = NULL;

    ck_assert_int_eq(gmb_connect(&options, &session), GMB_E_INVALID);
    memset(long_path, 'x', sizeof(long_path));
    long_path[108] = '\0';
    options = (struct gmb_options){.size = sizeof(options), .socket = long_path};
    ck_assert_int_eq(gmb_connect(&options, &session), GMB_E_INVALID);
    long_path[107] = '\0';
    ck_assert_int_eq(gmb_connect(&options, &session), GMB_E_DISCONNECTED);
    gmb_disconnect(NULL);
}
END_TEST

START_TEST(every_code_has_its_own_text)
{
    for (int code = GMB_E_INTERNAL; code <= 0; code++) {
        for (int other = GMB_E_INTERNAL; other < code; other++)
            ck_assert_str_ne(gmb_strerror(code), gmb_strerror(other));
    }
    ck_assert_str_eq(gmb_strerror(1), "unknown status");
    ck_assert_str_eq(gmb_strerror(GMB_E_INTERNAL - 1), "unknown status");
    ck_assert_str_eq(gmb_error_limit(), "none");
    ck_assert_str_eq(gmb_error_text(), "");
}
END_TEST

UNIT_MAIN("client connect", greeting_tells_tenant_and_devices,
    nobody_listening_is_disconnected_and_says_what_to_do, refusal_of_the_greeting_is_handed_on,
    refusal_before_the_greeting_is_handed_on, broker_that_closes_while_greeting_is_disconnected,
    garbage_instead_of_a_welcome_is_a_breach, answer_of_another_kind_is_a_breach,
    silent_broker_times_out, driver_that_cannot_be_loaded_is_named, bad_arguments_are_refused,
    every_code_has_its_own_text)
