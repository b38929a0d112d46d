/*
 * One end of a SEQPACKET connection: frames with their fds, in and out, never blocking.
 *
 * Receiving: MSG_TRUNC, MSG_CTRUNC, ancillary data of any other kind or more fds than
 * LIMIT_FRAME_FDS close every fd received and end the connection (-EBADMSG). Fds are CLOEXEC from
 * birth.
 *
 * Sending: a frame goes out at once or is queued; the queue is bounded by LIMIT_SEND_QUEUE_FRAMES
 * and LIMIT_SEND_QUEUE_FDS, past which the peer counts as not reading (-EXFULL) and is to be
 * dropped. Frames go out in order and whole.
 *
 * The connection doesn't know an event loop: the owner watches conn_fd() for reading, and for
 * writing while conn_wants_write(). Not thread-safe.
 */
#pragma once

#include "proto/fdset.h"
#include "proto/frame.h"

struct conn;

/* Takes ownership of `fd`, on failure too; makes it non-blocking and CLOEXEC. -ENOMEM. */
int conn_new_consume(int fd, struct conn **ret) _must_check_;
/* Closes the socket and drops what is queued. Accepts NULL, returns NULL. */
struct conn *conn_free(struct conn *conn);

/*
 * Drops what is queued and gives the socket to the caller: to be closed where waiting does no harm.
 * -1 for NULL.
 */
int conn_free_take_fd(struct conn *conn) _must_check_;

/* Borrowed: valid as long as the connection. */
int conn_fd(const struct conn *conn);

/*
 * Receives one datagram into `ret_bytes`/`ret_size` (borrowed until the next call) and `ret_fds`
 * (which must be empty; the caller owns what comes). -EAGAIN when there is nothing, -ECONNRESET at
 * the end, -EBADMSG as above, other -errno of recvmsg(2).
 */
int conn_receive(struct conn *conn, const uint8_t **ret_bytes, size_t *ret_size,
    struct fdset *ret_fds) _must_check_;

/*
 * The same where no fds are expected. A frame that has some is -EBADMSG and stays where it is: no
 * fd of a peer that isn't trusted gets into this process, whose close(2) could wait for that peer.
 */
int conn_receive_plain(struct conn *conn, const uint8_t **ret_bytes, size_t *ret_size) _must_check_;

/*
 * Sends or queues `message` with `fds`, which may be NULL. Ownership of the fds moves here, on
 * failure too; each is closed once it is sent. -EMSGSIZE, -EXFULL, -ENOMEM, or the -errno of
 * sendmsg(2)
 * (-EPIPE, -ECONNRESET: the peer is gone). Never raises SIGPIPE.
 */
int conn_send_consume(
    struct conn *conn, const ProtobufCMessage *message, struct fdset *fds) _must_check_;

/*
 * The same, but nothing is queued: what can't go out now is closed, so that no peer that doesn't
 * read pins fds here. -EAGAIN: as soon as the socket is writable; -ETOOMANYREFS: no poll tells when
 * (see conn_starved()), and so with -ENOBUFS, when the kernel has no memory. Only while
 * conn_queued() is 0.
 */
int conn_try_send_consume(
    struct conn *conn, const ProtobufCMessage *message, struct fdset *fds) _must_check_;

/* Sends what is queued as far as it goes: 0 also when some is left; -errno as conn_send_consume. */
int conn_flush(struct conn *conn) _must_check_;
bool conn_wants_write(const struct conn *conn);
/*
 * True when the kernel refused the front of the queue with ETOOMANYREFS: too many fds of this user
 * are on their way to peers that don't read; or with ENOBUFS: it has no memory. No poll tells when
 * that is over: the owner calls conn_flush() again a little later.
 */
bool conn_starved(const struct conn *conn);
/* Frames that wait: for flow control of long answers, which are produced as the queue drains. */
size_t conn_queued(const struct conn *conn);
