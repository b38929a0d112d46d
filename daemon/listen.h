/* Listening sockets: from systemd where it hands them over, else bound here. */
#pragma once

#include <sys/types.h>

#include "base/macro.h"

#define LISTEN_ERROR_BYTES 256

struct listen_socket {
    int fd;     /* listening, non-blocking, CLOEXEC */
    int lock;   /* lock file that says whose the path is; -1 where systemd owns it */
    char *path; /* to be unlinked at the end; NULL where systemd owns it */
};

#define LISTEN_SOCKET_NONE ((struct listen_socket){.fd = -1, .lock = -1})

/*
 * The socket that systemd passed under `name` (FileDescriptorName=), if any: 1 and `ret` set. 0
 * when there is none by that name, or what was passed is another process's (LISTEN_PID); -errno
 * with a line in `error` when it is of the wrong kind, or nobody can tell which one it is.
 */
int listen_activated(
    const char *name, struct listen_socket *ret, char error[LISTEN_ERROR_BYTES]) _must_check_;

/*
 * Binds `path` with exactly `mode` and, if `gid` is not -1, that group. A socket file that a dead
 * broker left is replaced; one that a living broker uses never is: -EADDRINUSE. Creates the last
 * folder of the path if it is missing. -errno, with a line in `error`.
 */
int listen_bind(const char *path, mode_t mode, gid_t gid, struct listen_socket *ret,
    char error[LISTEN_ERROR_BYTES]) _must_check_;

/* Closes; unlinks what was bound here. Idempotent. */
void listen_close(struct listen_socket *socket);
