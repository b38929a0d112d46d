/*
 * Runs driver calls that may take long (create, release, look at free memory) off the event loop:
 * one thread for each device, jobs in the order in which they were given.
 *
 * Where fds can be kept beyond this process (fdstore.h), a created chunk is exported to there
 * before it is said to be created, and taken from there before it is released, since the copy there
 * holds the memory too. Other things are kept on the same way.
 *
 * The chunks' handles live here, under the core's chunk numbers. The loop owns a chunk's record
 * except between giving a job for it and taking the job's completion.
 *
 * All functions belong to the loop's thread. None blocks, but executor_free().
 */
#pragma once

#include "base/limits.h"
#include "daemon/fdstore.h"
#include "gpu/gpu.h"

enum executor_job_type {
    EXECUTOR_JOB_CREATE,
    EXECUTOR_JOB_RELEASE,
    EXECUTOR_JOB_OBSERVE,
    EXECUTOR_JOB_KEEP,
    EXECUTOR_JOB_MAX
};

/* What became of one job. */
struct executor_done {
    enum executor_job_type type;
    uint32_t device, chunk, generation;
    int result;                /* 0, GPU_NO_MEMORY or -errno */
    uint64_t free_bytes;       /* OBSERVE */
    uint64_t tag;              /* KEEP */
    char text[GPU_ERROR_SIZE]; /* of a failure; "" else */
};

struct executor;
struct slabs;

/* Starts a thread for each device of `gpu`, which must outlive the executor, as must `store` (NULL:
 * nothing is kept). -errno. */
int executor_new(struct gpu *gpu, struct fdstore *store, struct executor **ret) _must_check_;
/* Finishes the jobs that run, drops the others, releases every chunk. Blocks meanwhile. NULL ok. */
struct executor *executor_free(struct executor *executor);

/*
 * Chunks of this device are slabs of that process, which is borrowed and must be stopped before
 * executor_free(), and freed after it. Before any job there.
 */
void executor_use_slabs(struct executor *executor, uint32_t device, struct slabs *slabs);

/* Readable when there are completions; borrowed. */
int executor_fd(const struct executor *executor);

/* Each job is answered by exactly one completion; giving one needs no memory and can't fail. */
void executor_create(struct executor *executor, uint32_t device, uint32_t chunk,
    uint32_t generation, uint64_t bytes);
void executor_release(
    struct executor *executor, uint32_t device, uint32_t chunk, uint32_t generation);
void executor_observe(struct executor *executor, uint32_t device);

/* One thing to be kept: a copy of the fd is the job's. */
struct executor_keep {
    enum fdstore_kind kind;
    int fd;
};
#define EXECUTOR_KEEPS 3
/*
 * Keeps fds under their kinds and one number, and answers with `tag` once they are there, or with
 * what failed: then none is kept. -ENOMEM, -errno: nothing was started. Without a store: -ENOTSUP.
 */
int executor_keep(struct executor *executor, uint32_t device, const struct executor_keep *keeps,
    size_t count, uint32_t number, uint64_t tag) _must_check_;
/* Lets go of them again, without an answer. Without memory they are left to the next start. */
void executor_unkeep(struct executor *executor, uint32_t device, const enum fdstore_kind *kinds,
    size_t count, uint32_t number);

/*
 * A chunk of an earlier broker, from its kept fd, which stays the caller's. To be called before any
 * job for that number. The driver's -errno, with `error` filled.
 */
int executor_adopt(struct executor *executor, uint32_t device, uint32_t chunk, uint32_t generation,
    uint64_t bytes, int fd, struct gpu_error *error) _must_check_;
/* Whether there is a handle of that chunk; whether another broker would find it. */
bool executor_holds(const struct executor *executor, uint32_t chunk, uint32_t generation);
bool executor_kept(const struct executor *executor, uint32_t chunk, uint32_t generation);

/* Whether something wasn't kept since the start, for want of room or of anybody who does it. */
bool executor_store_full(struct executor *executor);

/* Jobs that were given and whose completion wasn't taken yet. */
size_t executor_busy(const struct executor *executor);
/* Takes one completion: false when there is none (and executor_fd() is quiet again). */
bool executor_take(struct executor *executor, struct executor_done *ret);

/*
 * What a created chunk is sent as: a new fd, the caller's, or a slab's token. -ESTALE if the number
 * holds another generation or nothing, -EMFILE when this process or system has no fd left, else the
 * driver's -errno, with `error` filled. A driver call on the loop's thread: exporting waits for no
 * other process.
 */
int executor_export(struct executor *executor, uint32_t chunk, uint32_t generation,
    struct gpu_shareable *ret, struct gpu_error *error) _must_check_;

/*
 * Exports a chunk ahead of its next grant, so that this one finds the fd ready. At most
 * EXECUTOR_SPARES chunks have one, those that asked last; it goes with the chunk's release.
 * To be called when nobody waits: it is a driver call. Failing is no error.
 */
#define EXECUTOR_SPARES 16
void executor_spare(struct executor *executor, uint32_t chunk, uint32_t generation);
