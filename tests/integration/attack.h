/*
 * A victim with pages and leases, and an attacker beside it: another tenant's process, of another
 * user. Where memory is shared over CUDA IPC the victim has a lease alone.
 */
#pragma once

#include "tests/integration/raw.h"

#define ATTACK_USER 65534
#define ATTACK_CHUNKS 64     /* the attacker's MemoryMax, in chunks */
#define ATTACK_LEASES_MAX 32 /* and its LeasesMax */
#define ATTACK_VICTIM_LEASES 8

struct attack_bed {
    struct harness harness;
    uint64_t leases[ATTACK_VICTIM_LEASES]; /* the victim's, by their real ids */
    size_t lease_count;
};

extern struct attack_bed attack_bed;

/* Skips the test where there can't be two users. */
void attack_begin(void);
/* Runs it as the attacker. Its own assertions decide, and that the victim is as it was. */
void attack_run(void (*run)(void));
/* The victim is as it was, and the broker's fds and memory are. */
void attack_end(void);
