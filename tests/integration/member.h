/*
 * A process that creates, opens, writes, seals and reads segments as it is told: one at a time, on
 * the broker's first device. A program of its own (member_main.c), since no driver survives a fork.
 */
#pragma once

#include "client/gmb.h"
#include "tests/integration/harness.h"

enum member_what {
    MEMBER_CREATE, /* `name` of `bytes`, waiting `wait_ns` at most */
    MEMBER_OPEN,
    MEMBER_CREATE_ASYNC, /* the same by callback, in a loop that dispatches */
    MEMBER_OPEN_ASYNC,
    MEMBER_FILL,  /* every word with what follows from `seed` */
    MEMBER_CHECK, /* … compares; INVALID when they differ */
    MEMBER_SEAL,
    MEMBER_POKE, /* one byte at `bytes`, whatever its mapping allows: it is made writable first */
    MEMBER_RELEASE,
    MEMBER_REMOVE,
    MEMBER_GROW,
    MEMBER_HEAR,  /* waits `bytes` ns to be told that it was changed; else NOT_FOUND */
    MEMBER_LEAVE, /* disconnects, and stays alive with what it mapped */
};

struct member_order {
    uint32_t what; /* enum member_what */
    uint32_t group;
    uint64_t bytes, chunk_bytes, wait_ns, seed;
    char name[80];
};

struct member_answer {
    int32_t result;
    uint32_t writable;
    uint64_t bytes;
    char limit[32], text[256];
};

struct member {
    pid_t pid;
    int to, from;
    struct member_answer answer; /* the last one */
};

/* Starts it as this user (0: the test's own); it is connected when this returns. */
void member_start(struct member *member, const struct harness *harness, unsigned uid);
/* Tells, and doesn't wait. */
void member_tell(struct member *member, const struct member_order *order);
/* Whether it has answered within so many ms; the answer is then read by member_answer(). */
bool member_ready(const struct member *member, int ms);
/* Waits for the answer; its result. */
int member_answer(struct member *member);
/* Tells and waits; the result of the answer. */
int member_do(struct member *member, const struct member_order *order);
/* By a signal, or, with 0, by itself, which must succeed. */
void member_end(struct member *member, int signal);
