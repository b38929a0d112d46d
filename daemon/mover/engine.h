/*
 * Runs jobs on a few lanes, each with a thread of its own, so that one job's preparation and the
 * copying of others overlap. Jobs start in the order in which they come and end in any.
 *
 * engine_* belong to one thread.
 */
#pragma once

#include "base/list.h"
#include "daemon/mover/imports.h"
#include "daemon/mover/job.h"
#include "daemon/mover/slabs.h"

/* One fills the bus on most machines; the others hide launches, tables and the second half of
 * restores. */
#define ENGINE_LANES 3

/* A job with what it uses, and then with what came of it. */
struct task {
    struct list link;
    struct job *job;                        /* owned */
    struct import *imports[JOB_CHUNKS_MAX]; /* in use until the task is freed by its owner */
    int result;                             /* 0 or the driver's -errno */
    bool poisoned;                          /* nothing works in this process any more */
    bool disk_failed;                       /* the driver didn't: error.text is of the disk */
    struct gpu_error error;
    uint64_t sums[]; /* job->copy_count */
};

struct engine;

int engine_new(const struct device *device, struct slabs *slabs, struct engine **ret,
    struct gpu_error *error) _must_check_;
/* Waits for the jobs that run; none may be queued. Accepts NULL, returns NULL. */
struct engine *engine_free(struct engine *engine);

/* Readable when tasks are done; borrowed. */
int engine_fd(const struct engine *engine);

/* The engine borrows the task until engine_take() gives it back. */
void engine_give(struct engine *engine, struct task *task);
/* NULL when none is done (and engine_fd() is quiet again). */
struct task *engine_take(struct engine *engine);
