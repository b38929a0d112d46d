/*
 * Two lists under one lock: tasks to do and tasks done. An eventfd tells the owner.
 *
 * All lanes live in one small allocation on the device, since the device is most likely full.
 */
#include "daemon/mover/engine.h"

#include <errno.h>
#include <pthread.h>
#include <sys/eventfd.h>

#include "daemon/mover/lane.h"

struct engine {
    const struct device *device;
    CUdeviceptr memory;
    int event_fd;
    pthread_mutex_t mutex;
    pthread_cond_t more;
    bool stop; /* under `mutex`, as the lists are */
    struct list todo, done;
    size_t thread_count;
    pthread_t threads[ENGINE_LANES];
    struct lane *lanes[ENGINE_LANES];
    size_t started; /* under `mutex`: threads that have taken their lane */
};

static struct task *task_wait(struct engine *engine)
{
    struct task *task;

    (void) pthread_mutex_lock(&engine->mutex);
    while (list_empty(&engine->todo) && !engine->stop)
        (void) pthread_cond_wait(&engine->more, &engine->mutex);
    task = list_first(&engine->todo, struct task, link);
    if (task != NULL)
        list_remove(&task->link);
    (void) pthread_mutex_unlock(&engine->mutex);
    return task;
}

static void task_finish(struct engine *engine, struct task *task)
{
    (void) pthread_mutex_lock(&engine->mutex);
    list_append(&engine->done, &task->link);
    (void) pthread_mutex_unlock(&engine->mutex);
    (void) eventfd_write(engine->event_fd, 1);
}

static void task_run(const struct engine *engine, struct lane *lane, struct task *task)
{
    uint64_t addresses[JOB_CHUNKS_MAX];

    for (uint32_t i = 0; i < task->job->chunk_count; i++)
        addresses[i] = task->imports[i]->address;
    task->result = device_enter(engine->device, &task->error);
    if (task->result == 0)
        task->result = lane_run(lane, task->job, addresses, task->sums, &task->error);
    task->disk_failed = task->result == -EREMOTEIO;
    task->poisoned = task->result < 0 && !device_usable(engine->device, task->result);
}

static void *thread_run(void *data)
{
    struct engine *engine = data;
    struct lane *lane;
    struct task *task;

    (void) pthread_mutex_lock(&engine->mutex);
    lane = engine->lanes[engine->started++];
    (void) pthread_mutex_unlock(&engine->mutex);
    while ((task = task_wait(engine)) != NULL) {
        task_run(engine, lane, task);
        task_finish(engine, task);
    }
    return NULL;
}

static int threads_start(struct engine *engine)
{
    for (size_t i = 0; i < ENGINE_LANES; i++) {
        int r = pthread_create(&engine->threads[i], NULL, thread_run, engine);

        if (r != 0)
            return -r;
        engine->thread_count++;
    }
    return 0;
}

static int lanes_open(struct engine *engine, struct slabs *slabs, struct gpu_error *error)
{
    const struct device *device = engine->device;
    int r =
        device_check(device, device->cuda->mem_alloc(&engine->memory, ENGINE_LANES * LANE_BYTES),
            "cuMemAlloc_v2", error);

    for (size_t i = 0; r == 0 && i < ENGINE_LANES; i++)
        r = lane_new(device, slabs, engine->memory + i * LANE_BYTES, &engine->lanes[i], error);
    return r;
}

int engine_new(
    const struct device *device, struct slabs *slabs, struct engine **ret, struct gpu_error *error)
{
    struct engine *engine = calloc(1, sizeof(*engine));
    int r;

    if (engine == NULL)
        return -ENOMEM;
    engine->device = device;
    list_init(&engine->todo);
    list_init(&engine->done);
    (void) pthread_mutex_init(&engine->mutex, NULL);
    (void) pthread_cond_init(&engine->more, NULL);
    engine->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    r = engine->event_fd < 0 ? -errno : lanes_open(engine, slabs, error);
    if (r == 0)
        r = threads_start(engine);
    if (r < 0) {
        engine_free(engine);
        return r;
    }
    *ret = engine;
    return 0;
}

struct engine *engine_free(struct engine *engine)
{
    if (engine == NULL)
        return NULL;
    (void) pthread_mutex_lock(&engine->mutex);
    engine->stop = true;
    (void) pthread_cond_broadcast(&engine->more);
    (void) pthread_mutex_unlock(&engine->mutex);
    for (size_t i = 0; i < engine->thread_count; i++)
        (void) pthread_join(engine->threads[i], NULL);
    for (size_t i = 0; i < ENGINE_LANES; i++)
        lane_free(engine->lanes[i]);
    if (engine->memory != 0)
        (void) engine->device->cuda->mem_free(engine->memory);
    close_fd(&engine->event_fd);
    (void) pthread_cond_destroy(&engine->more);
    (void) pthread_mutex_destroy(&engine->mutex);
    free(engine);
    return NULL;
}

int engine_fd(const struct engine *engine)
{
    return engine->event_fd;
}

void engine_give(struct engine *engine, struct task *task)
{
    list_init(&task->link);
    (void) pthread_mutex_lock(&engine->mutex);
    list_append(&engine->todo, &task->link);
    (void) pthread_cond_signal(&engine->more);
    (void) pthread_mutex_unlock(&engine->mutex);
}

struct task *engine_take(struct engine *engine)
{
    struct task *task;
    eventfd_t count;

    (void) pthread_mutex_lock(&engine->mutex);
    task = list_first(&engine->done, struct task, link);
    if (task != NULL)
        list_remove(&task->link);
    else
        (void) eventfd_read(engine->event_fd, &count);
    (void) pthread_mutex_unlock(&engine->mutex);
    return task;
}
