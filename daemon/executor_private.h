/* What the two sides of the executor share: the loop's (executor.c) and the threads'
 * (executor_work.c). */
#pragma once

#include <pthread.h>

#include "daemon/executor.h"
#include "daemon/slabs.h"

/* Looks at one device that can be on their way at once; a core has one or two. */
#define OBSERVES 16
struct job {
    struct job *next;
    uint8_t type, device;
    bool kept; /* CREATE: the chunk is in the store … */
    bool sent; /* … or may be, if the store is slow */
    int result;
    uint32_t generation;
    union {
        uint32_t chunk;      /* CREATE, RELEASE */
        uint64_t free_bytes; /* OBSERVE */
        uint64_t tag;        /* KEEP */
    };
    char *text; /* of a failure; owned */
};

struct record {
    struct job job;
    struct gpu_chunk gpu; /* zero: none */
};

#define RECORDS_BYTES ((size_t) LIMIT_CHUNKS_TOTAL * sizeof(struct record))

/* Of things that are no chunks; freed when its completion is taken, or has nobody to take it. */
struct keep {
    struct job job;
    size_t count;
    uint32_t number;
    bool remove;
    struct executor_keep items[EXECUTOR_KEEPS];
};

/* An fd exported ahead; the slots are used in turn. */
struct spare {
    int fd; /* -1: none */
    uint32_t chunk, generation;
};

struct chain {
    struct job *first, **last;
};

struct worker {
    struct executor *executor;
    const struct gpu_device *device;
    struct slabs *slabs; /* NULL: the driver makes the chunks. Set before the first job */
    pthread_t thread;
    bool started, stop;
    pthread_mutex_t mutex;
    pthread_cond_t more;
    struct chain jobs;
    struct job observes[OBSERVES];
    uint32_t observes_used; /* bit mask, the loop's */
};

struct executor {
    struct gpu *gpu;
    struct fdstore *store; /* NULL: nothing is kept */
    bool store_full;       /* was said; under done_mutex */
    int event_fd;
    struct record *records; /* LIMIT_CHUNKS_TOTAL, by the core's chunk number */
    uint32_t record_high;   /* those above were never used */
    pthread_mutex_t done_mutex;
    struct chain done;  /* under done_mutex */
    struct chain taken; /* the loop's */
    size_t busy;        /* the loop's: jobs on their way */
    struct spare spares[EXECUTOR_SPARES];
    unsigned next_spare;
    size_t worker_count;
    struct worker workers[];
};

void executor_chain_init(struct chain *chain);
void executor_chain_append(struct chain *chain, struct job *job);
/* NULL when it is empty. */
struct job *executor_chain_take(struct chain *chain);

/* By whoever makes the device's chunks. */
int executor_chunk_release(
    const struct worker *worker, struct gpu_chunk *chunk, struct gpu_error *error);

/* One device's thread; `data` is its worker. */
void *executor_work(void *data);
/* Closes what it has. */
void executor_keep_free(struct keep *keep);
