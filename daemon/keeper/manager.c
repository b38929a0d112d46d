/* See manager.h. */
#include "daemon/keeper/manager.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define AGAIN_NS (50 * NSEC_PER_MSEC)

void manager_open(struct manager *manager)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = path != NULL ? strlen(path) : 0;
    _cleanup_close_ int fd = -1;

    *manager = (struct manager){.fd = -1, .again_ns = CLOCK_NEVER};
    if (length == 0 || (path[0] != '/' && path[0] != '@') || length >= sizeof(address.sun_path))
        return;
    memcpy(address.sun_path, path, length);
    if (path[0] == '@')
        address.sun_path[0] = '\0';
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *) &address,
                      (socklen_t) (offsetof(struct sockaddr_un, sun_path) + length)) < 0)
        return;
    manager->fd = TAKE_FD(fd);
}

void manager_close(struct manager *manager)
{
    close_fd(&manager->fd);
}

void manager_step(struct manager *manager, uint64_t now_ns)
{
    char line[NOTIFY_BYTES + sizeof("READY=1\nSTATUS=")];
    int length;

    if (!manager->due || now_ns < manager->again_ns)
        return;
    length = snprintf(line, sizeof(line), "%s%s%s", manager->ready ? "READY=1\n" : "",
        manager->status[0] != '\0' ? "STATUS=" : "", manager->status);
    manager->due = send(manager->fd, line, (size_t) length, MSG_NOSIGNAL) < 0 &&
                   (errno == EAGAIN || errno == ENOBUFS || errno == EINTR);
    manager->again_ns = manager->due ? add_saturate(now_ns, AGAIN_NS) : CLOCK_NEVER;
}

void manager_tell(struct manager *manager, bool ready, const char *status, uint64_t now_ns)
{
    if (manager->fd < 0 || (!ready && (status == NULL || status[0] == '\0')))
        return;
    manager->ready |= ready;
    if (status != NULL)
        (void) snprintf(manager->status, sizeof(manager->status), "%s", status);
    if (!manager->due) {
        manager->due = true;
        manager->again_ns = now_ns;
    }
    manager_step(manager, now_ns);
}
