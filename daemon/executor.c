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
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

#include "daemon/executor_private.h"

void executor_chain_init(struct chain *chain)
{
    chain->first = NULL;
    chain->last = &chain->first;
}

void executor_chain_append(struct chain *chain, struct job *job)
{
    job->next = NULL;
    *chain->last = job;
    chain->last = &job->next;
}

struct job *executor_chain_take(struct chain *chain)
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
        (void) executor_chunk_release(&executor->workers[record->job.device], &record->gpu, &error);
}

static void keeps_drop(struct chain *chain)
{
    struct job *job;

    while ((job = executor_chain_take(chain)) != NULL) {
        if (job->type == EXECUTOR_JOB_KEEP)
            executor_keep_free(container_of(job, struct keep, job));
    }
}

struct executor *executor_free(struct executor *executor)
{
    if (executor == NULL)
        return NULL;
    for (size_t i = 0; i < executor->worker_count; i++) {
        struct worker *worker = &executor->workers[i];

        worker_stop(worker);
        keeps_drop(&worker->jobs);
        (void) pthread_mutex_destroy(&worker->mutex);
        (void) pthread_cond_destroy(&worker->more);
        for (size_t k = 0; k < OBSERVES; k++)
            free(worker->observes[k].text);
    }
    keeps_drop(&executor->taken);
    keeps_drop(&executor->done);
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

int executor_new(struct gpu *gpu, struct fdstore *store, struct executor **ret)
{
    struct executor *executor;
    int r;

    executor = calloc(1, sizeof(*executor) + gpu->device_count * sizeof(struct worker));
    if (executor == NULL)
        return -ENOMEM;
    executor->gpu = gpu;
    executor->store = store;
    for (size_t i = 0; i < EXECUTOR_SPARES; i++)
        executor->spares[i].fd = -1;
    executor_chain_init(&executor->done);
    executor_chain_init(&executor->taken);
    (void) pthread_mutex_init(&executor->done_mutex, NULL);
    executor->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    r = executor->event_fd < 0 ? -errno : records_reserve(executor);
    for (size_t i = 0; r == 0 && i < gpu->device_count; i++) {
        struct worker *worker = &executor->workers[i];

        *worker = (struct worker){.executor = executor, .device = gpu->devices[i]};
        executor_chain_init(&worker->jobs);
        (void) pthread_mutex_init(&worker->mutex, NULL);
        (void) pthread_cond_init(&worker->more, NULL);
        executor->worker_count++;
        r = -pthread_create(&worker->thread, NULL, executor_work, worker);
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

void executor_use_slabs(struct executor *executor, uint32_t device, struct slabs *slabs)
{
    executor->workers[device].slabs = slabs;
}

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
    executor_chain_append(&worker->jobs, job);
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
        .sent = record->job.sent,
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

static struct keep *keep_new(size_t count, uint32_t device, uint32_t number)
{
    struct keep *keep = calloc(1, sizeof(*keep));

    if (keep == NULL)
        return NULL;
    keep->job.type = EXECUTOR_JOB_KEEP;
    keep->job.device = (uint8_t) device;
    keep->count = count;
    keep->number = number;
    for (size_t i = 0; i < count; i++)
        keep->items[i].fd = -1;
    return keep;
}

int executor_keep(struct executor *executor, uint32_t device, const struct executor_keep *keeps,
    size_t count, uint32_t number, uint64_t tag)
{
    struct keep *keep;

    if (executor->store == NULL)
        return -ENOTSUP;
    keep = keep_new(count, device, number);
    if (keep == NULL)
        return -ENOMEM;
    keep->job.tag = tag;
    for (size_t i = 0; i < count; i++) {
        keep->items[i].kind = keeps[i].kind;
        keep->items[i].fd = fcntl(keeps[i].fd, F_DUPFD_CLOEXEC, 3);
        if (keep->items[i].fd < 0) {
            int r = -errno;

            executor_keep_free(keep);
            return r;
        }
    }
    job_give(&executor->workers[device], &keep->job);
    return 0;
}

void executor_unkeep(struct executor *executor, uint32_t device, const enum fdstore_kind *kinds,
    size_t count, uint32_t number)
{
    struct keep *keep = executor->store != NULL ? keep_new(count, device, number) : NULL;

    if (keep == NULL)
        return;
    keep->remove = true;
    for (size_t i = 0; i < count; i++)
        keep->items[i].kind = kinds[i];
    job_give(&executor->workers[device], &keep->job);
    executor->busy--; /* nobody waits for it */
}

int executor_adopt(struct executor *executor, uint32_t device, uint32_t chunk, uint32_t generation,
    uint64_t bytes, int fd, struct gpu_error *error)
{
    struct gpu_shareable shareable = {.type = GPU_HANDLE_POSIX_FD, .fd = fd};
    struct record *record = &executor->records[chunk];
    const struct worker *worker = &executor->workers[device];
    struct gpu_chunk imported = {0};
    int r;

    if (worker->slabs != NULL) {
        *error = (struct gpu_error){.text = "the device shares memory over CUDA IPC now"};
        return -EOPNOTSUPP;
    }
    r = executor->gpu->ops->chunk_import_borrow(
        executor->gpu, worker->device, &shareable, bytes, &imported, error);
    if (r < 0)
        return r;
    executor->record_high = MAX(executor->record_high, chunk + 1);
    *record = (struct record){
        .job =
            {
                .type = EXECUTOR_JOB_CREATE,
                .device = (uint8_t) device,
                .kept = true,
                .sent = true,
                .generation = generation,
                .chunk = chunk,
            },
        .gpu = imported,
    };
    return 0;
}

/* NULL for one that isn't there. */
static const struct record *record_there(
    const struct executor *executor, uint32_t chunk, uint32_t generation)
{
    const struct record *record = record_find(executor, chunk);

    return record != NULL && record->gpu.device != NULL && record->job.generation == generation
               ? record
               : NULL;
}

bool executor_holds(const struct executor *executor, uint32_t chunk, uint32_t generation)
{
    return record_there(executor, chunk, generation) != NULL;
}

bool executor_kept(const struct executor *executor, uint32_t chunk, uint32_t generation)
{
    const struct record *record = record_there(executor, chunk, generation);

    return record != NULL && record->job.kept;
}

/* What a job leaves once its completion is taken. */
static void job_retire(struct executor *executor, struct job *job)
{
    struct worker *worker = &executor->workers[job->device];

    executor->busy--;
    if (job->type == EXECUTOR_JOB_KEEP) {
        executor_keep_free(container_of(job, struct keep, job));
        return;
    }
    free(TAKE_PTR(job->text));
    if (job->type == EXECUTOR_JOB_OBSERVE)
        worker->observes_used &= ~(1u << (job - worker->observes));
}

/* A slab that was made, and lost before anybody heard of it: as if there had been no memory. */
static void slab_look(struct executor *executor, struct job *job)
{
    struct worker *worker = &executor->workers[job->device];
    struct record *record = container_of(job, struct record, job);
    struct gpu_error error;

    if (worker->slabs == NULL || job->type != EXECUTOR_JOB_CREATE || job->result != 0 ||
        !slabs_lost(worker->slabs, &record->gpu))
        return;
    (void) slabs_release(worker->slabs, &record->gpu, &error);
    job->result = GPU_NO_MEMORY;
}

bool executor_take(struct executor *executor, struct executor_done *ret)
{
    struct job *job = executor_chain_take(&executor->taken);

    if (job == NULL) {
        eventfd_t count;

        (void) eventfd_read(executor->event_fd, &count);
        (void) pthread_mutex_lock(&executor->done_mutex);
        if (executor->done.first != NULL) {
            executor->taken = executor->done;
            executor_chain_init(&executor->done);
        }
        (void) pthread_mutex_unlock(&executor->done_mutex);
        job = executor_chain_take(&executor->taken);
        if (job == NULL)
            return false;
    }
    slab_look(executor, job);
    *ret = (struct executor_done){
        .type = (enum executor_job_type) job->type,
        .device = job->device,
        .generation = job->generation,
        .result = job->result,
    };
    if (job->type == EXECUTOR_JOB_OBSERVE)
        ret->free_bytes = job->free_bytes;
    else if (job->type == EXECUTOR_JOB_KEEP)
        ret->tag = job->tag;
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

int executor_export(struct executor *executor, uint32_t chunk, uint32_t generation,
    struct gpu_shareable *ret, struct gpu_error *error)
{
    struct record *record = record_find(executor, chunk);
    int spare, r;

    if (record == NULL || record->gpu.device == NULL || record->job.generation != generation) {
        *error = (struct gpu_error){.text = "the chunk is gone"};
        return -ESTALE;
    }
    if (executor->workers[record->job.device].slabs != NULL) {
        *ret = slabs_shareable(&record->gpu);
        return 0;
    }
    spare = spare_take(executor, chunk, generation);
    if (spare >= 0) {
        *ret = (struct gpu_shareable){.type = GPU_HANDLE_POSIX_FD, .fd = spare};
        return 0;
    }
    r = executor->gpu->ops->chunk_export(executor->gpu, &record->gpu, ret, error);
    return r < 0 && fds_short() ? -EMFILE : r;
}

void executor_spare(struct executor *executor, uint32_t chunk, uint32_t generation)
{
    struct spare *spare = &executor->spares[executor->next_spare];
    struct gpu_shareable shareable;
    struct gpu_error error;

    if (executor_export(executor, chunk, generation, &shareable, &error) < 0 || shareable.fd < 0)
        return;
    close_fd(&spare->fd);
    *spare = (struct spare){.fd = shareable.fd, .chunk = chunk, .generation = generation};
    executor->next_spare = (executor->next_spare + 1) % EXECUTOR_SPARES;
}
