/* The conversation with the broker, from its hello to its end. */
#pragma once

#include "gpu/gpu.h"

/* How the process ends, as its exit status: the same as a mover's (proto/mover.proto). */
enum slab_exit {
    SLAB_EXIT_END = 0,      /* the broker closed the socket */
    SLAB_EXIT_USAGE = 1,    /* wrong arguments, or it could not be confined */
    SLAB_EXIT_DEVICE = 2,   /* no driver, no such device, no context */
    SLAB_EXIT_PROTOCOL = 4, /* the broker said what makes no sense */
    SLAB_EXIT_MEMORY = 5,   /* no device memory for its context */
};

/* Serves until the broker closes the socket, which is the caller's. Blocks as long. */
enum slab_exit service_run(enum gpu_driver driver, int socket_fd) _must_check_;
