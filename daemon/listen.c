/*
 * Whose a path is, a lock file beside it says: the lock goes with its holder's death, so a lock
 * that can be taken means that the socket file is nobody's. The file itself stays: unlinking a
 * lock file would let two processes hold locks on two files of that name. A connect probe covers
 * owners that know nothing of the lock.
 */
#include "daemon/listen.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>

#define BACKLOG 512

static int fail(int result, char error[LISTEN_ERROR_BYTES], const char *path, const char *what)
{
    (void) snprintf(error, LISTEN_ERROR_BYTES, "%.120s: %s: %s", path, what, strerror(-result));
    return result;
}

static size_t names_count(const char *names)
{
    size_t count = names != NULL && names[0] != '\0';

    for (; names != NULL && *names != '\0'; names++)
        count += *names == ':';
    return count;
}

/* How many fds were passed, and their names, the caller's. */
static int passed_names(char ***ret, char error[LISTEN_ERROR_BYTES])
{
    int count = sd_listen_fds_with_names(0, ret), fds = count < 0 ? sd_listen_fds(0) : count;

    if (count >= 0)
        return count;
    if (fds > 0)
        (void) snprintf(error, LISTEN_ERROR_BYTES,
            "LISTEN_FDS says that %d file descriptors were passed, and LISTEN_FDNAMES has %zu "
            "names: which is which can't be told",
            fds, names_count(getenv("LISTEN_FDNAMES")));
    else
        (void) snprintf(error, LISTEN_ERROR_BYTES,
            "file descriptors were passed that can't be taken (LISTEN_PID, LISTEN_FDS): %s",
            strerror(-count));
    return count;
}

int listen_activated(const char *name, struct listen_socket *ret, char error[LISTEN_ERROR_BYTES])
{
    char **names = NULL;
    int count = passed_names(&names, error), found = -1;

    if (count < 0)
        return count;
    for (int i = 0; i < count; i++) {
        if (found < 0 && strcmp(names[i], name) == 0)
            found = SD_LISTEN_FDS_START + i;
        free(names[i]);
    }
    free(names);
    if (found < 0)
        return 0;
    if (sd_is_socket(found, AF_UNIX, SOCK_SEQPACKET, 1) <= 0) {
        (void) snprintf(error, LISTEN_ERROR_BYTES,
            "the socket '%s' of systemd is no listening AF_UNIX SOCK_SEQPACKET socket", name);
        return -EINVAL;
    }
    if (fcntl(found, F_SETFL, O_NONBLOCK) < 0)
        return fail(-errno, error, name, "fcntl");
    *ret = (struct listen_socket){.fd = found, .lock = -1};
    return 1;
}

static int folder_make(const char *path)
{
    _cleanup_free_ char *copy = strdup(path);

    if (copy == NULL)
        return -ENOMEM;
    if (mkdir(dirname(copy), 0755) < 0 && errno != EEXIST)
        return -errno;
    return 0;
}

static int lock_take(const char *path, int *ret_lock)
{
    _cleanup_free_ char *name = NULL;
    _cleanup_close_ int lock = -1;

    if (asprintf(&name, "%s.lock", path) < 0) {
        name = NULL;
        return -ENOMEM;
    }
    lock = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (lock < 0)
        return -errno;
    if (flock(lock, LOCK_EX | LOCK_NB) < 0)
        return errno == EWOULDBLOCK ? -EADDRINUSE : -errno;
    *ret_lock = TAKE_FD(lock);
    return 0;
}

/* Removes a socket file that nobody listens on. -EADDRINUSE when somebody does, -EEXIST when it is
 * another kind of file. */
static int stale_remove(const struct sockaddr_un *address)
{
    _cleanup_close_ int probe = -1;
    struct stat status;

    if (lstat(address->sun_path, &status) < 0)
        return errno == ENOENT ? 0 : -errno;
    if (!S_ISSOCK(status.st_mode))
        return -EEXIST;
    probe = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (probe < 0)
        return -errno;
    if (connect(probe, (const struct sockaddr *) address, sizeof(*address)) == 0 ||
        errno != ECONNREFUSED)
        return -EADDRINUSE;
    return unlink(address->sun_path) < 0 ? -errno : 0;
}

static int socket_bind(const struct sockaddr_un *address, mode_t mode, gid_t gid, int *ret_fd)
{
    _cleanup_close_ int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    mode_t before;
    int r;

    if (fd < 0)
        return -errno;
    /* Born without permissions: nobody connects between bind(2) and what follows. */
    before = umask(0777);
    r = bind(fd, (const struct sockaddr *) address, sizeof(*address));
    (void) umask(before);
    if (r < 0)
        return -errno;
    if ((gid != (gid_t) -1 && chown(address->sun_path, (uid_t) -1, gid) < 0) ||
        chmod(address->sun_path, mode) < 0 || listen(fd, BACKLOG) < 0) {
        r = -errno;
        (void) unlink(address->sun_path);
        return r;
    }
    *ret_fd = TAKE_FD(fd);
    return 0;
}

int listen_bind(const char *path, mode_t mode, gid_t gid, struct listen_socket *ret,
    char error[LISTEN_ERROR_BYTES])
{
    struct listen_socket result = LISTEN_SOCKET_NONE;
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *what = "cannot lock the socket";
    int r;

    if (strlen(path) >= sizeof(address.sun_path))
        return fail(-ENAMETOOLONG, error, path, "cannot bind the socket");
    memcpy(address.sun_path, path, strlen(path));
    r = folder_make(path);
    if (r == 0)
        r = lock_take(path, &result.lock);
    if (r == -EADDRINUSE) {
        (void) snprintf(error, LISTEN_ERROR_BYTES, "%.120s: another gmbd serves it", path);
        return r;
    }
    if (r == 0) {
        what = "cannot replace what stands there";
        r = stale_remove(&address);
    }
    if (r == 0) {
        what = "cannot bind the socket";
        r = socket_bind(&address, mode, gid, &result.fd);
    }
    if (r == 0) {
        result.path = strdup(path);
        if (result.path == NULL)
            r = -ENOMEM;
    }
    if (r < 0) {
        listen_close(&result);
        return fail(r, error, path, what);
    }
    *ret = result;
    return 0;
}

void listen_close(struct listen_socket *socket)
{
    if (socket->path != NULL)
        (void) unlink(socket->path);
    free(socket->path);
    close_fd(&socket->fd);
    close_fd(&socket->lock);
    *socket = LISTEN_SOCKET_NONE;
}
