/* Peers that break the protocol, say nothing or don't read: the broker drops them and no one else
 * notices. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/error.h"
#include "tests/integration/raw.h"
#include "tests/unit/unit.h"

/* What a broken peer must leave untouched: somebody else takes a lease and gives it back. */
static void others_are_served(const struct harness *harness)
{
    struct raw raw;
    uint64_t lease;

    raw_connect(&raw, harness);
    lease = raw_expect_lease(&raw, raw_lease(&raw, 4 * HARNESS_CHUNK, HARNESS_CHUNK, 0), 4);
    raw_expect_done(&raw, raw_release(&raw, lease));
    raw_close(&raw);
}

START_TEST(garbage_ends_the_connection_alone)
{
    static const char *const garbage[] = {
        "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", /* no varint */
        "\x08\x01",                                     /* an id without a body */
        "\x12\x02\x08\x01",                             /* a body without an id */
        "\x08\x01\x12\x7f\x08",                         /* a length past the end */
        "hello, broker",
    };
    struct harness harness;

    harness_start(&harness, NULL);
    for (size_t i = 0; i < ARRAY_SIZE(garbage); i++) {
        struct raw raw;

        raw_dial(&raw, &harness);
        raw_send_bytes(&raw, garbage[i], strlen(garbage[i]));
        raw_expect_error(&raw, 0, GMB_STATUS_PROTOCOL);
        raw_expect_end(&raw);
        raw_close(&raw);
    }
    others_are_served(&harness);
    harness_stop(&harness);
}
END_TEST

START_TEST(every_truncation_of_a_greeting_is_refused)
{
    /* id 1, Hello {version 1, program "raw"} */
    static const uint8_t whole[] = {8, 1, 18, 7, 8, 1, 18, 3, 'r', 'a', 'w'};
    struct harness harness;

    harness_start(&harness, NULL);
    for (size_t size = 1; size < sizeof(whole); size++) {
        struct raw raw;

        raw_dial(&raw, &harness);
        raw_send_bytes(&raw, whole, size);
        raw_expect_error(&raw, 0, GMB_STATUS_PROTOCOL);
        raw_expect_end(&raw);
        raw_close(&raw);
    }
    others_are_served(&harness);
    harness_stop(&harness);
}
END_TEST

/* Each of the messages that only a greeted client may send. */
static uint64_t request_send(struct raw *raw, int message)
{
    switch (message) {
    case 0:
        return raw_lease(raw, HARNESS_CHUNK, 0, 0);
    case 1:
        return raw_grow(raw, 1, 1);
    case 2:
        return raw_shrink(raw, 1, 1);
    case 3:
        return raw_release(raw, 1);
    default:
        return raw_cancel(raw, 1);
    }
}

START_TEST(a_message_out_of_turn_ends_the_connection)
{
    struct harness harness;
    struct raw raw;

    harness_start(&harness, NULL);
    for (int message = 0; message < 5; message++) {
        uint64_t id;

        raw_dial(&raw, &harness);
        id = request_send(&raw, message);
        raw_expect_error(&raw, id, GMB_STATUS_PROTOCOL);
        raw_expect_end(&raw);
        raw_close(&raw);
    }
    raw_connect(&raw, &harness); /* Hello twice */
    raw_expect_error(&raw, raw_hello(&raw, 1), GMB_STATUS_PROTOCOL);
    raw_expect_end(&raw);
    raw_close(&raw);
    raw_dial(&raw, &harness); /* version 0 */
    raw_expect_error(&raw, raw_hello(&raw, 0), GMB_STATUS_UNSUPPORTED);
    raw_expect_end(&raw);
    raw_close(&raw);
    harness_stop(&harness);
}
END_TEST

START_TEST(file_descriptors_where_none_belong_are_closed)
{
    static const uint8_t hello[] = {8, 1, 18, 2, 8, 1};
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int) * 200)];
    } control = {0};
    struct iovec part = {(void *) (uintptr_t) hello, sizeof(hello)};
    struct harness harness;

    harness_start(&harness, NULL);
    for (size_t count = 1; count <= 200; count += 199) {
        struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control};
        int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
        struct raw raw;

        raw_dial(&raw, &harness);
        header.msg_controllen = CMSG_SPACE(sizeof(int) * count);
        control.header = (struct cmsghdr){
            .cmsg_level = SOL_SOCKET,
            .cmsg_type = SCM_RIGHTS,
            .cmsg_len = CMSG_LEN(sizeof(int) * count),
        };
        for (size_t i = 0; i < count; i++)
            memcpy(CMSG_DATA(&control.header) + i * sizeof(int), &null, sizeof(int));
        ck_assert_int_eq(
            sendmsg(conn_fd(raw.conn), &header, MSG_NOSIGNAL), (ssize_t) sizeof(hello));
        (void) close(null);
        raw_expect_end(&raw);
        raw_close(&raw);
        harness_settle(&harness);
    }
    others_are_served(&harness);
    harness_stop(&harness);
}
END_TEST

START_TEST(oversized_frames_and_requests_are_refused)
{
    static uint8_t large[LIMIT_FRAME_BYTES + 1];
    struct harness harness;
    struct raw raw;

    harness_start(&harness, NULL);
    raw_dial(&raw, &harness);
    raw_send_bytes(&raw, large, sizeof(large));
    raw_expect_end(&raw);
    raw_close(&raw);
    raw_connect(&raw, &harness);
    raw_expect_error(&raw, raw_lease(&raw, UINT64_MAX, 0, 0), GMB_STATUS_OVER_LIMIT);
    raw_expect_error(&raw, raw_lease(&raw, UINT64_MAX, HARNESS_CHUNK, 0), GMB_STATUS_OVER_LIMIT);
    raw_expect_error(
        &raw, raw_lease(&raw, HARNESS_MEMORY + 1, HARNESS_CHUNK, 0), GMB_STATUS_OVER_LIMIT);
    raw_expect_error(&raw, raw_lease(&raw, 0, 0, 0), GMB_STATUS_INVALID);
    if (!raw_slabs())
        raw_expect_error(&raw, raw_lease(&raw, HARNESS_CHUNK, 3, 0), GMB_STATUS_INVALID);
    raw_expect_error(&raw, raw_release(&raw, 4711), GMB_STATUS_NOT_FOUND);
    raw_expect_error(&raw, raw_grow(&raw, 4711, 1), GMB_STATUS_NOT_FOUND);
    raw_expect_error(&raw, raw_cancel(&raw, 4711), GMB_STATUS_NOT_FOUND);
    raw_close(&raw);
    harness_stop(&harness);
}
END_TEST

START_TEST(a_thousand_silent_connections_keep_nobody_out)
{
    static int silent[1000];
    struct harness harness;

    harness_start(&harness, NULL);
    for (size_t i = 0; i < ARRAY_SIZE(silent); i++)
        silent[i] = harness_dial(harness.client_socket);
    others_are_served(&harness);
    /* 256 at most are kept, each with its socket and pidfd; the last of the others may still go. */
    wait_until(harness_open_fds(harness.pid) <= harness.base_fds + 2 * LIMIT_UNGREETED + 8);
    for (size_t i = 0; i < ARRAY_SIZE(silent); i++)
        (void) close(silent[i]);
    harness_stop(&harness);
}
END_TEST

START_TEST(a_peer_that_never_reads_is_dropped_and_pins_little)
{
    struct harness harness;
    struct raw raw;
    ssize_t sent = 0;
    uint64_t deadline;

    harness_start(&harness, NULL);
    raw_connect(&raw, &harness);
    /* Each asks for what there isn't, so that each is answered at once. */
    deadline = harness_now_ms() + HARNESS_DEADLINE_MS;
    for (unsigned i = 0; i < 20000 && sent >= 0; i++) {
        static const uint8_t cancel[] = {8, 9, 58, 2, 8, 99};

        sent = send(conn_fd(raw.conn), cancel, sizeof(cancel), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno == EAGAIN) {
            /* The broker doesn't listen to who doesn't read; it isn't made to queue without end. */
            ck_assert_uint_lt(harness_now_ms(), deadline);
            break;
        }
    }
    others_are_served(&harness);
    raw_close(&raw);
    /* A whole device in small chunks: its fds wait in the broker's memory, not as fds. */
    raw_connect(&raw, &harness);
    (void) raw_lease(&raw, HARNESS_MEMORY, HARNESS_CHUNK, 0);
    deadline = harness_now_ms() + 500;
    while (harness_now_ms() < deadline) {
        ck_assert_uint_le(
            harness_open_fds(harness.pid), harness.base_fds + 2 + 2 * LIMIT_FRAME_FDS);
        harness_breathe();
    }
    raw_close(&raw);
    /* This process lives, so what it was granted stays charged to it; only the fds have to go. */
    ck_assert_int_eq(kill(harness.pid, 0), 0);
    harness_kill(&harness);
    harness_restart(&harness);
    harness_stop(&harness);
}
END_TEST

START_TEST(a_broker_without_fds_serves_on_when_there_are_some_again)
{
    static const char *const environment[] = {"HARNESS_NOFILE=64", NULL};
    static int silent[80];
    struct harness harness;
    struct raw raw;
    uint64_t lease;

    harness_start_with(&harness, NULL, environment);
    /* More chunks than it has fds: they go out as far as those reach, again and again. */
    raw_connect(&raw, &harness);
    lease = raw_expect_lease(&raw, raw_lease(&raw, 200 * HARNESS_CHUNK, HARNESS_CHUNK, 0), 200);
    for (size_t i = 0; i < ARRAY_SIZE(silent); i++)
        silent[i] = harness_dial(harness.client_socket);
    raw_expect_done(&raw, raw_release(&raw, lease));
    for (size_t i = 0; i < ARRAY_SIZE(silent); i++)
        (void) close(silent[i]);
    raw_close(&raw);
    harness_settle(&harness);
    others_are_served(&harness);
    ck_assert(harness_logged(&harness, "turned a connection away"));
    harness_stop(&harness);
}
END_TEST

UNIT_MAIN("broken", garbage_ends_the_connection_alone, every_truncation_of_a_greeting_is_refused,
    a_message_out_of_turn_ends_the_connection, file_descriptors_where_none_belong_are_closed,
    oversized_frames_and_requests_are_refused, a_thousand_silent_connections_keep_nobody_out,
    a_peer_that_never_reads_is_dropped_and_pins_little,
    a_broker_without_fds_serves_on_when_there_are_some_again)
