/*
 * A second process that does what it is told: forked and exec'ed, since no driver survives a plain
 * fork. A conversation of one request and one reply at a time over a socket pair.
 */
#pragma once

#include <sys/types.h>

#include "base/macro.h"
#include "gpu/cuda_abi.h"

enum peer_op {
    PEER_INIT,          /* cuInit and the primary context, current */
    PEER_INIT_BARE,     /* cuInit alone */
    PEER_CREATE_EXPORT, /* a chunk of `bytes`: replies with its fd; keeps the handle */
    PEER_IMPORT,        /* the request's fd, `bytes`: keeps the handle, closes the fd */
    PEER_MAP,           /* the handle, `bytes`: readable and writable; replies with the address */
    PEER_UNMAP,
    PEER_RELEASE, /* the handle */
    PEER_FILL,    /* every byte of the mapping becomes `value` */
    PEER_READ,    /* replies with the byte at offset `bytes` of the mapping as `value` */
    PEER_PARK,    /* keeps the request's fd open; touches no driver */
    PEER_UNPARK,
    PEER_IPC_EXPORT, /* cuMemAlloc of `bytes`: replies with the token */
    PEER_IPC_OPEN,   /* the token: the mapping for FILL and READ */
    PEER_IPC_CLOSE,
    PEER_IPC_FREE, /* cuMemFree of what was exported */
    PEER_MAX
};

struct peer_message {
    enum peer_op op;
    CUresult result; /* of the driver, in a reply */
    uint64_t bytes;
    uint64_t value;
    CUipcMemHandle token;
};

struct peer {
    pid_t pid;
    int socket;
};

/* `environment`: "NAME=value" or NULL. Asserts success. */
struct peer peer_start(const char *environment);
/* Sends a request with `fd` (borrowed; −1: none), waits for the reply. `ret_fd` may be NULL. */
struct peer_message peer_call(struct peer *peer, struct peer_message request, int fd, int *ret_fd);
/* As peer_call with `op` and `bytes`; the result must be SUCCESS. */
struct peer_message peer_do(struct peer *peer, enum peer_op op, uint64_t bytes);
/* Lets it exit by itself, or kills it; waits until it is gone. */
void peer_end(struct peer *peer);
void peer_kill(struct peer *peer);

/* One datagram with at most one fd; used by both sides. 0, -EPIPE at the end, negative errno. */
int peer_send(int socket, const struct peer_message *message, int fd);
int peer_receive(int socket, struct peer_message *ret, int *ret_fd);
