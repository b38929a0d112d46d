/*
 * The executor's threads. Without a store a job is done and answered; with one, jobs of a kind that
 * wait one behind the other are done together, so that the store's process is waited for once.
 */
#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>

#include "base/log.h"
#include "daemon/executor_private.h"

/* For which the store is waited for together: an epoch's releases, a window's creates. Each has an
 * fd open meanwhile. */
#define BATCH_JOBS 64

static void job_finish(struct executor *executor, struct job *job)
{
    bool first;

    (void) pthread_mutex_lock(&executor->done_mutex);
    first = executor->done.first == NULL;
    executor_chain_append(&executor->done, job);
    (void) pthread_mutex_unlock(&executor->done_mutex);
    if (first)
        (void) eventfd_write(executor->event_fd, 1);
}

static struct record *record_of(struct job *job)
{
    return container_of(job, struct record, job);
}

static int chunk_create(
    const struct worker *worker, uint64_t bytes, struct gpu_chunk *ret, struct gpu_error *error)
{
    struct gpu *gpu = worker->executor->gpu;

    return worker->slabs != NULL ? slabs_create(worker->slabs, bytes, ret, error)
                                 : gpu->ops->chunk_create(gpu, worker->device, bytes, ret, error);
}

int executor_chunk_release(
    const struct worker *worker, struct gpu_chunk *chunk, struct gpu_error *error)
{
    struct gpu *gpu = worker->executor->gpu;

    return worker->slabs != NULL ? slabs_release(worker->slabs, chunk, error)
                                 : gpu->ops->chunk_release(gpu, chunk, error);
}

static void job_run(struct worker *worker, struct job *job)
{
    struct gpu *gpu = worker->executor->gpu;
    struct gpu_error error = {0};

    switch ((enum executor_job_type) job->type) {
    case EXECUTOR_JOB_CREATE: {
        struct record *record = record_of(job);
        uint64_t bytes = record->gpu.bytes;

        record->gpu = (struct gpu_chunk){0};
        job->result = chunk_create(worker, bytes, &record->gpu, &error);
        break;
    }
    case EXECUTOR_JOB_RELEASE:
        job->result = executor_chunk_release(worker, &record_of(job)->gpu, &error);
        break;
    case EXECUTOR_JOB_OBSERVE: {
        struct gpu_memory memory = {0};

        job->result = gpu->ops->memory_info(gpu, worker->device, &memory, &error);
        job->free_bytes = memory.free_bytes;
        break;
    }
    case EXECUTOR_JOB_KEEP:
    case EXECUTOR_JOB_MAX:
        break;
    }
    if (job->result != 0 && error.text[0] != '\0')
        job->text = strdup(error.text); /* no memory: a failure without a sentence */
}

/* ------------------------------------------------------------------ what is kept */

/* Said once: everything beyond is not kept either. */
static void keep_failed(struct executor *executor, int r)
{
    bool said;

    (void) pthread_mutex_lock(&executor->done_mutex);
    said = executor->store_full;
    executor->store_full = true;
    (void) pthread_mutex_unlock(&executor->done_mutex);
    if (said)
        return;
    if (r == -ENOSPC)
        log_warning("the service manager's fd store has no room for more than %zu fds "
                    "(FileDescriptorStoreMax=): what comes beyond would be stuck after a restart",
            fdstore_count(executor->store));
    else
        log_warning("the service manager doesn't keep file descriptors: %s; what it doesn't keep "
                    "would be stuck after a restart",
            strerror(-r));
}

bool executor_store_full(struct executor *executor)
{
    bool full;

    (void) pthread_mutex_lock(&executor->done_mutex);
    full = executor->store_full;
    (void) pthread_mutex_unlock(&executor->done_mutex);
    return full;
}

static void chunk_put(struct executor *executor, struct job *job)
{
    struct gpu_shareable shareable;
    struct gpu_error error;
    int r =
        executor->gpu->ops->chunk_export(executor->gpu, &record_of(job)->gpu, &shareable, &error);

    if (r == 0) {
        r = fdstore_put(executor->store, FDSTORE_CHUNK, job->chunk, shareable.fd);
        close_fd(&shareable.fd);
    }
    job->sent = r == 0;
    if (r < 0)
        keep_failed(executor, r);
}

static void keep_run(struct executor *executor, struct keep *keep)
{
    struct fdstore *store = executor->store;
    size_t put = 0;
    int r = 0;

    for (; r == 0 && put < keep->count && !keep->remove; put += r == 0)
        r = fdstore_put(store, keep->items[put].kind, keep->number, keep->items[put].fd);
    if (r == 0 && !keep->remove)
        r = fdstore_barrier(store);
    if (r < 0)
        keep_failed(executor, r);
    for (size_t i = 0; i < (keep->remove ? keep->count : put) && (r < 0 || keep->remove); i++)
        (void) fdstore_remove(store, keep->items[i].kind, keep->number);
    for (size_t i = 0; i < keep->count; i++)
        close_fd(&keep->items[i].fd);
    keep->job.result = r;
}

/* Jobs of one kind, as many as wait one behind the other: the store is waited for once. */
static void batch_run(struct worker *worker, struct job *const *jobs, size_t count)
{
    struct executor *executor = worker->executor;
    enum executor_job_type type = (enum executor_job_type) jobs[0]->type;
    bool asked = false;
    int r = 0;

    for (size_t i = 0; i < count && type == EXECUTOR_JOB_RELEASE; i++) {
        if (jobs[i]->sent)
            (void) fdstore_remove(executor->store, FDSTORE_CHUNK, jobs[i]->chunk);
        asked |= jobs[i]->sent;
    }
    if (asked)
        (void) fdstore_barrier(executor->store); /* late ones are missing until they are seen */
    for (size_t i = 0; i < count; i++)
        job_run(worker, jobs[i]);
    for (size_t i = 0; i < count && type == EXECUTOR_JOB_CREATE; i++) {
        if (jobs[i]->result != 0 || worker->slabs != NULL)
            continue; /* a slab ends with this broker: there is nothing to keep it by */
        chunk_put(executor, jobs[i]);
        asked |= jobs[i]->sent;
    }
    if (type != EXECUTOR_JOB_CREATE || !asked)
        return;
    r = fdstore_barrier(executor->store);
    if (r < 0)
        keep_failed(executor, r);
    for (size_t i = 0; i < count; i++)
        jobs[i]->kept = r == 0 && jobs[i]->sent;
}

/* ------------------------------------------------------------------ taking jobs */

/* The first job and, where the store is waited for, those of its kind behind it. 0 to stop. */
static size_t jobs_take(struct worker *worker, struct job *ret[BATCH_JOBS])
{
    size_t count = 0, most = worker->executor->store != NULL ? BATCH_JOBS : 1;

    (void) pthread_mutex_lock(&worker->mutex);
    while (worker->jobs.first == NULL && !worker->stop)
        (void) pthread_cond_wait(&worker->more, &worker->mutex);
    while (!worker->stop && count < most && worker->jobs.first != NULL &&
           (count == 0 || worker->jobs.first->type == ret[0]->type))
        ret[count++] = executor_chain_take(&worker->jobs);
    (void) pthread_mutex_unlock(&worker->mutex);
    return count;
}

void executor_keep_free(struct keep *keep)
{
    for (size_t i = 0; i < keep->count; i++)
        close_fd(&keep->items[i].fd);
    free(keep->job.text);
    free(keep);
}

static void keeps_run(struct executor *executor, struct job *const *jobs, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct keep *keep = container_of(jobs[i], struct keep, job);

        keep_run(executor, keep);
        if (keep->remove)
            executor_keep_free(keep);
        else
            job_finish(executor, jobs[i]);
    }
}

void *executor_work(void *data)
{
    struct worker *worker = data;

    for (;;) {
        struct job *jobs[BATCH_JOBS];
        size_t count = jobs_take(worker, jobs);

        if (count == 0)
            return NULL;
        if (jobs[0]->type == EXECUTOR_JOB_KEEP) {
            keeps_run(worker->executor, jobs, count);
            continue;
        }
        if (worker->executor->store != NULL)
            batch_run(worker, jobs, count);
        else
            job_run(worker, jobs[0]);
        for (size_t i = 0; i < count; i++)
            job_finish(worker->executor, jobs[i]);
    }
}
