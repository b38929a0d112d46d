/* Blocking calls on a lease: what the broker hears, what is mapped, and what a failure undoes. */
#include <string.h>

#include "tests/client/script.h"
#include "tests/unit/unit.h"

static struct script script;

START_TEST(grant_in_parts_becomes_one_lease)
{
    struct call call = {.bytes = 5 * CHUNK - 1, .wait_ns = 1234};
    Gmb__ClientMessage *request;

    script_begin(&script);
    script_connect(&script);
    call_start(&script, &call, call_lease);
    request = broker_expect(&script, GMB__CLIENT_MESSAGE__BODY_LEASE_REQUEST);
    ck_assert_uint_eq(request->lease_request->bytes, 5 * CHUNK - 1);
    ck_assert_uint_eq(request->lease_request->wait_ns, 1234);
    ck_assert_uint_eq(request->lease_request->chunk_bytes, 0);
    ck_assert_str_eq(request->lease_request->label, "scripted");
    ck_assert_int_eq(memcmp(request->lease_request->device.data, fake_gpu_uuid, 16), 0);
    broker_grant(&script, request->id, 0, 2, 5);
    broker_grant(&script, request->id, 2, 1, 5);
    broker_grant(&script, request->id, 3, 2, 5);
    message_free(request);
    ck_assert_int_eq(call_join(&call), 0);

    ck_assert_uint_eq(gmb_lease_bytes(call.lease), 5 * CHUNK);
    ck_assert_uint_eq(gmb_lease_chunk_bytes(call.lease), CHUNK);
    ck_assert_uint_eq(gmb_lease_max_bytes(call.lease), 16 * CHUNK);
    ck_assert_uint_ne(gmb_lease_address(call.lease), 0);
    ck_assert_uint_eq(fake_gpu_accessible(), 5 * CHUNK);
    /* One call for the whole run, however many chunks. */
    ck_assert_uint_eq(fake_gpu_calls(FAKE_GPU_SET_ACCESS), 1);
    /* An imported handle is given back at once. */
    ck_assert_uint_eq(fake_gpu_calls(FAKE_GPU_RELEASE), 5);
    script_end(&script);
}
END_TEST

START_TEST(grow_and_shrink_keep_the_address)
{
    Gmb__ClientMessage *message;
    struct call call = {.bytes = 2 * CHUNK + 1};
    uint64_t address;

    script_begin(&script);
    script_connect(&script);
    call.lease = script_lease(&script, 2);
    address = gmb_lease_address(call.lease);

    call_start(&script, &call, call_grow);
    message = broker_expect(&script, GMB__CLIENT_MESSAGE__BODY_LEASE_GROW);
    ck_assert_uint_eq(message->lease_grow->lease, LEASE_ID);
    ck_assert_uint_eq(message->lease_grow->bytes, 2 * CHUNK + 1);
    broker_grant(&script, message->id, 2, 3, 5);
    message_free(message);
    ck_assert_int_eq(call_join(&call), 0);
    ck_assert_uint_eq(gmb_lease_bytes(call.lease), 5 * CHUNK);
    ck_assert_uint_eq(gmb_lease_address(call.lease), address);
    ck_assert_uint_eq(fake_gpu_accessible(), 5 * CHUNK);

    call.bytes = CHUNK + 1;
    call_start(&script, &call, call_shrink);
    message = broker_expect(&script, GMB__CLIENT_MESSAGE__BODY_LEASE_SHRINK);
    /* Unmapped before the broker hears of it, and not before the device had finished. */
    ck_assert_uint_eq(fake_gpu_mapped(), 2 * CHUNK);
    ck_assert_uint_eq(fake_gpu_calls(FAKE_GPU_SYNCHRONIZE), 1);
    ck_assert_uint_eq(message->lease_shrink->lease, LEASE_ID);
    ck_assert_uint_eq(message->lease_shrink->keep_chunks, 2);
    broker_done(&script, message->id);
    message_free(message);
    ck_assert_int_eq(call_join(&call), 0);
    ck_assert_uint_eq(gmb_lease_bytes(call.lease), 2 * CHUNK);
    ck_assert_uint_eq(gmb_lease_address(call.lease), address);
    script_end(&script);
}
END_TEST

START_TEST(shrink_to_what_it_has_says_nothing)
{
    gmb_lease *lease;

    script_begin(&script);
    script_connect(&script);
    lease = script_lease(&script, 2);
    ck_assert_int_eq(gmb_lease_shrink(lease, 2 * CHUNK), 0);
    ck_assert_int_eq(gmb_lease_shrink(lease, CHUNK + 1), 0);
    ck_assert_int_eq(gmb_lease_shrink(lease, 2 * CHUNK + 1), GMB_E_INVALID);
    broker_expect_silence(&script);
    ck_assert_uint_eq(fake_gpu_accessible(), 2 * CHUNK);
    script_end(&script);
}
END_TEST

START_TEST(shrink_to_nothing_keeps_lease_and_address)
{
    struct call call = {.bytes = 0};
    uint64_t address;

    script_begin(&script);
    script_connect(&script);
    call.lease = script_lease(&script, 2);
    address = gmb_lease_address(call.lease);
    call_start(&script, &call, call_shrink);
    broker_done(&script, broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_LEASE_SHRINK));
    ck_assert_int_eq(call_join(&call), 0);
    ck_assert_uint_eq(gmb_lease_bytes(call.lease), 0);
    ck_assert_uint_eq(gmb_lease_address(call.lease), address);

    call.bytes = 16 * CHUNK;
    call_start(&script, &call, call_grow);
    broker_grant(
        &script, broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_LEASE_GROW), 0, 16, 16);
    ck_assert_int_eq(call_join(&call), 0);
    ck_assert_uint_eq(gmb_lease_address(call.lease), address);
    ck_assert_uint_eq(fake_gpu_accessible(), 16 * CHUNK);
    script_end(&script);
}
END_TEST

START_TEST(growth_ends_at_max_bytes)
{
    struct call call = {.bytes = 14 * CHUNK};

    script_begin(&script);
    script_connect(&script);
    call.lease = script_lease(&script, 2);
    ck_assert_int_eq(gmb_lease_grow(call.lease, 14 * CHUNK + 1, 0), GMB_E_INVALID);
    ck_assert_int_eq(gmb_lease_grow(call.lease, UINT64_MAX, 0), GMB_E_INVALID);
    ck_assert_int_eq(gmb_lease_grow(call.lease, 0, 0), GMB_E_INVALID);
    broker_expect_silence(&script);
    call_start(&script, &call, call_grow);
    broker_grant(
        &script, broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_LEASE_GROW), 2, 14, 16);
    ck_assert_int_eq(call_join(&call), 0);
    script_end(&script);
}
END_TEST

START_TEST(release_unmaps_before_it_tells)
{
    Gmb__ClientMessage *message;
    struct call call = {0};

    script_begin(&script);
    script_connect(&script);
    call.lease = script_lease(&script, 3);
    call_start(&script, &call, call_release);
    message = broker_expect(&script, GMB__CLIENT_MESSAGE__BODY_LEASE_RELEASE);
    ck_assert_uint_eq(message->lease_release->lease, LEASE_ID);
    ck_assert_uint_eq(fake_gpu_mapped(), 0);
    broker_done(&script, message->id);
    message_free(message);
    ck_assert_int_eq(call_join(&call), 0);
    ck_assert_int_eq(gmb_lease_release(NULL), 0);
    script_end(&script);
}
END_TEST

START_TEST(refusal_names_the_limit)
{
    struct call call = {.bytes = CHUNK};

    script_begin(&script);
    script_connect(&script);
    call_start(&script, &call, call_lease);
    broker_error(&script, broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_LEASE_REQUEST),
        GMB_STATUS_OVER_LIMIT, GMB_LIMIT_MEMORY_MAX, "over MemoryMax=1M of tenant chat");
    ck_assert_int_eq(call_join(&call), GMB_E_OVER_LIMIT);
    ck_assert_str_eq(call.text, "over MemoryMax=1M of tenant chat");
    ck_assert_str_eq(call.limit, "MemoryMax");
    ck_assert_ptr_null(call.lease);
    ck_assert_uint_eq(fake_gpu_mapped(), 0);
    script_end(&script);
}
END_TEST

/* Plays a lease of 4 chunks in two parts whose import, mapping or access fails, to its end. */
static void failing_lease(enum fake_gpu_call failing, unsigned nth)
{
    Gmb__ClientMessage *message;
    struct call call = {.bytes = 4 * CHUNK};
    uint64_t id;

    script_begin(&script);
    script_connect(&script);
    fake_gpu_fail(failing, nth);
    call_start(&script, &call, call_lease);
    id = broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_LEASE_REQUEST);
    broker_grant(&script, id, 0, 3, 4);
    broker_grant(&script, id, 3, 1, 4);
    ck_assert_int_eq(call_join(&call), GMB_E_GPU);
    ck_assert_ptr_null(call.lease);
    ck_assert_uint_eq(fake_gpu_mapped(), 0);
    message = broker_expect(&script, GMB__CLIENT_MESSAGE__BODY_LEASE_RELEASE);
    ck_assert_uint_eq(message->lease_release->lease, LEASE_ID);
    broker_done(&script, message->id);
    message_free(message);
    script_end(&script);
}

START_TEST(failure_at_any_chunk_gives_the_whole_lease_back)
{
    static const enum fake_gpu_call failing[] = {FAKE_GPU_IMPORT, FAKE_GPU_MAP, FAKE_GPU_RELEASE};

    for (size_t i = 0; i < ARRAY_SIZE(failing); i++) {
        for (unsigned nth = 1; nth <= 4; nth++)
            failing_lease(failing[i], nth);
    }
    failing_lease(FAKE_GPU_RESERVE, 1);
    failing_lease(FAKE_GPU_SET_ACCESS, 1);
}
END_TEST

/* Plays a grow from 2 to 5 chunks that fails: the lease stays as it was, here and there. */
static void failing_grow(enum fake_gpu_call failing, unsigned nth)
{
    Gmb__ClientMessage *message;
    struct call call = {.bytes = 3 * CHUNK};
    uint64_t address;

    script_begin(&script);
    script_connect(&script);
    call.lease = script_lease(&script, 2);
    address = gmb_lease_address(call.lease);
    fake_gpu_fail(failing, nth);
    call_start(&script, &call, call_grow);
    broker_grant(&script, broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_LEASE_GROW), 2, 3, 5);
    ck_assert_int_eq(call_join(&call), GMB_E_GPU);
    ck_assert_uint_eq(gmb_lease_bytes(call.lease), 2 * CHUNK);
    ck_assert_uint_eq(gmb_lease_address(call.lease), address);
    ck_assert_uint_eq(fake_gpu_accessible(), 2 * CHUNK);
    ck_assert_uint_eq(fake_gpu_mapped(), 2 * CHUNK);
    message = broker_expect(&script, GMB__CLIENT_MESSAGE__BODY_LEASE_SHRINK);
    ck_assert_uint_eq(message->lease_shrink->lease, LEASE_ID);
    ck_assert_uint_eq(message->lease_shrink->keep_chunks, 2);
    broker_done(&script, message->id);
    message_free(message);

    /* And it can grow afterwards. */
    call_start(&script, &call, call_grow);
    broker_grant(&script, broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_LEASE_GROW), 2, 3, 5);
    ck_assert_int_eq(call_join(&call), 0);
    script_end(&script);
}

START_TEST(failure_at_any_chunk_of_a_grow_restores_the_lease)
{
    static const enum fake_gpu_call failing[] = {FAKE_GPU_IMPORT, FAKE_GPU_MAP, FAKE_GPU_RELEASE};

    for (size_t i = 0; i < ARRAY_SIZE(failing); i++) {
        for (unsigned nth = 1; nth <= 3; nth++)
            failing_grow(failing[i], nth);
    }
    failing_grow(FAKE_GPU_SET_ACCESS, 1);
}
END_TEST

START_TEST(error_after_a_first_part_leaves_nothing)
{
    struct call call = {.bytes = 4 * CHUNK};
    uint64_t id;

    script_begin(&script);
    script_connect(&script);
    call_start(&script, &call, call_lease);
    id = broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_LEASE_REQUEST);
    broker_grant(&script, id, 0, 3, 4);
    broker_error(&script, id, GMB_STATUS_GPU, GMB_LIMIT_NONE, "export failed");
    ck_assert_int_eq(call_join(&call), GMB_E_GPU);
    ck_assert_str_eq(call.text, "export failed");
    ck_assert_uint_eq(fake_gpu_mapped(), 0);
    /* An Error says that the broker holds nothing for us: there is nothing to give back. */
    broker_expect_silence(&script);
    script_end(&script);
}
END_TEST

/* The device is at work and can't say when it is done: its memory must not go. */
START_TEST(memory_that_stays_mapped_is_not_said_to_be_free)
{
    gmb_lease *lease;
    struct call call = {.bytes = 0};

    script_begin(&script);
    script_connect(&script);
    lease = script_lease(&script, 2);
    fake_gpu_fail(FAKE_GPU_SYNCHRONIZE, 1);
    ck_assert_int_eq(gmb_lease_shrink(lease, CHUNK), GMB_E_GPU);
    fake_gpu_fail(FAKE_GPU_UNMAP, 1);
    ck_assert_int_eq(gmb_lease_shrink(lease, CHUNK), GMB_E_GPU);
    ck_assert_uint_eq(gmb_lease_bytes(lease), 2 * CHUNK);
    ck_assert_uint_eq(fake_gpu_accessible(), 2 * CHUNK);
    broker_expect_silence(&script);
    call.lease = lease;
    call_start(&script, &call, call_shrink);
    broker_done(&script, broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_LEASE_SHRINK));
    ck_assert_int_eq(call_join(&call), 0);
    script_end(&script);
}
END_TEST

START_TEST(senseless_parameters_are_refused_unsent)
{
    struct gmb_lease_params params = {.size = sizeof(params), .bytes = CHUNK}, bad;
    gmb_lease *lease = NULL;

    script_begin(&script);
    script_connect(&script);
    bad = params;
    bad.size--;
    ck_assert_int_eq(gmb_lease_new(script.session, &bad, &lease), GMB_E_INVALID);
    bad = params;
    bad.bytes = 0;
    ck_assert_int_eq(gmb_lease_new(script.session, &bad, &lease), GMB_E_INVALID);
    bad = params;
    bad.max_bytes = CHUNK - 1;
    ck_assert_int_eq(gmb_lease_new(script.session, &bad, &lease), GMB_E_INVALID);
    bad = params;
    bad.chunk_bytes = CHUNK + 1;
    ck_assert_int_eq(gmb_lease_new(script.session, &bad, &lease), GMB_E_INVALID);
    bad = params;
    bad.device = "GPU-00000000-0000-0000-0000-000000000000";
    ck_assert_int_eq(gmb_lease_new(script.session, &bad, &lease), GMB_E_NOT_FOUND);
    ck_assert_int_eq(gmb_lease_new(script.session, NULL, &lease), GMB_E_INVALID);
    fake_gpu_fail(FAKE_GPU_RETAIN, 1);
    ck_assert_int_eq(gmb_lease_new(script.session, &params, &lease), GMB_E_GPU);
    ck_assert_ptr_null(lease);
    broker_expect_silence(&script);
    script_end(&script);
}
END_TEST

static void note_error(void *user, gmb_lease *lease, int error)
{
    *(int *) user = error;
}

/* What comes from an application must not make the broker drop it. */
START_TEST(label_is_made_fit_to_travel)
{
    char label[80];
    struct gmb_lease_params params = {.size = sizeof(params), .bytes = CHUNK, .label = label};
    Gmb__ClientMessage *message;
    uint64_t request;
    int ended = 0;

    memset(label, 'x', sizeof(label));
    memcpy(label, "a\x1b[31m\xff", 7);
    label[62] = '\xe2'; /* a character of three bytes over the edge of 64 */
    label[63] = '\x82';
    label[64] = '\xac';
    label[79] = '\0';
    script_begin(&script);
    script_connect(&script);
    ck_assert_int_eq(
        gmb_lease_new_async(script.session, &params, NULL, NULL, &request), GMB_E_INVALID);
    ck_assert_int_eq(gmb_lease_new_async(script.session, &params, note_error, &ended, &request), 0);
    message = broker_expect(&script, GMB__CLIENT_MESSAGE__BODY_LEASE_REQUEST);
    ck_assert_uint_eq(message->id, request);
    ck_assert_uint_eq(strlen(message->lease_request->label), 62);
    ck_assert_int_eq(memcmp(message->lease_request->label, "a?[31m?x", 8), 0);
    message_free(message);
    script_end(&script);
    ck_assert_int_eq(ended, GMB_E_CANCELLED);
}
END_TEST

UNIT_MAIN("client lease", grant_in_parts_becomes_one_lease, grow_and_shrink_keep_the_address,
    shrink_to_what_it_has_says_nothing, shrink_to_nothing_keeps_lease_and_address,
    growth_ends_at_max_bytes, release_unmaps_before_it_tells, refusal_names_the_limit,
    failure_at_any_chunk_gives_the_whole_lease_back,
    failure_at_any_chunk_of_a_grow_restores_the_lease, error_after_a_first_part_leaves_nothing,
    memory_that_stays_mapped_is_not_said_to_be_free, senseless_parameters_are_refused_unsent,
    label_is_made_fit_to_travel)
