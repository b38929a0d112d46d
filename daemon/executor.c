/*
 * Queues are chains through the jobs themselves, and a chunk's job is part of its record, so that
 * neither taking nor giving back memory can fail for want of memory. The table of records has room
 * for every chunk that may be, in address space alone: what is never used costs nothing, and
 * nothing moves under a worker thread.
 *
 * A completion is announced by an eventfd; the loop takes the whole chain with one lock.
 */
#include "daemon/executor.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

/* Looks at one device that can be on their way at once; a core has one or two. */
#define OBSERVES 16

struct job {
    struct job *next;
    uint8_t type, device;
    int result;
    uint32_t generation;
    union {
        uint32_t chunk;      /* CREATE, RELEASE */
        uint64_t free_bytes; /* OBSERVE */
    };
    char *text; /* of a failure; owned */
};

struct record {
    struct job job;
    struct gpu_chunk gpu; /* zero: none */
};

#define RECORDS_BYTES ((size_t) LIMIT_CHUNKS_TOTAL * sizeof(struct record))

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

static void chain_init(struct chain *chain)
{
    chain->first = NULL;
    chain->last = &chain->first;
}

static void chain_append(struct chain *chain, struct job *job)
{
    job->next = NULL;
    *chain->last = job;
    chain->last = &job->next;
}

static struct job *chain_take(struct chain *chain)
{
    struct job *job = chain->first;

    if (job != NULL) {
        chain->first = job->next;
        if (chain->first == NULL)
            chain->last = &chain->first;
    }
    return job;
}

static struct record *record_find(const struct executor *executor, uint32_t chunk)
{
    return chunk < executor->record_high ? &executor->records[chunk] : NULL;
}

/* ------------------------------------------------------------------ worker threads */

static void job_finish(struct executor *executor, struct job *job)
{
    bool first;

    (void) pthread_mutex_lock(&executor->done_mutex);
    first = executor->done.first == NULL;
    chain_append(&executor->done, job);
    (void) pthread_mutex_unlock(&executor->done_mutex);
    if (first)
        (void) eventfd_write(executor->event_fd, 1);
}

static void job_run(struct worker *worker, struct job *job)
{
    struct gpu *gpu = worker->executor->gpu;
    struct gpu_error error = {0};

    switch ((enum executor_job_type) job->type) {
    case EXECUTOR_JOB_CREATE: {
        struct record *record = container_of(job, struct record, job);
        uint64_t bytes = record->gpu.bytes;

        record->gpu = (struct gpu_chunk){0};
        job->result = gpu->ops->chunk_create(gpu, worker->device, bytes, &record->gpu, &error);
        break;
    }
    case EXECUTOR_JOB_RELEASE:
        job->result =
            gpu->ops->chunk_release(gpu, &container_of(job, struct record, job)->gpu, &error);
        break;
    case EXECUTOR_JOB_OBSERVE: {
        struct gpu_memory memory = {0};

        job->result = gpu->ops->memory_info(gpu, worker->device, &memory, &error);
        job->free_bytes = memory.free_bytes;
        break;
    }
    case EXECUTOR_JOB_MAX:
        break;
    }
    if (job->result != 0)
        job->text = strdup(error.text); /* no memory: a failure without a sentence */
}

static void *worker_main(void *data)
{
    struct worker *worker = data;

    for (;;) {
        struct job *job;

        (void) pthread_mutex_lock(&worker->mutex);
        while (worker->jobs.first == NULL && !worker->stop)
            (void) pthread_cond_wait(&worker->more, &worker->mutex);
        job = worker->stop ? NULL : chain_take(&worker->jobs);
        (void) pthread_mutex_unlock(&worker->mutex);
        if (job == NULL)
            return NULL;
        job_run(worker, job);
        job_finish(worker->executor, job);
    }
}

/* ------------------------------------------------------------------ life */

static void worker_stop(struct worker *worker)
{
    if (!worker->started)
        return;
    (void) pthread_mutex_lock(&worker->mutex);
    worker->stop = true;
    (void) pthread_cond_signal(&worker->more);
    (void) pthread_mutex_unlock(&worker->mutex);
    (void) pthread_join(worker->thread, NULL);
}

static void record_release(struct executor *executor, struct record *record)
{
    struct gpu_error error;

    free(record->job.text);
    if (record->gpu.device != NULL)
        (void) executor->gpu->ops->chunk_release(executor->gpu, &record->gpu, &error);
}

struct executor *executor_free(struct executor *executor)
{
    if (executor == NULL)
        return NULL;
    for (size_t i = 0; i < executor->worker_count; i++) {
        struct worker *worker = &executor->workers[i];

        worker_stop(worker);
        (void) pthread_mutex_destroy(&worker->mutex);
        (void) pthread_cond_destroy(&worker->more);
        for (size_t k = 0; k < OBSERVES; k++)
            free(worker->observes[k].text);
    }
    for (uint32_t i = 0; i < executor->record_high; i++)
        record_release(executor, &executor->records[i]);
    if (executor->records != NULL)
        (void) munmap(executor->records, RECORDS_BYTES);
    for (size_t i = 0; i < EXECUTOR_SPARES; i++)
        close_fd(&executor->spares[i].fd);
    (void) pthread_mutex_destroy(&executor->done_mutex);
    close_fd(&executor->event_fd);
    free(executor);
    return NULL;
}

static int records_reserve(struct executor *executor)
{
    void *at = mmap(NULL, RECORDS_BYTES, PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (at == MAP_FAILED)
        return -errno;
    executor->records = at;
    return 0;
}

int executor_new(struct gpu *gpu, struct executor **ret)
{
    struct executor *executor;
    int r;

    executor = calloc(1, sizeof(*executor) + gpu->device_count * sizeof(struct worker));
    if (executor == NULL)
        return -ENOMEM;
    executor->gpu = gpu;
    for (size_t i = 0; i < EXECUTOR_SPARES; i++)
        executor->spares[i].fd = -1;
    chain_init(&executor->done);
    chain_init(&executor->taken);
    (void) pthread_mutex_init(&executor->done_mutex, NULL);
    executor->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    r = executor->event_fd < 0 ? -errno : records_reserve(executor);
    for (size_t i = 0; r == 0 && i < gpu->device_count; i++) {
        struct worker *worker = &executor->workers[i];

        *worker = (struct worker){.executor = executor, .device = gpu->devices[i]};
        chain_init(&worker->jobs);
        (void) pthread_mutex_init(&worker->mutex, NULL);
        (void) pthread_cond_init(&worker->more, NULL);
        executor->worker_count++;
        r = -pthread_create(&worker->thread, NULL, worker_main, worker);
        worker->started = r == 0;
    }
    if (r < 0) {
        (void) executor_free(executor);
        return r;
    }
    *ret = executor;
    return 0;
}

/* ------------------------------------------------------------------ the loop's side */

int executor_fd(const struct executor *executor)
{
    return executor->event_fd;
}

size_t executor_busy(const struct executor *executor)
{
    return executor->busy;
}

static void job_give(struct worker *worker, struct job *job)
{
    worker->executor->busy++;
    (void) pthread_mutex_lock(&worker->mutex);
    chain_append(&worker->jobs, job);
    (void) pthread_cond_signal(&worker->more);
    (void) pthread_mutex_unlock(&worker->mutex);
}

void executor_create(
    struct executor *executor, uint32_t device, uint32_t chunk, uint32_t generation, uint64_t bytes)
{
    struct record *record = &executor->records[chunk];

    executor->record_high = MAX(executor->record_high, chunk + 1);
    *record = (struct record){
        .job =
            {
                .type = EXECUTOR_JOB_CREATE,
                .device = (uint8_t) device,
                .generation = generation,
                .chunk = chunk,
            },
        .gpu.bytes = bytes,
    };
    job_give(&executor->workers[device], &record->job);
}

/* The chunk's spare fd, the caller's; -1 when it has none. */
static int spare_take(struct executor *executor, uint32_t chunk, uint32_t generation)
{
    for (size_t i = 0; i < EXECUTOR_SPARES; i++) {
        struct spare *spare = &executor->spares[i];

        if (spare->fd >= 0 && spare->chunk == chunk && spare->generation == generation)
            return TAKE_FD(spare->fd);
    }
    return -1;
}

void executor_release(
    struct executor *executor, uint32_t device, uint32_t chunk, uint32_t generation)
{
    struct record *record = record_find(executor, chunk);
    int spare = spare_take(executor, chunk, generation);

    /* It would keep the memory. */
    close_fd(&spare);
    record->job = (struct job){
        .type = EXECUTOR_JOB_RELEASE,
        .device = (uint8_t) device,
        .generation = generation,
        .chunk = chunk,
    };
    job_give(&executor->workers[device], &record->job);
}

void executor_observe(struct executor *executor, uint32_t device)
{
    struct worker *worker = &executor->workers[device];
    unsigned slot = (unsigned) __builtin_ffs((int) ~worker->observes_used) - 1;
    struct job *job;

    if (slot >= OBSERVES)
        return; /* more are on their way than a core ever asks for; those answer for this one */
    job = &worker->observes[slot];
    worker->observes_used |= 1u << slot;
    *job = (struct job){.type = EXECUTOR_JOB_OBSERVE, .device = (uint8_t) device};
    job_give(worker, job);
}

/* What a job leaves once its completion is taken. */
static void job_retire(struct executor *executor, struct job *job)
{
    struct worker *worker = &executor->workers[job->device];

    executor->busy--;
    free(TAKE_PTR(job->text));
    if (job->type == EXECUTOR_JOB_OBSERVE)
        worker->observes_used &= ~(1u << (job - worker->observes));
}

bool executor_take(struct executor *executor, struct executor_done *ret)
{
    struct job *job = chain_take(&executor->taken);

    if (job == NULL) {
        eventfd_t count;

        (void) eventfd_read(executor->event_fd, &count);
        (void) pthread_mutex_lock(&executor->done_mutex);
        if (executor->done.first != NULL) {
            executor->taken = executor->done;
            chain_init(&executor->done);
        }
        (void) pthread_mutex_unlock(&executor->done_mutex);
        job = chain_take(&executor->taken);
        if (job == NULL)
            return false;
    }
    *ret = (struct executor_done){
        .type = (enum executor_job_type) job->type,
        .device = job->device,
        .generation = job->generation,
        .result = job->result,
    };
    if (job->type == EXECUTOR_JOB_OBSERVE)
        ret->free_bytes = job->free_bytes;
    else
        ret->chunk = job->chunk;
    if (job->text != NULL)
        (void) snprintf(ret->text, sizeof(ret->text), "%s", job->text);
    job_retire(executor, job);
    return true;
}

/* Drivers have no code for it, and name it as they like: so it is tried. */
static bool fds_short(void)
{
    _cleanup_close_ int probe = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);

    return probe < 0 && (errno == EMFILE || errno == ENFILE);
}

int executor_export(struct executor *executor, uint32_t chunk, uint32_t generation, int *ret_fd,
    struct gpu_error *error)
{
    struct record *record = record_find(executor, chunk);
    struct gpu_shareable shareable;
    int spare, r;

    if (record == NULL || record->gpu.device == NULL || record->job.generation != generation) {
        *error = (struct gpu_error){.text = "the chunk is gone"};
        return -ESTALE;
    }
    spare = spare_take(executor, chunk, generation);
    if (spare >= 0) {
        *ret_fd = spare;
        return 0;
    }
    r = executor->gpu->ops->chunk_export(executor->gpu, &record->gpu, &shareable, error);
    if (r < 0)
        return fds_short() ? -EMFILE : r;
    *ret_fd = shareable.fd;
    return 0;
}

void executor_spare(struct executor *executor, uint32_t chunk, uint32_t generation)
{
    struct spare *spare = &executor->spares[executor->next_spare];
    struct gpu_error error;
    int fd;

    if (executor_export(executor, chunk, generation, &fd, &error) < 0)
        return;
    close_fd(&spare->fd);
    *spare = (struct spare){.fd = fd, .chunk = chunk, .generation = generation};
    executor->next_spare = (executor->next_spare + 1) % EXECUTOR_SPARES;
}
