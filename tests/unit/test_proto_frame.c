/* Frames: what a peer may send decodes, and one byte, item or level more doesn't. */
#include <errno.h>
#include <string.h>

#include "proto/frame.h"
#include "proto/wire.h"
#include "tests/unit/unit.h"

static int decode_client(const void *bytes, size_t size)
{
    Gmb__ClientMessage *message = NULL;
    int r = frame_decode_client(bytes, size, &message);

    ck_assert_int_eq(r == 0, message != NULL);
    if (message != NULL)
        frame_message_free(&message->base);
    return r;
}

/* Hello with a program name of `size` bytes `c`. */
static int decode_hello(size_t size, char c)
{
    Gmb__ClientMessage message;
    Gmb__Hello hello;
    struct frame frame;
    char name[400] = "";

    memset(name, c, size);
    gmb__client_message__init(&message);
    gmb__hello__init(&hello);
    hello.version = 1;
    hello.program = name;
    message.id = 1;
    message.body_case = GMB__CLIENT_MESSAGE__BODY_HELLO;
    message.hello = &hello;
    ck_assert_int_eq(frame_encode(&frame, &message.base), 0);
    return decode_client(frame.bytes, frame.size);
}

START_TEST(what_was_encoded_is_decoded)
{
    Gmb__ClientMessage message, *again;
    Gmb__LeaseRequest lease;
    struct frame frame;
    char label[] = "kv cache \xc3\xa9";

    gmb__client_message__init(&message);
    gmb__lease_request__init(&lease);
    lease.bytes = UINT64_MAX;
    lease.wait_ns = 5;
    lease.label = label;
    message.id = FRAME_BROKER_ID - 1;
    message.body_case = GMB__CLIENT_MESSAGE__BODY_LEASE_REQUEST;
    message.lease_request = &lease;
    ck_assert_int_eq(frame_encode(&frame, &message.base), 0);
    ck_assert_int_eq(frame_decode_client(frame.bytes, frame.size, &again), 0);
    ck_assert_uint_eq(again->id, FRAME_BROKER_ID - 1);
    ck_assert_uint_eq(again->lease_request->bytes, UINT64_MAX);
    ck_assert_uint_eq(again->lease_request->wait_ns, 5);
    ck_assert_str_eq(again->lease_request->label, label);
    frame_message_free(&again->base);
    message.id = FRAME_BROKER_ID;
    ck_assert_int_eq(frame_encode(&frame, &message.base), 0);
    ck_assert_int_eq(frame_decode_client(frame.bytes, frame.size, &again), -EBADMSG);
}
END_TEST

START_TEST(an_envelope_needs_id_and_body)
{
    ck_assert_int_eq(decode_client("\x08\x01\x12\x00", 4), 0);
    ck_assert_int_eq(decode_client("\x08\x00\x12\x00", 4), -EBADMSG);
    ck_assert_int_eq(decode_client("\x12\x00", 2), -EBADMSG);
    ck_assert_int_eq(decode_client("\x08\x01", 2), -EBADMSG);
    ck_assert_int_eq(decode_client("", 0), -EBADMSG);
    /* Two bodies: the last would win silently. */
    ck_assert_int_eq(decode_client("\x08\x01\x12\x00\x3a\x00", 6), -EBADMSG);
}
END_TEST

/* PageWant is field 12, ArenaMapped 11, ArenaReturn 10: the first two are told, not asked. */
START_TEST(what_a_client_tells_has_no_id_and_what_it_asks_has)
{
    ck_assert_int_eq(decode_client("\x5a\x00", 2), 0);
    ck_assert_int_eq(decode_client("\x62\x00", 2), 0);
    ck_assert_int_eq(decode_client("\x08\x01\x5a\x00", 4), -EBADMSG);
    ck_assert_int_eq(decode_client("\x08\x01\x62\x00", 4), -EBADMSG);
    ck_assert_int_eq(decode_client("\x52\x00", 2), -EBADMSG);
    ck_assert_int_eq(decode_client("\x08\x01\x52\x00", 4), 0);
}
END_TEST

static int decode_want(size_t count)
{
    static uint32_t pages[LIMIT_WANT_PAGES + 1];
    Gmb__ClientMessage message = GMB__CLIENT_MESSAGE__INIT;
    Gmb__PageWant want = GMB__PAGE_WANT__INIT;
    struct frame frame;

    for (size_t i = 0; i < count; i++)
        pages[i] = UINT32_MAX;
    want.n_pages = count;
    want.pages = pages;
    message.body_case = GMB__CLIENT_MESSAGE__BODY_PAGE_WANT;
    message.page_want = &want;
    ck_assert_int_eq(frame_encode(&frame, &message.base), 0);
    return decode_client(frame.bytes, frame.size);
}

START_TEST(runs_of_numbers_end_at_their_bound)
{
    ck_assert_int_eq(decode_want(LIMIT_WANT_PAGES), 0);
    ck_assert_int_eq(decode_want(LIMIT_WANT_PAGES + 1), -EBADMSG);
    /* Page 1, page 2^32, a number that doesn't end; two runs, which together could pass the bound.
     */
    ck_assert_int_eq(decode_client("\x62\x03\x12\x01\x01", 5), 0);
    ck_assert_int_eq(decode_client("\x62\x07\x12\x05\x80\x80\x80\x80\x10", 9), -EBADMSG);
    ck_assert_int_eq(decode_client("\x62\x03\x12\x01\x81", 5), -EBADMSG);
    ck_assert_int_eq(decode_client("\x62\x06\x12\x01\x01\x12\x01\x01", 8), -EBADMSG);
}
END_TEST

START_TEST(names_end_at_their_bound)
{
    ck_assert_int_eq(decode_hello(0, 'x'), 0);
    ck_assert_int_eq(decode_hello(LIMIT_NAME_BYTES, 'x'), 0);
    ck_assert_int_eq(decode_hello(LIMIT_NAME_BYTES + 1, 'x'), -EBADMSG);
}
END_TEST

START_TEST(strings_hold_text_alone)
{
    static const struct {
        const char *name;
        size_t size;
        int expected;
    } cases[] = {
        {"a\0b", 3, -EBADMSG},    /* two readers would see two names */
        {"\n", 1, -EBADMSG},      /* forges a line */
        {"\x1b[2J", 4, -EBADMSG}, /* drives a terminal */
        {"\x7f", 1, -EBADMSG},
        {"\xc2\x9b", 2, -EBADMSG}, /* C1: another escape */
        {"\xc2\xa0", 2, 0},
        {"\xc3\xa9", 2, 0},
        {"\xc3", 1, -EBADMSG},         /* cut */
        {"\xc0\x80", 2, -EBADMSG},     /* NUL, overlong */
        {"\xe0\x9f\xbf", 3, -EBADMSG}, /* overlong */
        {"\xe0\xa0\x80", 3, 0},
        {"\xed\x9f\xbf", 3, 0},
        {"\xed\xa0\x80", 3, -EBADMSG}, /* a surrogate */
        {"\xf4\x8f\xbf\xbf", 4, 0},    /* U+10FFFF */
        {"\xf4\x90\x80\x80", 4, -EBADMSG},
        {"\xff", 1, -EBADMSG},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        uint8_t bytes[32] = {8, 1, 18, (uint8_t) (cases[i].size + 2), 18, (uint8_t) cases[i].size};

        memcpy(bytes + 6, cases[i].name, cases[i].size);
        ck_assert_msg(decode_client(bytes, 6 + cases[i].size) == cases[i].expected, "case %zu", i);
    }
}
END_TEST

START_TEST(uuids_have_sixteen_bytes_or_none)
{
    uint8_t bytes[32] = {8, 1, 26, 0, 10, 0};

    for (uint8_t size = 0; size <= 17; size++) {
        bytes[3] = (uint8_t) (size + 2);
        bytes[5] = size;
        ck_assert_int_eq(
            decode_client(bytes, 6 + (size_t) size), size == 0 || size == 16 ? 0 : -EBADMSG);
    }
}
END_TEST

/* A grant of `count` chunks, the first of which is `first` of `total`. */
static int decode_grant(size_t count, uint32_t first, uint32_t total)
{
    static Gmb__Chunk chunks[LIMIT_FRAME_FDS + 1], *pointers[LIMIT_FRAME_FDS + 1];
    Gmb__BrokerMessage message, *again = NULL;
    struct frame frame;
    Gmb__Grant grant;
    int r;

    for (size_t i = 0; i < count; i++) {
        gmb__chunk__init(&chunks[i]);
        chunks[i].number = (uint32_t) i;
        pointers[i] = &chunks[i];
    }
    gmb__broker_message__init(&message);
    gmb__grant__init(&grant);
    grant.lease = 1;
    grant.chunk_bytes = 1;
    grant.first_chunk = first;
    grant.total_chunks = total;
    grant.n_chunks = count;
    grant.chunks = pointers;
    message.body_case = GMB__BROKER_MESSAGE__BODY_GRANT;
    message.grant = &grant;
    ck_assert_int_eq(frame_encode(&frame, &message.base), 0);
    r = frame_decode_broker(frame.bytes, frame.size, &again);
    if (r == 0) {
        ck_assert_uint_eq(frame_broker_fds(again), count);
        frame_message_free(&again->base);
    }
    return r;
}

/* A grant of one chunk of that kind, with so many bytes of a handle. */
static int decode_handle(Gmb__HandleType kind, size_t bytes)
{
    static uint8_t handle[FRAME_IPC_HANDLE_BYTES + 1];
    Gmb__Chunk chunk = GMB__CHUNK__INIT, *pointer = &chunk;
    Gmb__BrokerMessage message = GMB__BROKER_MESSAGE__INIT, *again = NULL;
    Gmb__Grant grant = GMB__GRANT__INIT;
    struct frame frame;
    int r;

    chunk.ipc_handle = (ProtobufCBinaryData){bytes, handle};
    grant.lease = grant.chunk_bytes = 1;
    grant.total_chunks = 1;
    grant.handle_type = kind;
    grant.n_chunks = 1;
    grant.chunks = &pointer;
    message.body_case = GMB__BROKER_MESSAGE__BODY_GRANT;
    message.grant = &grant;
    ck_assert_int_eq(frame_encode(&frame, &message.base), 0);
    r = frame_decode_broker(frame.bytes, frame.size, &again);
    if (r == 0) {
        ck_assert_uint_eq(
            frame_broker_fds(again), kind == GMB__HANDLE_TYPE__HANDLE_TYPE_IPC ? 0 : 1);
        frame_message_free(&again->base);
    }
    return r;
}

START_TEST(a_slab_has_a_handle_of_64_bytes_and_no_fd)
{
    ck_assert_int_eq(decode_handle(GMB__HANDLE_TYPE__HANDLE_TYPE_IPC, 64), 0);
    ck_assert_int_eq(decode_handle(GMB__HANDLE_TYPE__HANDLE_TYPE_IPC, 0), -EBADMSG);
    ck_assert_int_eq(decode_handle(GMB__HANDLE_TYPE__HANDLE_TYPE_IPC, 16), -EBADMSG);
    ck_assert_int_eq(decode_handle(GMB__HANDLE_TYPE__HANDLE_TYPE_IPC, 65), -EBADMSG);
    ck_assert_int_eq(decode_handle(GMB__HANDLE_TYPE__HANDLE_TYPE_POSIX_FD, 0), 0);
    ck_assert_int_eq(decode_handle(GMB__HANDLE_TYPE__HANDLE_TYPE_POSIX_FD, 64), -EBADMSG);
}
END_TEST

START_TEST(grants_are_whole_and_bounded)
{
    ck_assert_int_eq(decode_grant(1, 0, 1), 0);
    ck_assert_int_eq(decode_grant(0, 0, 1), -EBADMSG);
    ck_assert_int_eq(decode_grant(LIMIT_FRAME_FDS, 0, LIMIT_FRAME_FDS), 0);
    ck_assert_int_eq(decode_grant(LIMIT_FRAME_FDS + 1, 0, LIMIT_FRAME_FDS + 1), -EBADMSG);
    ck_assert_int_eq(decode_grant(2, 0, 1), -EBADMSG);
    ck_assert_int_eq(decode_grant(1, UINT32_MAX, 1), -EBADMSG);
    ck_assert_int_eq(decode_grant(1, LIMIT_LEASE_CHUNKS - 1, LIMIT_LEASE_CHUNKS), 0);
    ck_assert_int_eq(decode_grant(1, LIMIT_LEASE_CHUNKS, LIMIT_LEASE_CHUNKS + 1), -EBADMSG);
}
END_TEST

static int decode_broker(const void *bytes, size_t size)
{
    Gmb__BrokerMessage *message = NULL;
    int r = frame_decode_broker(bytes, size, &message);

    ck_assert_int_eq(r == 0, message != NULL);
    if (message == NULL)
        return r;
    r = frame_broker_foreign(message) ? 1 : 0;
    if (r == 1)
        ck_assert_uint_eq(frame_broker_fds(message), 0);
    frame_message_free(&message->base);
    return r;
}

/* Field 1000, \xc2\x3e, is nobody's; Ending is field 8. */
START_TEST(a_body_that_nobody_knows_is_an_event_of_the_brokers_alone)
{
    ck_assert_int_eq(decode_broker("\xc2\x3e\x00", 3), 1);
    ck_assert_int_eq(decode_broker("\x08\x00\xc2\x3e\x02\x08\x01", 7), 1);
    ck_assert_int_eq(decode_broker("\x42\x00", 2), 0);
    ck_assert_int_eq(decode_broker("\x42\x00\xc2\x3e\x00", 5), 0);
    /* A reply; nothing at all; bytes that are cut. */
    ck_assert_int_eq(decode_broker("\x08\x01\xc2\x3e\x00", 5), -EBADMSG);
    ck_assert_int_eq(decode_broker("", 0), -EBADMSG);
    ck_assert_int_eq(decode_broker("\x08\x00", 2), -EBADMSG);
    ck_assert_int_eq(decode_broker("\xc2\x3e\x01", 3), -EBADMSG);
    ck_assert_int_eq(decode_client("\xc2\x3e\x00", 3), -EBADMSG);
    ck_assert_int_eq(decode_client("\x08\x01\xc2\x3e\x00", 5), -EBADMSG);
}
END_TEST

START_TEST(a_frame_ends_at_its_bound)
{
    static uint8_t bytes[LIMIT_FRAME_BYTES + 1];

    /* id, Cancel, and an unknown field 15 that fills the rest: 3 bytes of length. */
    memcpy(bytes, "\x08\x01\x3a\x00\x7a", 5);
    bytes[5] = (uint8_t) (0x80 | ((LIMIT_FRAME_BYTES - 8) & 0x7f));
    bytes[6] = (uint8_t) (0x80 | ((LIMIT_FRAME_BYTES - 8) >> 7 & 0x7f));
    bytes[7] = (uint8_t) ((LIMIT_FRAME_BYTES - 8) >> 14);
    ck_assert_int_eq(decode_client(bytes, LIMIT_FRAME_BYTES), 0);
    ck_assert_int_eq(decode_client(bytes, LIMIT_FRAME_BYTES - 1), -EBADMSG);
    ck_assert_int_eq(decode_client(bytes, LIMIT_FRAME_BYTES + 1), -EBADMSG);
}
END_TEST

START_TEST(fields_that_only_cost_time_are_few)
{
    uint8_t bytes[4 + 2 * (LIMIT_UNKNOWN_FIELDS + 1)] = {8, 1, 0x3a, 0};

    for (size_t i = 4; i < sizeof(bytes); i += 2) {
        bytes[i] = 15 << 3; /* unknown, a number: 0 */
        bytes[i + 1] = 0;
    }
    ck_assert_int_eq(decode_client(bytes, sizeof(bytes) - 2), 0);
    ck_assert_int_eq(decode_client(bytes, sizeof(bytes)), -EBADMSG);
    /* An id twice: the last would win, and any number of them would be read. */
    ck_assert_int_eq(decode_client("\x08\x01\x3a\x00\x08\x01", 6), -EBADMSG);
}
END_TEST

UNIT_MAIN("proto_frame", what_was_encoded_is_decoded, an_envelope_needs_id_and_body,
    what_a_client_tells_has_no_id_and_what_it_asks_has, runs_of_numbers_end_at_their_bound,
    names_end_at_their_bound, strings_hold_text_alone, uuids_have_sixteen_bytes_or_none,
    grants_are_whole_and_bounded, a_slab_has_a_handle_of_64_bytes_and_no_fd,
    a_body_that_nobody_knows_is_an_event_of_the_brokers_alone, a_frame_ends_at_its_bound,
    fields_that_only_cost_time_are_few)
