/* One thread, one message each way; the connection isn't shared yet. */
#include "client/connect.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/clock.h"
#include "client/receive.h"
#include "client/text.h"

#define HELLO_ID 1

static int address_fill(const char *path, struct sockaddr_un *ret, struct outcome *outcome)
{
    *ret = (struct sockaddr_un){.sun_family = AF_UNIX};
    if (path[0] == '\0' || strlen(path) >= sizeof(ret->sun_path))
        return outcome_set(outcome, GMB_E_INVALID, "a socket's path has 1 to %zu bytes: %s",
            sizeof(ret->sun_path) - 1, path);
    (void) strcpy(ret->sun_path, path);
    return 0;
}

/* The send timeout also bounds connect(2), which waits where the listener's queue is full. */
static int timeout_arm(int fd, uint64_t deadline_ns)
{
    uint64_t left_ns = sub_saturate(deadline_ns, clock_now(&clock_monotonic));
    struct timeval left = {
        .tv_sec = (time_t) (left_ns / NSEC_PER_SEC),
        .tv_usec = (suseconds_t) (left_ns % NSEC_PER_SEC / NSEC_PER_USEC),
    };

    if (left_ns < NSEC_PER_USEC)
        return -ETIMEDOUT;
    return setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &left, sizeof(left)) < 0 ? -errno : 0;
}

static int connect_error(const char *path, int error, struct outcome *outcome)
{
    switch (error) {
    case ENOENT:
    case ECONNREFUSED:
        return outcome_set(outcome, GMB_E_DISCONNECTED,
            "gmbd isn't listening on %s: is gmbd.service running?", path);
    case EAGAIN:
    case ETIMEDOUT:
        return outcome_set(outcome, GMB_E_TIMED_OUT, "gmbd doesn't take connections on %s", path);
    case EPROTOTYPE:
        return outcome_set(outcome, GMB_E_INVALID, "%s is no socket of gmbd's", path);
    default:
        return outcome_set_errno(outcome, error, "connecting to gmbd on %s failed", path);
    }
}

int connect_socket(const char *path, uint64_t deadline_ns, int *ret_fd, struct outcome *outcome)
{
    _cleanup_close_ int fd = -1;
    struct sockaddr_un address;
    int r = address_fill(path, &address, outcome);

    if (r < 0)
        return r;
    fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return outcome_set_errno(outcome, errno, "no socket can be made");
    do {
        r = timeout_arm(fd, deadline_ns);
        if (r < 0)
            return connect_error(path, -r, outcome);
        r = connect(fd, (const struct sockaddr *) &address, sizeof(address)) < 0 ? errno : 0;
    } while (r == EINTR);
    if (r != 0)
        return connect_error(path, r, outcome);
    *ret_fd = TAKE_FD(fd);
    return 0;
}

static int hello_send(struct conn *conn, const char *program, struct outcome *outcome)
{
    Gmb__ClientMessage message = GMB__CLIENT_MESSAGE__INIT;
    Gmb__Hello hello;
    char name[LIMIT_NAME_BYTES + 1];
    int r;

    text_clean(name, sizeof(name), program != NULL ? program : program_invocation_short_name);
    gmb__hello__init(&hello);
    hello.version = CLIENT_PROTOCOL_VERSION;
    hello.program = name;
    message.id = HELLO_ID;
    message.body_case = GMB__CLIENT_MESSAGE__BODY_HELLO;
    message.hello = &hello;
    r = conn_send_consume(conn, &message.base, NULL);
    /* A broker that has no room says so and closes: what it said is still to be read. */
    if (r == -EPIPE || r == -ECONNRESET)
        return 0;
    return r < 0 ? outcome_set_errno(outcome, r, "greeting gmbd failed") : 0;
}

/* One frame, or the reason why there is none. */
static int frame_wait(struct conn *conn, uint64_t deadline_ns, const uint8_t **ret_bytes,
    size_t *ret_size, struct outcome *outcome)
{
    _cleanup_fdset_ struct fdset fds = FDSET_EMPTY;
    int r;

    while ((r = conn_receive(conn, ret_bytes, ret_size, &fds)) == -EAGAIN) {
        struct pollfd poll = {.fd = conn_fd(conn), .events = POLLIN};
        uint64_t left_ns = sub_saturate(deadline_ns, clock_now(&clock_monotonic));
        struct timespec left = {
            .tv_sec = (time_t) (left_ns / NSEC_PER_SEC),
            .tv_nsec = (long) (left_ns % NSEC_PER_SEC),
        };

        if (left_ns == 0)
            return outcome_set(outcome, GMB_E_TIMED_OUT, "gmbd doesn't answer the greeting");
        if (ppoll(&poll, 1, &left, NULL) < 0 && errno != EINTR)
            return outcome_set_errno(outcome, errno, "waiting for gmbd failed");
        if (conn_flush(conn) < 0)
            continue; /* the reason is in the next frame, or in its absence */
    }
    if (r == -ECONNRESET || r == -EPIPE)
        return outcome_set(
            outcome, GMB_E_DISCONNECTED, "gmbd closed the connection while greeting");
    if (r < 0 || fds.count > 0)
        return outcome_set(outcome, GMB_E_PROTOCOL, "gmbd answered the greeting with garbage");
    return 0;
}

int connect_greet(struct conn *conn, const char *program, uint64_t deadline_ns,
    Gmb__BrokerMessage **ret, struct outcome *outcome)
{
    Gmb__BrokerMessage *message;
    const uint8_t *bytes;
    size_t size;
    int r = hello_send(conn, program, outcome);

    if (r == 0)
        r = frame_wait(conn, deadline_ns, &bytes, &size, outcome);
    if (r < 0)
        return r;
    if (frame_decode_broker(bytes, size, &message) < 0)
        return outcome_set(outcome, GMB_E_PROTOCOL, "gmbd answered the greeting with garbage");
    if (message->body_case == GMB__BROKER_MESSAGE__BODY_ERROR)
        r = outcome_from_error(outcome, message->error);
    else if (message->body_case != GMB__BROKER_MESSAGE__BODY_WELCOME || message->id != HELLO_ID)
        r = outcome_set(outcome, GMB_E_PROTOCOL, "gmbd answered the greeting with another message");
    else if (message->welcome->version == 0 || message->welcome->version > CLIENT_PROTOCOL_VERSION)
        r = outcome_set(outcome, GMB_E_UNSUPPORTED, "gmbd speaks version %u, this library up to %u",
            message->welcome->version, CLIENT_PROTOCOL_VERSION);
    if (r < 0) {
        frame_message_free(&message->base);
        return r;
    }
    *ret = message;
    return 0;
}
