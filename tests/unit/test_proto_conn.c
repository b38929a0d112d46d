/* Connections over a socket pair: what is sent arrives whole, with its fds, and nothing leaks. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>

#include "proto/conn.h"
#include "tests/unit/unit.h"

static struct conn *left, *right;

static void pair_open(void)
{
    int fds[2];

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
    ck_assert_int_eq(conn_new_consume(fds[0], &left), 0);
    ck_assert_int_eq(conn_new_consume(fds[1], &right), 0);
}

static void pair_close(void)
{
    left = conn_free(left);
    right = conn_free(right);
}

static int null_open(void)
{
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

    ck_assert_int_ge(fd, 0);
    return fd;
}

/* The lowest free fd: the same before and after when nothing leaked. */
static int fd_mark(void)
{
    int fd = null_open();

    (void) close(fd);
    return fd;
}

static int done_send(struct fdset *fds)
{
    Gmb__BrokerMessage message;
    Gmb__Done done;

    gmb__broker_message__init(&message);
    gmb__done__init(&done);
    message.id = 1;
    message.body_case = GMB__BROKER_MESSAGE__BODY_DONE;
    message.done = &done;
    return conn_send_consume(left, &message.base, fds);
}

START_TEST(fds_travel_with_their_frame_and_are_closed_here)
{
    struct fdset fds = FDSET_EMPTY;
    const uint8_t *bytes;
    size_t size;
    int mark;

    pair_open();
    mark = fd_mark();
    for (int i = 0; i < LIMIT_FRAME_FDS; i++)
        ck_assert_int_eq(fdset_consume(&fds, null_open()), 0);
    ck_assert_int_eq(fdset_consume(&fds, null_open()), -EMSGSIZE);
    ck_assert_int_eq(done_send(&fds), 0);
    ck_assert_uint_eq(fds.count, 0);
    ck_assert_int_eq(fd_mark(), mark);
    ck_assert_int_eq(conn_receive(right, &bytes, &size, &fds), 0);
    ck_assert_uint_eq(size, 4);
    ck_assert_uint_eq(fds.count, LIMIT_FRAME_FDS);
    ck_assert_int_eq(fcntl(fds.fds[0], F_GETFD), FD_CLOEXEC);
    fdset_close(&fds);
    ck_assert_int_eq(conn_receive(right, &bytes, &size, &fds), -EAGAIN);
    ck_assert_int_eq(fd_mark(), mark);
    pair_close();
}
END_TEST

START_TEST(more_fds_than_a_frame_takes_are_all_closed)
{
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int) * 253)];
    } control = {0};
    struct iovec part = {(void *) (uintptr_t) "x", 1};
    static const size_t counts[] = {LIMIT_FRAME_FDS + 1, LIMIT_FRAME_FDS + 2, 253};

    for (size_t k = 0; k < ARRAY_SIZE(counts); k++) {
        struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control};
        struct fdset fds = FDSET_EMPTY;
        const uint8_t *bytes;
        size_t size;
        int null, mark;

        pair_open();
        mark = fd_mark();
        null = null_open();
        header.msg_controllen = CMSG_SPACE(sizeof(int) * counts[k]);
        control.header.cmsg_level = SOL_SOCKET;
        control.header.cmsg_type = SCM_RIGHTS;
        control.header.cmsg_len = CMSG_LEN(sizeof(int) * counts[k]);
        for (size_t i = 0; i < counts[k]; i++)
            memcpy(CMSG_DATA(&control.header) + i * sizeof(int), &null, sizeof(int));
        ck_assert_int_eq(sendmsg(conn_fd(left), &header, 0), 1);
        (void) close(null);
        ck_assert_int_eq(conn_receive(right, &bytes, &size, &fds), -EBADMSG);
        ck_assert_uint_eq(fds.count, 0);
        ck_assert_int_eq(fd_mark(), mark);
        pair_close();
    }
}
END_TEST

START_TEST(frames_of_every_size_arrive_as_they_were)
{
    static const size_t sizes[] = {1, 255, 256, 257, LIMIT_FRAME_BYTES - 1, LIMIT_FRAME_BYTES};
    static uint8_t sent[LIMIT_FRAME_BYTES + 1];
    struct fdset fds = FDSET_EMPTY;
    const uint8_t *bytes;
    size_t size;

    pair_open();
    for (size_t i = 0; i < sizeof(sent); i++)
        sent[i] = (uint8_t) (i * 7 + 1);
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        ck_assert_int_eq(send(conn_fd(left), sent, sizes[i], 0), (ssize_t) sizes[i]);
        ck_assert_int_eq(conn_receive(right, &bytes, &size, &fds), 0);
        ck_assert_uint_eq(size, sizes[i]);
        ck_assert_mem_eq(bytes, sent, size);
    }
    ck_assert_int_eq(send(conn_fd(left), sent, sizeof(sent), 0), (ssize_t) sizeof(sent));
    ck_assert_int_eq(conn_receive(right, &bytes, &size, &fds), -EBADMSG);
    pair_close();
}
END_TEST

START_TEST(a_peer_that_does_not_read_fills_the_queue_to_its_bound)
{
    struct fdset fds = FDSET_EMPTY;
    const uint8_t *bytes;
    size_t size, sent = 0, received = 0;
    int mark, r;

    pair_open();
    mark = fd_mark();
    do {
        ck_assert_int_eq(fdset_consume(&fds, null_open()), 0);
        r = done_send(&fds);
        sent += r == 0;
    } while (r == 0);
    ck_assert_int_eq(r, -EXFULL);
    ck_assert_uint_eq(conn_queued(left), LIMIT_SEND_QUEUE_FRAMES);
    ck_assert(conn_wants_write(left));
    /* Everything that was taken arrives, in order, as the peer reads. */
    do {
        ck_assert_int_eq(conn_flush(left), 0);
        while ((r = conn_receive(right, &bytes, &size, &fds)) == 0) {
            ck_assert_uint_eq(fds.count, 1);
            fdset_close(&fds);
            received++;
        }
        ck_assert_int_eq(r, -EAGAIN);
    } while (conn_queued(left) > 0);
    ck_assert_uint_eq(received, sent);
    ck_assert(!conn_wants_write(left));
    ck_assert_int_eq(fd_mark(), mark);
    pair_close();
}
END_TEST

START_TEST(fds_in_the_queue_are_bounded_and_closed_with_it)
{
    struct fdset fds = FDSET_EMPTY;
    int r, mark = fd_mark();

    pair_open();
    do {
        for (int i = 0; i < LIMIT_FRAME_FDS; i++)
            ck_assert_int_eq(fdset_consume(&fds, null_open()), 0);
        r = done_send(&fds);
    } while (r == 0);
    ck_assert_int_eq(r, -EXFULL);
    ck_assert_uint_eq(conn_queued(left), LIMIT_SEND_QUEUE_FDS / LIMIT_FRAME_FDS);
    pair_close();
    ck_assert_int_eq(fd_mark(), mark);
}
END_TEST

START_TEST(the_end_is_told_from_silence)
{
    struct fdset fds = FDSET_EMPTY;
    const uint8_t *bytes;
    size_t size;

    pair_open();
    ck_assert_int_eq(conn_receive(right, &bytes, &size, &fds), -EAGAIN);
    left = conn_free(left);
    ck_assert_int_eq(conn_receive(right, &bytes, &size, &fds), -ECONNRESET);
    pair_close();
}
END_TEST

START_TEST(what_is_only_tried_pins_no_fd_here)
{
    Gmb__BrokerMessage message = GMB__BROKER_MESSAGE__INIT;
    Gmb__Done done = GMB__DONE__INIT;
    struct fdset fds = FDSET_EMPTY;
    const uint8_t *bytes;
    unsigned sent = 0;
    size_t size;
    int mark, r;

    message.id = 1;
    message.body_case = GMB__BROKER_MESSAGE__BODY_DONE;
    message.done = &done;
    pair_open();
    mark = fd_mark();
    do {
        ck_assert_int_eq(fdset_consume(&fds, null_open()), 0);
        r = conn_try_send_consume(left, &message.base, &fds);
        sent += r == 0;
    } while (r == 0);
    ck_assert_int_eq(r, -EAGAIN);
    ck_assert_uint_gt(sent, 1);
    ck_assert_uint_eq(conn_queued(left), 0);
    ck_assert_int_eq(fd_mark(), mark);
    for (unsigned i = 0; i < sent; i++) {
        ck_assert_int_eq(conn_receive(right, &bytes, &size, &fds), 0);
        ck_assert_uint_eq(fds.count, 1);
        fdset_close(&fds);
    }
    ck_assert_int_eq(conn_receive(right, &bytes, &size, &fds), -EAGAIN);
    ck_assert_int_eq(conn_try_send_consume(left, &message.base, &fds), 0);
    pair_close();
}
END_TEST

START_TEST(a_plain_receipt_lets_no_fd_in)
{
    struct fdset fds = FDSET_EMPTY;
    const uint8_t *bytes;
    size_t size;
    int mark;

    pair_open();
    ck_assert_int_eq(conn_receive_plain(right, &bytes, &size), -EAGAIN);
    ck_assert_int_eq(done_send(NULL), 0);
    ck_assert_int_eq(done_send(NULL), 0);
    ck_assert_int_eq(fdset_consume(&fds, null_open()), 0);
    mark = fd_mark();
    ck_assert_int_eq(done_send(&fds), 0);
    for (unsigned i = 0; i < 2; i++) {
        ck_assert_int_eq(conn_receive_plain(right, &bytes, &size), 0);
        ck_assert_uint_eq(size, 4); /* id 1, an empty Done */
    }
    /* As often as it is asked: the frame stays where it is, and so do its fds. */
    for (unsigned i = 0; i < 2; i++)
        ck_assert_int_eq(conn_receive_plain(right, &bytes, &size), -EBADMSG);
    ck_assert_int_eq(fd_mark(), mark - 1); /* what was sent was closed here, and nothing came */
    pair_close();
}
END_TEST

START_TEST(a_plain_receipt_knows_the_end_and_what_is_too_large)
{
    static const uint8_t large[LIMIT_FRAME_BYTES + 1];
    const uint8_t *bytes;
    size_t size;

    pair_open();
    ck_assert_int_eq(send(conn_fd(left), large, sizeof(large) - 1, 0), sizeof(large) - 1);
    ck_assert_int_eq(conn_receive_plain(right, &bytes, &size), 0);
    ck_assert_uint_eq(size, LIMIT_FRAME_BYTES);
    ck_assert_int_eq(send(conn_fd(left), large, sizeof(large), 0), sizeof(large));
    ck_assert_int_eq(conn_receive_plain(right, &bytes, &size), -EBADMSG);
    pair_close();
    pair_open();
    left = conn_free(left);
    ck_assert_int_eq(conn_receive_plain(right, &bytes, &size), -ECONNRESET);
    pair_close();
}
END_TEST

UNIT_MAIN("proto_conn", fds_travel_with_their_frame_and_are_closed_here,
    more_fds_than_a_frame_takes_are_all_closed, frames_of_every_size_arrive_as_they_were,
    a_peer_that_does_not_read_fills_the_queue_to_its_bound,
    fds_in_the_queue_are_bounded_and_closed_with_it, the_end_is_told_from_silence,
    what_is_only_tried_pins_no_fd_here, a_plain_receipt_lets_no_fd_in,
    a_plain_receipt_knows_the_end_and_what_is_too_large)
