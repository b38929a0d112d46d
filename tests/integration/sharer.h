/* A process that makes or attaches to the shared arena "kv" and does with pages what it is told. */
#pragma once

#include "tests/integration/pages.h"

#define SHARER_PAGES 512
#define SHARER_PAGE (UINT64_C(64) << 10)
#define SHARER_PER_CHUNK ((uint32_t) (HARNESS_CHUNK / SHARER_PAGE))
#define SHARER_MAX (UINT64_C(128) << 20)

enum sharer_what {
    SHARER_ALLOC, /* `count` pages, each written; they are in the answer */
    SHARER_REF,   /* the pages of the order, as in what follows */
    SHARER_UNREF,
    SHARER_PIN, /* and waits until they are there */
    SHARER_UNPIN,
    SHARER_CHECK, /* pins, waits, compares, unpins */
    SHARER_STATS, /* used pages, mapped MiB and evicted pages */
    /* Threads allocate, pin and free until it ends; pages of the order are referenced, pinned and
     * dropped meanwhile. */
    SHARER_CHURN,
    SHARER_PUBLISH, /* as a chain, under keys that sharer_main.c makes */
    SHARER_LOOKUP,  /* of `count` keys; how many were found, and their pages, are in the answer */
    SHARER_LEAVE,   /* gives the arena up, and stays connected */
};

struct sharer_order {
    uint32_t what; /* enum sharer_what */
    uint32_t count;
    uint32_t pages[SHARER_PAGES];
};

struct sharer_answer {
    int32_t result; /* of the gmb_* call that failed, or the last one */
    uint32_t count;
    uint32_t pages[SHARER_PAGES];
};

struct sharer {
    pid_t pid;
    int to, from;
    struct sharer_answer answer; /* the last one */
};

/* Starts it; it has the arena when this returns. */
void sharer_start(struct sharer *sharer, const struct harness *harness, bool make);
/* Tells and waits; the result of the answer. */
int sharer_do(struct sharer *sharer, enum sharer_what what, uint32_t count, const uint32_t *pages);
/* By a signal, or, with 0, by itself, which must succeed. */
void sharer_end(struct sharer *sharer, int signal);
