/* See notify.h. */
#include "daemon/keeper/notify.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

static const char *value_of(const char *line, const char *name)
{
    size_t length = strlen(name);

    return strncmp(line, name, length) == 0 && line[length] == '=' ? line + length + 1 : NULL;
}

static bool is_set(const char *line, const char *name)
{
    const char *value = value_of(line, name);

    return value != NULL && strcmp(value, "1") == 0;
}

static void line_parse(const char *line, struct notify *notify)
{
    const char *value;

    notify->ready |= is_set(line, "READY");
    notify->watchdog |= is_set(line, "WATCHDOG");
    notify->fd_store |= is_set(line, "FDSTORE");
    notify->fd_store_remove |= is_set(line, "FDSTOREREMOVE");
    value = value_of(line, "FDNAME");
    if (value != NULL)
        notify->fd_name = value;
    value = value_of(line, "STATUS");
    if (value != NULL)
        notify->status = value;
}

void notify_parse(char *text, struct notify *ret)
{
    char *at = text;
    const char *line;

    *ret = (struct notify){0};
    while ((line = strsep(&at, "\n")) != NULL)
        line_parse(line, ret);
}

int notify_socket(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    _cleanup_close_ int fd = -1;
    int on = 1;

    if (strlen(path) >= sizeof(address.sun_path))
        return -ENAMETOOLONG;
    strcpy(address.sun_path, path);
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    if (setsockopt(fd, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) < 0 ||
        bind(fd, (struct sockaddr *) &address, sizeof(address)) < 0)
        return -errno;
    return TAKE_FD(fd);
}

static void control_take(struct cmsghdr *control, struct notify_datagram *datagram)
{
    size_t bytes = control->cmsg_len - CMSG_LEN(0);

    if (control->cmsg_level != SOL_SOCKET)
        return;
    if (control->cmsg_type == SCM_RIGHTS) {
        size_t count = MIN(bytes / sizeof(int), NOTIFY_FDS - datagram->fd_count);

        memcpy(&datagram->fds[datagram->fd_count], CMSG_DATA(control), count * sizeof(int));
        datagram->fd_count += count;
    } else if (control->cmsg_type == SCM_CREDENTIALS && bytes >= sizeof(struct ucred)) {
        struct ucred peer;

        memcpy(&peer, CMSG_DATA(control), sizeof(peer));
        datagram->pid = peer.pid;
    }
}

int notify_receive(int fd, struct notify_datagram *ret)
{
    union {
        char bytes[CMSG_SPACE(sizeof(int) * NOTIFY_FDS) + CMSG_SPACE(sizeof(struct ucred))];
        struct cmsghdr align;
    } control;
    struct iovec text = {.iov_base = ret->text, .iov_len = NOTIFY_BYTES};
    struct msghdr message = {
        .msg_iov = &text,
        .msg_iovlen = 1,
        .msg_control = control.bytes,
        .msg_controllen = sizeof(control.bytes),
    };
    ssize_t length = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

    ret->fd_count = 0;
    ret->pid = 0;
    if (length < 0)
        return errno == EWOULDBLOCK ? -EAGAIN : -errno;
    for (struct cmsghdr *each = CMSG_FIRSTHDR(&message); each != NULL;
         each = CMSG_NXTHDR(&message, each))
        control_take(each, ret);
    ret->text[length] = '\0';
    if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
        ret->text[0] = '\0';
        notify_datagram_clear(ret);
    }
    return 0;
}

void notify_datagram_clear(struct notify_datagram *datagram)
{
    for (size_t i = 0; i < datagram->fd_count; i++)
        close_fd(&datagram->fds[i]);
    datagram->fd_count = 0;
}
