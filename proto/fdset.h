/*
 * A bounded set of owned file descriptors, as they travel with one frame.
 * Whoever holds the set owns every fd in it that was not taken.
 */
#pragma once

#include "base/limits.h"
#include "base/macro.h"

struct fdset {
    size_t count;
    int fds[LIMIT_FRAME_FDS]; /* -1 where taken */
};

#define FDSET_EMPTY ((struct fdset){.count = 0})
#define _cleanup_fdset_ _cleanup_(fdset_close)

/* Takes ownership of `fd` (>= 0), on failure too: -EMSGSIZE when the set is full (fd closed). */
int fdset_consume(struct fdset *set, int fd) _must_check_;
/* Hands out fd `index`; the caller owns it, the set no longer does. -1 if taken or out of range. */
int fdset_take(struct fdset *set, size_t index);
/* Closes what is left and empties the set. Idempotent. */
void fdset_close(struct fdset *set);
/* Moves everything from `from` to `to`, which is closed before. */
void fdset_move(struct fdset *to, struct fdset *from);
