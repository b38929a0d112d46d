/*
 * What a worker does in the kill matrix, one script for each part of the protocol, and what another
 * one has meanwhile, which must not notice. Whatever doesn't come as expected ends the process that
 * calls; what a broker that is away could not be told is told later.
 */
#pragma once

#include <stdatomic.h>

#include "tests/integration/lessee.h"

struct kills_script {
    const char *name;
    const char *devices; /* GMB_SIM_DEVICES */
    unsigned messages;   /* the worker has at least so many, and its broker */
    lessee_run *work;
    lessee_run *hold, *look, *let_go; /* beside a lease, the other one; NULL: nothing */
};

/* A script stops in the middle as long as this is wanted, shared with the test, and says meanwhile
 * what it has of each device. NULL: none stops. */
struct kills_rest {
    atomic_bool wanted, rests;
    atomic_ullong bytes[2];
};
extern struct kills_rest *kills_rest;

/* The broker's configuration for all of them: a tenant with room for eight chunks. */
#define KILLS_CONFIG                                                                               \
    HARNESS_BROKER "HostTier=256M\nMoverIdle=200ms\nPressureDwell=1ms\nDegradeDwell=1ms\n"         \
                   "AdviceGrace=200ms\n[Tenant test]\nUser=*\nMemoryMax=16M\n"                     \
                   "DegradeLow=reduce-batch 0.75\n"

/* NULL: there is none of that name. */
const struct kills_script *kills_find(const char *name);
