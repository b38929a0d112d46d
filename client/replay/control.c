/* Connects, asks, waits, closes: for a question now and then, a lasting connection isn't worth the
 * bookkeeping. */
#include "client/replay/control.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/clock.h"
#include "proto/conn.h"

static void conn_free_ptr(struct conn **conn)
{
    *conn = conn_free(*conn);
}

static int connect_to(const char *path, struct conn **ret)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    _cleanup_close_ int fd = -1;

    if (strlen(path) >= sizeof(address.sun_path))
        return -ENAMETOOLONG;
    memcpy(address.sun_path, path, strlen(path) + 1);
    fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    if (connect(fd, (const struct sockaddr *) &address, sizeof(address)) < 0)
        return -errno;
    return conn_new_consume(TAKE_FD(fd), ret);
}

static int wait_for(struct conn *conn, uint64_t deadline_ns)
{
    struct pollfd item = {.fd = conn_fd(conn), .events = POLLIN};
    int r;

    if (conn_wants_write(conn))
        item.events |= POLLOUT;
    r = poll(
        &item, 1, (int) (sub_saturate(deadline_ns, clock_now(&clock_monotonic)) / NSEC_PER_MSEC));
    if (r < 0)
        return errno == EINTR ? 0 : -errno;
    if (r == 0)
        return -ETIMEDOUT;
    return item.revents & POLLOUT ? conn_flush(conn) : 0;
}

static int receive(struct conn *conn, uint64_t deadline_ns, Gmb__ControlReply **ret)
{
    _cleanup_fdset_ struct fdset fds = FDSET_EMPTY;
    const uint8_t *bytes;
    size_t size;
    int r;

    for (;;) {
        r = conn_receive(conn, &bytes, &size, &fds);
        if (r != -EAGAIN)
            break;
        r = wait_for(conn, deadline_ns);
        if (r < 0)
            return r;
    }
    return r < 0 ? r : frame_decode_reply(bytes, size, ret);
}

static void sum(const Gmb__Status *status, struct control_memory *ret)
{
    *ret = (struct control_memory){0};
    for (size_t i = 0; i < status->n_devices; i++) {
        const Gmb__DeviceStatus *device = status->devices[i];

        ret->total += device->total_bytes;
        ret->leased += device->leased_bytes;
        ret->cached += device->cached_bytes;
        ret->clean += device->clean_bytes;
        ret->releasing += device->releasing_bytes;
        ret->orphaned += device->orphaned_bytes;
        ret->free += device->free_bytes;
    }
}

int control_memory(const char *socket_path, int timeout_ms, struct control_memory *ret)
{
    uint64_t deadline_ns = clock_now(&clock_monotonic) + (uint64_t) timeout_ms * NSEC_PER_MSEC;
    _cleanup_(conn_free_ptr) struct conn *conn = NULL;
    Gmb__ControlRequest request = GMB__CONTROL_REQUEST__INIT;
    Gmb__StatusGet get = GMB__STATUS_GET__INIT;
    Gmb__ControlReply *reply = NULL;
    int r;

    request.id = 1;
    request.body_case = GMB__CONTROL_REQUEST__BODY_STATUS_GET;
    request.status_get = &get;
    r = connect_to(socket_path, &conn);
    if (r == 0)
        r = conn_send_consume(conn, &request.base, NULL);
    if (r == 0)
        r = receive(conn, deadline_ns, &reply);
    if (r < 0)
        return r;
    if (reply->body_case == GMB__CONTROL_REPLY__BODY_STATUS)
        sum(reply->status, ret);
    else
        r = -EBADMSG;
    frame_message_free(&reply->base);
    return r;
}
