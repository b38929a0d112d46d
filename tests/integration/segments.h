/* What tests of segments share: orders in short, and what the broker says of its segments. */
#pragma once

#include "tests/integration/member.h"
#include "tests/integration/raw.h"

#define MIB(n) ((uint64_t) (n) << 20)
#define SEGMENT_WAIT UINT64_C(30000000000)
#define SEGMENT_STRANGER 65534 /* the user of another tenant */
#define STATE(name) GMB__SEGMENT_STATE__SEGMENT_STATE_##name
#define ACTION(name) GMB__SEGMENT_ACTION__SEGMENT_ACTION_##name
#define SEGMENT_BROKER HARNESS_BROKER "HostTier=256M\nMoverIdle=200ms\n"

/* The two processes that most tests tell what to do. */
void segment_pair_start(const struct harness *harness, struct member *first, struct member *second);
/* They end by themselves, no segment is left, and the broker is as it was. */
void segment_pair_end(struct harness *harness, struct member *first, struct member *second);

/* The order, with 30 s to wait. */
struct member_order segment_order(enum member_what what, const char *name, uint64_t bytes);
/* Does it; ends the test unless the result is this one. */
void segment_do(
    struct member *member, int result, enum member_what what, const char *name, uint64_t bytes);
/* Creates, writes and seals it, with contents that follow from the seed, and stays its reader. */
void segment_make(struct member *member, const char *name, uint64_t bytes, uint64_t seed);
/* … and gives it back, so that nobody has it. */
void segment_make_idle(struct member *member, const char *name, uint64_t bytes, uint64_t seed);
/* … and waits until it is in the host tier. */
void segment_make_demoted(const struct harness *harness, struct member *member, const char *name,
    uint64_t bytes, uint64_t seed);
/* Compares contents of what the member has. */
int segment_compare(struct member *member, uint64_t seed);

/* The segment that was made last of those with this name; false when there is none. Its strings
 * are gone. */
bool segment_status(const struct harness *harness, const char *name, Gmb__SegmentStatus *ret);
size_t segment_count(const struct harness *harness);
/* Waits until its state is this one; or, with REMOVED, until there is none. */
void segment_await(const struct harness *harness, const char *name, Gmb__SegmentState state);
/* Waits until so many requests wait for it, or so many have it. */
void segment_await_waiting(const struct harness *harness, const char *name, uint32_t count);
void segment_await_readers(const struct harness *harness, const char *name, uint32_t count);
/* Does something to all of that name; how many, or a negative enum gmb_status. */
int segment_change(const struct harness *harness, const char *name, Gmb__SegmentAction action);
/* Demotes the one of that name; again, while the broker may not have heard yet that its last reader
 * has let it go. */
void segment_demote(const struct harness *harness, const char *name);
/* Removes all that are there, and waits until they have gone. */
void segments_clear(const struct harness *harness);
/* This is the broker's configuration from now on. */
void segments_reload(const struct harness *harness, const char *text);

/* The broker is killed, and its successor is there. */
void segment_succeed(struct harness *harness);
/* A process that wants nothing of the broker doesn't look for it: this one does. */
void segment_come_back(struct member *member);
/* What the only tenant has on the device, and in the host tier. */
void segment_expect_use(const struct harness *harness, uint64_t leased, uint64_t evicted);
void segment_expect_state(const struct harness *harness, const char *name, Gmb__SegmentState state);
/* All of its bytes are what was sealed, as the sums say that the broker has kept. */
void segment_expect_verifies(const struct harness *harness, const char *name);

/* By hand: asks for one, of the share group or not; seals it. The request. */
uint64_t segment_ask_of(struct raw *raw, bool group, const char *name, uint64_t bytes,
    uint64_t chunk_bytes, uint64_t wait_ns);
uint64_t segment_ask(
    struct raw *raw, const char *name, uint64_t bytes, uint64_t chunk_bytes, uint64_t wait_ns);
uint64_t segment_seal_ask(struct raw *raw, uint64_t lease);
/* All that was sent has been read, as the refusal of a seal of no lease shows. */
void segment_expect_read(struct raw *raw);

/* Clients that wait for it with as many requests as one may, and so with all that their tenant may.
 * The first request of the first of them. */
#define SEGMENT_CROWD (LIMIT_SEGMENT_WAITERS / LIMIT_SEGMENT_WAITERS_PER_CLIENT)
uint64_t segment_crowd_start(struct raw crowd[SEGMENT_CROWD], const struct harness *harness,
    bool group, const char *name, uint64_t bytes);
void segment_crowd_end(struct raw crowd[SEGMENT_CROWD]);
