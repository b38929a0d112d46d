/*
 * A frame goes out by one sendmsg(2) when nothing waits before it; else a copy joins the queue. Fds
 * are closed once the kernel has its own references. SEQPACKET keeps frames whole, so a frame is
 * either sent or not.
 *
 * Incoming bytes land in a small buffer of the connection and overflow to the stack: most frames
 * are tens of bytes, and a thousand idle connections must not hold a large buffer each.
 */
#include "proto/conn.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>

#include "base/list.h"

#define SMALL_BYTES 256
/* Room for one fd more than allowed tells too many from just enough without losing one unclosed. */
#define CONTROL_FDS (LIMIT_FRAME_FDS + 1)

struct queued {
    struct list link;
    size_t n_fds, size;
    int *fds; /* behind the bytes */
    uint8_t bytes[];
};

struct conn {
    int fd;
    bool starved;
    size_t queued_frames, queued_fds;
    struct list queue;
    uint8_t *large; /* the last frame, when it didn't fit in `small` */
    uint8_t small[SMALL_BYTES];
};

union control {
    struct cmsghdr header;
    char bytes[CMSG_SPACE(sizeof(int) * CONTROL_FDS)];
};

int conn_new_consume(int fd, struct conn **ret)
{
    _cleanup_close_ int owned = fd;
    struct conn *conn;
    int flags = fcntl(owned, F_GETFL);

    if (flags < 0 || fcntl(owned, F_SETFL, flags | O_NONBLOCK) < 0 ||
        fcntl(owned, F_SETFD, FD_CLOEXEC) < 0)
        return -errno;
    conn = calloc(1, sizeof(*conn));
    if (conn == NULL)
        return -ENOMEM;
    conn->fd = TAKE_FD(owned);
    list_init(&conn->queue);
    *ret = conn;
    return 0;
}

static void queued_free(struct queued *queued)
{
    for (size_t i = 0; i < queued->n_fds; i++)
        close_fd(&queued->fds[i]);
    list_remove(&queued->link);
    free(queued);
}

int conn_free_take_fd(struct conn *conn)
{
    int fd;

    if (conn == NULL)
        return -1;
    list_for_each_safe(queued, &conn->queue, struct queued, link) queued_free(queued);
    fd = TAKE_FD(conn->fd);
    free(conn->large);
    free(conn);
    return fd;
}

struct conn *conn_free(struct conn *conn)
{
    int fd = conn_free_take_fd(conn);

    close_fd(&fd);
    return NULL;
}

int conn_fd(const struct conn *conn)
{
    return conn->fd;
}

/* Collects the fds of every SCM_RIGHTS message; -EBADMSG for too many or another kind. */
static int control_collect(struct msghdr *header, struct fdset *set)
{
    int r = 0;

    for (struct cmsghdr *c = CMSG_FIRSTHDR(header); c != NULL; c = CMSG_NXTHDR(header, c)) {
        size_t count;

        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) {
            r = -EBADMSG;
            continue;
        }
        count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int fd;

            memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
            if (fdset_consume(set, fd) < 0)
                r = -EBADMSG;
        }
    }
    return r;
}

/* Makes one run of what recvmsg(2) spread over the small buffer and `rest`. */
static int bytes_join(struct conn *conn, const uint8_t *rest, size_t size, const uint8_t **ret)
{
    if (size <= SMALL_BYTES) {
        *ret = conn->small;
        return 0;
    }
    conn->large = malloc(size);
    if (conn->large == NULL)
        return -ENOMEM;
    memcpy(conn->large, conn->small, SMALL_BYTES);
    memcpy(conn->large + SMALL_BYTES, rest, size - SMALL_BYTES);
    *ret = conn->large;
    return 0;
}

/* One recvmsg(2): the datagram's size or -errno, what came with it in `header`. */
static ssize_t datagram_receive(struct conn *conn, struct msghdr *header, int flags)
{
    bool reset = false;
    ssize_t size = 0;

    free(TAKE_PTR(conn->large));
    /* A peer that closed without having read everything is reported before what it sent last, once:
     * its parting words say why it closed. */
    do {
        reset = reset || (size < 0 && errno == ECONNRESET);
        size = recvmsg(conn->fd, header, flags | MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    } while (size < 0 && (errno == EINTR || (errno == ECONNRESET && !reset)));
    if (size < 0)
        return errno == EWOULDBLOCK ? -EAGAIN : -errno;
    return size;
}

int conn_receive_plain(struct conn *conn, const uint8_t **ret_bytes, size_t *ret_size)
{
    uint8_t rest[LIMIT_FRAME_BYTES - SMALL_BYTES];
    struct iovec parts[] = {{conn->small, SMALL_BYTES}, {rest, sizeof(rest)}};
    struct msghdr header = {.msg_iov = parts, .msg_iovlen = ARRAY_SIZE(parts)};
    ssize_t size = datagram_receive(conn, &header, MSG_PEEK);
    int r;

    if (size < 0)
        return (int) size;
    /* Without a buffer for them, fds show as MSG_CTRUNC. */
    if ((header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0)
        return -EBADMSG;
    if (size == 0)
        return -ECONNRESET; /* as below */
    r = bytes_join(conn, rest, (size_t) size, ret_bytes);
    if (r < 0)
        return r;
    *ret_size = (size_t) size;
    /* It is there, and nobody else reads: this takes it off the queue. */
    return recv(conn->fd, NULL, 0, MSG_DONTWAIT) < 0 ? -errno : 0;
}

int conn_receive(
    struct conn *conn, const uint8_t **ret_bytes, size_t *ret_size, struct fdset *ret_fds)
{
    uint8_t rest[LIMIT_FRAME_BYTES - SMALL_BYTES];
    struct iovec parts[] = {{conn->small, SMALL_BYTES}, {rest, sizeof(rest)}};
    union control control;
    struct msghdr header = {
        .msg_iov = parts,
        .msg_iovlen = ARRAY_SIZE(parts),
        .msg_control = &control,
        .msg_controllen = sizeof(control),
    };
    ssize_t size = datagram_receive(conn, &header, 0);
    int r;

    if (size < 0)
        return (int) size;
    r = control_collect(&header, ret_fds);
    if ((header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0)
        r = -EBADMSG;
    else if (r == 0 && size == 0)
        /* An empty datagram reads as the end does; no message is empty, so it ends things too. */
        r = -ECONNRESET;
    else if (r == 0)
        r = bytes_join(conn, rest, (size_t) size, ret_bytes);
    if (r < 0) {
        fdset_close(ret_fds);
        return r;
    }
    *ret_size = (size_t) size;
    return 0;
}

/* One sendmsg(2). 0, -EAGAIN, -ENOBUFS (the kernel has no memory now), -ETOOMANYREFS (too many fds
 * in flight) or a fatal -errno. */
static int bytes_send(int fd, const uint8_t *bytes, size_t size, const int *fds, size_t n_fds)
{
    union control control;
    struct iovec part = {(void *) (uintptr_t) bytes, size};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
    ssize_t sent;

    if (n_fds > 0) {
        header.msg_control = &control;
        header.msg_controllen = CMSG_SPACE(sizeof(int) * n_fds);
        memset(&control, 0, header.msg_controllen); /* the padding leaves the process too */
        control.header.cmsg_level = SOL_SOCKET;
        control.header.cmsg_type = SCM_RIGHTS;
        control.header.cmsg_len = CMSG_LEN(sizeof(int) * n_fds);
        memcpy(CMSG_DATA(&control.header), fds, sizeof(int) * n_fds);
    }
    do
        sent = sendmsg(fd, &header, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    if (sent >= 0)
        return 0;
    if (errno == ENOMEM)
        return -ENOBUFS;
    return errno == EWOULDBLOCK ? -EAGAIN : -errno;
}

static int frame_queue(struct conn *conn, const struct frame *frame, struct fdset *fds)
{
    size_t n_fds = fds->count, offset = (frame->size + sizeof(int) - 1) / sizeof(int) * sizeof(int);
    struct queued *queued;

    if (conn->queued_frames >= LIMIT_SEND_QUEUE_FRAMES ||
        conn->queued_fds + n_fds > LIMIT_SEND_QUEUE_FDS)
        return -EXFULL;
    queued = malloc(sizeof(*queued) + offset + n_fds * sizeof(int));
    if (queued == NULL)
        return -ENOMEM;
    queued->size = frame->size;
    queued->n_fds = n_fds;
    queued->fds = (int *) (void *) (queued->bytes + offset);
    memcpy(queued->bytes, frame->bytes, frame->size);
    for (size_t i = 0; i < n_fds; i++)
        queued->fds[i] = fdset_take(fds, i);
    list_init(&queued->link);
    list_append(&conn->queue, &queued->link);
    conn->queued_frames++;
    conn->queued_fds += n_fds;
    return 0;
}

int conn_send_consume(struct conn *conn, const ProtobufCMessage *message, struct fdset *fds)
{
    _cleanup_fdset_ struct fdset owned = FDSET_EMPTY;
    struct frame frame;
    int r;

    if (fds != NULL)
        fdset_move(&owned, fds);
    r = frame_encode(&frame, message);
    if (r < 0)
        return r;
    if (list_empty(&conn->queue)) {
        r = bytes_send(conn->fd, frame.bytes, frame.size, owned.fds, owned.count);
        conn->starved = r == -ETOOMANYREFS || r == -ENOBUFS;
        if (r != -EAGAIN && r != -ENOBUFS && r != -ETOOMANYREFS)
            return r;
    }
    return frame_queue(conn, &frame, &owned);
}

int conn_flush(struct conn *conn)
{
    conn->starved = false;
    while (!list_empty(&conn->queue)) {
        struct queued *queued = list_first(&conn->queue, struct queued, link);
        int r = bytes_send(conn->fd, queued->bytes, queued->size, queued->fds, queued->n_fds);

        if (r == -EAGAIN)
            return 0;
        if (r == -ETOOMANYREFS || r == -ENOBUFS) {
            conn->starved = true;
            return 0;
        }
        if (r < 0)
            return r;
        conn->queued_frames--;
        conn->queued_fds -= queued->n_fds;
        queued_free(queued);
    }
    return 0;
}

int conn_try_send_consume(struct conn *conn, const ProtobufCMessage *message, struct fdset *fds)
{
    _cleanup_fdset_ struct fdset owned = FDSET_EMPTY;
    struct frame frame;
    int r;

    fdset_move(&owned, fds);
    r = frame_encode(&frame, message);
    return r < 0 ? r : bytes_send(conn->fd, frame.bytes, frame.size, owned.fds, owned.count);
}

bool conn_wants_write(const struct conn *conn)
{
    return !list_empty(&conn->queue) && !conn->starved;
}

bool conn_starved(const struct conn *conn)
{
    return conn->starved;
}

size_t conn_queued(const struct conn *conn)
{
    return conn->queued_frames;
}
