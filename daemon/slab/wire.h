/*
 * Between gmbd and its gmbd-slab: a SEQPACKET pair, one datagram is one struct, as the machine that
 * both run on has it. The broker sends a hello and is answered by one `slab_ready`; from then on
 * one request at a time, each answered by one reply with its id. No fds travel.
 *
 * A version differs when gmbd was replaced on disk under a running one: the slab process then ends.
 */
#pragma once

#include "gpu/gpu.h"

#define SLAB_WIRE_VERSION 1u

struct slab_hello {
    uint32_t version;
    uint8_t device[16]; /* UUID */
};

struct slab_ready {
    uint32_t version;
    uint32_t zero;
    uint64_t context_bytes; /* what its CUDA context costs, as seen in free memory */
};

enum slab_request_kind {
    SLAB_CREATE, /* a slab of `bytes`, all zero: replies with its index and its token */
    SLAB_FREE,   /* the slab at `index`, which another one may have afterwards */
    SLAB_REQUEST_KIND_MAX
};

struct slab_request {
    uint64_t id;
    uint32_t kind;
    uint32_t index; /* FREE */
    uint64_t bytes; /* CREATE */
};

struct slab_reply {
    uint64_t id;
    int32_t result; /* 0, GPU_NO_MEMORY or -errno */
    uint32_t index;
    unsigned char token[GPU_IPC_TOKEN_SIZE];
    char text[GPU_ERROR_SIZE]; /* of a failure; NUL-terminated */
};
