/*
 * Workers of all kinds under one broker: some take, grow, shrink and give back leases, some have an
 * arena that doesn't fit, and some compute tokens (gmb-transformer, named by the environment). Each
 * kind is a tenant of its own where the test is root, and all are one tenant where it isn't.
 *
 * Nobody else writes what one of them writes, and each compares what it has with what it wrote, or
 * its tokens with those of an undisturbed run; whatever isn't so ends it, and the test.
 */
#pragma once

#include <stdatomic.h>

#include "tests/integration/lessee.h"

#define CREW_LESSEES 20u
#define CREW_ARENAS 10u
#define CREW_TRANSFORMERS 2u
#define CREW_RESTERS (CREW_LESSEES + CREW_ARENAS)
#define CREW_WORKERS (CREW_RESTERS + CREW_TRANSFORMERS)
/* A device that is too small for the pages, and never for the leases. */
#define CREW_MEMORY "360M"
#define CREW_CONFIG_BYTES 1024

/* What is shared with a worker. Only those that rest say what they have. */
struct crew_slot {
    unsigned number;
    atomic_uint rounds; /* of a transformer: runs that ended with the right tokens */
    atomic_bool resting;
    atomic_uint leases, fds;
    atomic_ullong bytes;
    atomic_ullong evictions, restores;
};

struct crew {
    atomic_bool rest, stop;
    struct crew_slot slots[CREW_WORKERS];
};

/* The broker's configuration for them. */
void crew_configure(char ret[CREW_CONFIG_BYTES]);
/* Forks all of them, before the harness opens the driver; and tells them where the broker is. */
struct crew *crew_fork(void);
void crew_go(const struct harness *harness);
/* The process of a worker that rests. */
pid_t crew_pid(unsigned number);
/* A moment, in loops that wait for `what` until the deadline; the test ends if a worker has. */
void crew_patience(uint64_t deadline_ms, const char *what);
/* Until everybody has ended, which must be well. */
void crew_join(void);
