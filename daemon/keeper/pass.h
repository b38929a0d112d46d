/*
 * Handing fds over to another program by the convention of sd_listen_fds(3): they lie from 3 on, in
 * order; LISTEN_FDS, LISTEN_FDNAMES and LISTEN_PID say how many, which, and for whom.
 *
 * The kernel takes no string of more than 128 KiB into an environment: the names of all fds
 * together, a byte between two of them, must be shorter, under systemd as well.
 */
#pragma once

#include "base/macro.h"

#define PASS_FIRST_FD 3
#define PASS_NAMES_BYTES (128 * 1024 - sizeof("LISTEN_FDNAMES="))

struct pass {
    int *fds;    /* owned by whoever fills it */
    char *names; /* joined by ':' */
    size_t count, room, names_bytes;
};

/* Frees the lists; no fd is closed. */
void pass_clear(struct pass *pass);
/* -ENOMEM; -E2BIG: the names wouldn't fit into an environment any more. */
int pass_add(struct pass *pass, const char *name, int fd) _must_check_;

/*
 * Moves the fds to their places and sets the environment for process `pid`, so that an exec may
 * follow. Whatever else lies there is closed: for a process that is about to become another
 * program. The places of `pass` follow the fds. -errno: some may have moved all the same.
 */
int pass_apply(struct pass *pass, pid_t pid) _must_check_;
