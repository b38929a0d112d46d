/*
 * Runs driver calls that may take long (create, release, look at free memory) off the event loop:
 * one thread for each device, jobs in the order in which they were given.
 *
 * The chunks' handles live here, under the core's chunk numbers. The loop owns a chunk's record
 * except between giving a job for it and taking the job's completion.
 *
 * All functions belong to the loop's thread. None blocks, but executor_free().
 */
#pragma once

#include "base/limits.h"
#include "gpu/gpu.h"

enum executor_job_type {
    EXECUTOR_JOB_CREATE,
    EXECUTOR_JOB_RELEASE,
    EXECUTOR_JOB_OBSERVE,
    EXECUTOR_JOB_MAX
};

/* What became of one job. */
struct executor_done {
    enum executor_job_type type;
    uint32_t device, chunk, generation;
    int result;                /* 0, GPU_NO_MEMORY or -errno */
    uint64_t free_bytes;       /* OBSERVE */
    char text[GPU_ERROR_SIZE]; /* of a failure; "" else */
};

struct executor;

/* Starts a thread for each device of `gpu`, which must outlive the executor. -errno. */
int executor_new(struct gpu *gpu, struct executor **ret) _must_check_;
/* Finishes the jobs that run, drops the others, releases every chunk. Blocks meanwhile. NULL ok. */
struct executor *executor_free(struct executor *executor);

/* Readable when there are completions; borrowed. */
int executor_fd(const struct executor *executor);

/* Each job is answered by exactly one completion; giving one needs no memory and can't fail. */
void executor_create(struct executor *executor, uint32_t device, uint32_t chunk,
    uint32_t generation, uint64_t bytes);
void executor_release(
    struct executor *executor, uint32_t device, uint32_t chunk, uint32_t generation);
void executor_observe(struct executor *executor, uint32_t device);

/* Jobs that were given and whose completion wasn't taken yet. */
size_t executor_busy(const struct executor *executor);
/* Takes one completion: false when there is none (and executor_fd() is quiet again). */
bool executor_take(struct executor *executor, struct executor_done *ret);

/*
 * A new fd of a created chunk, the caller's. -ESTALE if the number holds another generation or
 * nothing, -EMFILE when this process or system has no fd left, else the driver's -errno, with
 * `error` filled. A driver call on the loop's thread: exporting waits for no other process.
 */
int executor_export(struct executor *executor, uint32_t chunk, uint32_t generation, int *ret_fd,
    struct gpu_error *error) _must_check_;

/*
 * Exports a chunk ahead of its next grant, so that this one finds the fd ready. At most
 * EXECUTOR_SPARES chunks have one, those that asked last; it goes with the chunk's release.
 * To be called when nobody waits: it is a driver call. Failing is no error.
 */
#define EXECUTOR_SPARES 16
void executor_spare(struct executor *executor, uint32_t chunk, uint32_t generation);
