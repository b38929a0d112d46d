/* One datagram is one message with at most one fd. */
#include "tests/conformance/peer.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

int peer_send(int socket, const struct peer_message *message, int fd)
{
    struct iovec data = {.iov_base = (void *) (uintptr_t) message, .iov_len = sizeof(*message)};
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct msghdr header = {.msg_iov = &data, .msg_iovlen = 1};

    if (fd >= 0) {
        struct cmsghdr *rights = &control.header;

        header.msg_control = &control;
        header.msg_controllen = sizeof(control);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(rights), &fd, sizeof(int));
    }
    return sendmsg(socket, &header, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

int peer_receive(int socket, struct peer_message *ret, int *ret_fd)
{
    struct iovec data = {.iov_base = ret, .iov_len = sizeof(*ret)};
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct msghdr header = {.msg_iov = &data,
        .msg_iovlen = 1,
        .msg_control = &control,
        .msg_controllen = sizeof(control)};
    ssize_t length = recvmsg(socket, &header, MSG_CMSG_CLOEXEC);
    struct cmsghdr *rights = CMSG_FIRSTHDR(&header);

    if (length < 0)
        return -errno;
    if (length == 0)
        return -EPIPE;
    *ret_fd = -1;
    if (rights != NULL && rights->cmsg_type == SCM_RIGHTS)
        memcpy(ret_fd, CMSG_DATA(rights), sizeof(int));
    return (size_t) length == sizeof(*ret) ? 0 : -EBADMSG;
}
