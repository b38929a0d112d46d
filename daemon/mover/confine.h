/* What the mover gives up before it touches anything: it needs a socket and a device. */
#pragma once

#include "base/macro.h"

/*
 * Names the process, closes every fd but standard ones and `socket_fd`, bounds what it may use,
 * becomes `user` (NULL: stays who it is; with no other group) if it is root's, gives up new
 * privileges for ever, and dies with its parent. -ENOENT: there is no such user; other -errno.
 */
int confine(int socket_fd, const char *user) _must_check_;
