/*
 * One thread talks, imports and checks; the engine's threads copy. The broker is trusted to mean
 * well and not to be right: what it says is checked as anybody's, and answered with INVALID.
 *
 * A broker that closes the socket has no use for what still runs: the process ends at once.
 */
#include "daemon/mover/service.h"

#include <errno.h>
#include <poll.h>
#include <string.h>

#include "base/log.h"
#include "daemon/mover/answer.h"

/* More jobs at once than any broker sends: a bound, not a queue to fill. */
#define TASKS_MAX 64
/* How long the last answers may take to get out before a poisoned process ends. */
#define FAREWELL_MS 1000

/* A FORGET some of whose chunks are in use. */
struct farewell {
    struct list link;
    struct job *job; /* owned */
};

struct service {
    struct conn *conn;
    struct device device;
    struct slabs *slabs;
    struct imports *imports;
    struct engine *engine;
    struct job_bounds bounds;
    size_t task_count; /* with the engine */
    struct list farewells;
    size_t farewell_count;
    bool poisoned;
};

static struct task *task_free(struct service *service, struct task *task)
{
    for (uint32_t i = 0; i < task->job->chunk_count; i++) {
        if (task->imports[i] != NULL)
            imports_drop(service->imports, task->imports[i]);
    }
    free(task->job);
    free(task);
    return NULL;
}

/* ------------------------------------------------------------------ jobs */

/* Takes the chunks into use; 0, or -errno with `error`, and what was taken is the task's. */
static int chunks_use(
    struct service *service, struct task *task, struct fdset *fds, struct gpu_error *error)
{
    size_t next = 0;
    int r = 0;

    for (uint32_t i = 0; r == 0 && i < task->job->chunk_count; i++) {
        const struct job_chunk *chunk = &task->job->chunks[i];
        _cleanup_close_ int fd = chunk->with_fd ? fdset_take(fds, next++) : -1;

        r = imports_use(service->imports, chunk->number, chunk->generation, chunk->bytes, fd,
            &task->imports[i], error);
    }
    return r;
}

static int import_failed(
    struct service *service, uint64_t id, int result, const struct gpu_error *error)
{
    if (result == -ENOENT && error->code == 0)
        return answer_plain(service->conn, id, GMB__MOVER_RESULT__MOVER_RESULT_UNKNOWN_CHUNK, NULL);
    service->poisoned = error->code != 0 && !device_usable(&service->device, result);
    return answer_plain(service->conn, id, GMB__MOVER_RESULT__MOVER_RESULT_GPU,
        error->text[0] != '\0' ? error->text : strerror(-result));
}

static int task_start(struct service *service, struct job *job, struct fdset *fds)
{
    struct task *task = calloc(1, sizeof(*task) + job->copy_count * sizeof(task->sums[0]));
    struct gpu_error error = {0};
    uint64_t id = job->id;
    int r;

    if (task == NULL) {
        free(job);
        return -ENOMEM;
    }
    task->job = job;
    r = chunks_use(service, task, fds, &error);
    if (r < 0) {
        task_free(service, task);
        return import_failed(service, id, r, &error);
    }
    service->task_count++;
    engine_give(service->engine, task);
    return 0;
}

/* True once none of the job's chunks is mapped any more. */
static bool chunks_forget(struct service *service, const struct job *job)
{
    bool gone = true;

    for (uint32_t i = 0; i < job->chunk_count; i++)
        gone = imports_forget(service->imports, job->chunks[i].number, job->chunks[i].generation) &&
               gone;
    return gone;
}

static int forget_start(struct service *service, struct job *owned)
{
    _cleanup_free_ struct job *job = owned;
    struct farewell *farewell;

    if (chunks_forget(service, job))
        return answer_plain(service->conn, job->id, GMB__MOVER_RESULT__MOVER_RESULT_OK, NULL);
    farewell = malloc(sizeof(*farewell));
    if (farewell == NULL)
        return -ENOMEM;
    farewell->job = TAKE_PTR(job);
    list_init(&farewell->link);
    list_append(&service->farewells, &farewell->link);
    service->farewell_count++;
    return 0;
}

/* Some job has ended: perhaps it was the last user of what is to be forgotten. */
static int farewells_check(struct service *service)
{
    list_for_each_safe(farewell, &service->farewells, struct farewell, link)
    {
        int r;

        if (!chunks_forget(service, farewell->job))
            continue;
        r = answer_plain(
            service->conn, farewell->job->id, GMB__MOVER_RESULT__MOVER_RESULT_OK, NULL);
        list_remove(&farewell->link);
        free(farewell->job);
        free(farewell);
        service->farewell_count--;
        if (r < 0)
            return r;
    }
    return 0;
}

static int tasks_collect(struct service *service)
{
    struct task *task;

    while ((task = engine_take(service->engine)) != NULL) {
        int r = answer_task(service->conn, task);

        if (task->poisoned)
            log_error("the device is of no use any more: %s", task->error.text);
        service->poisoned = service->poisoned || task->poisoned;
        service->task_count--;
        task_free(service, task);
        if (r < 0)
            return r;
    }
    return farewells_check(service);
}

static int job_receive(struct service *service, const Gmb__MoverJob *message, struct fdset *fds)
{
    const char *reason = NULL;
    struct job *job;
    int r = job_parse(message, &service->bounds, fds->count, &job, &reason);

    if (r == -EINVAL) {
        log_warning("job %llu makes no sense: %s", (unsigned long long) message->id, reason);
        return answer_plain(
            service->conn, message->id, GMB__MOVER_RESULT__MOVER_RESULT_INVALID, reason);
    }
    if (r < 0)
        return r;
    if (service->task_count + service->farewell_count >= TASKS_MAX) {
        free(job);
        return -EBADMSG;
    }
    if (job->kind == GMB__MOVER_JOB_KIND__MOVER_JOB_FORGET)
        return forget_start(service, job);
    return task_start(service, job, fds);
}

/* ------------------------------------------------------------------ conversation */

/* One message, decoded. -EAGAIN: none is there. */
static int message_receive(struct service *service, Gmb__MoverMessage **ret, struct fdset *fds)
{
    const uint8_t *bytes;
    size_t size;
    int r = conn_receive(service->conn, &bytes, &size, fds);

    if (r == 0)
        r = frame_decode_mover(bytes, size, ret);
    if (r == 0 && frame_mover_fds(*ret) != fds->count) {
        frame_message_free(&(*ret)->base);
        r = -EBADMSG;
    }
    if (r < 0)
        fdset_close(fds);
    return r;
}

static int messages_receive(struct service *service)
{
    for (unsigned i = 0; i < LIMIT_READ_BURST && !service->poisoned; i++) {
        _cleanup_fdset_ struct fdset fds = FDSET_EMPTY;
        Gmb__MoverMessage *message;
        int r = message_receive(service, &message, &fds);

        if (r < 0)
            return r == -EAGAIN ? 0 : r;
        r = message->body_case == GMB__MOVER_MESSAGE__BODY_JOB
                ? job_receive(service, message->job, &fds)
                : -EBADMSG;
        frame_message_free(&message->base);
        if (r < 0)
            return r;
    }
    return 0;
}

static Gmb__MoverExit status_from_errno(int r)
{
    if (r == -ECONNRESET || r == -EPIPE)
        return GMB__MOVER_EXIT__MOVER_EXIT_END;
    log_error("cannot go on: %s", strerror(-r));
    return GMB__MOVER_EXIT__MOVER_EXIT_PROTOCOL;
}

/* A poisoned process has one thing left to do: to say so. */
static Gmb__MoverExit service_expire(struct service *service)
{
    struct pollfd end = {.fd = conn_fd(service->conn), .events = POLLOUT};

    while (conn_flush(service->conn) == 0 && conn_wants_write(service->conn)) {
        if (poll(&end, 1, FAREWELL_MS) <= 0)
            break;
    }
    return GMB__MOVER_EXIT__MOVER_EXIT_STICKY;
}

static Gmb__MoverExit service_loop(struct service *service)
{
    for (;;) {
        struct pollfd fds[] = {
            {.fd = conn_fd(service->conn), .events = POLLIN},
            {.fd = engine_fd(service->engine), .events = POLLIN},
        };
        int r = 0;

        if (conn_wants_write(service->conn))
            fds[0].events |= POLLOUT;
        if (poll(fds, ARRAY_SIZE(fds), -1) < 0 && errno != EINTR)
            return status_from_errno(-errno);
        if (fds[1].revents != 0)
            r = tasks_collect(service);
        if (r == 0 && fds[0].revents != 0)
            r = conn_flush(service->conn);
        if (r == 0 && (fds[0].revents & ~POLLOUT) != 0)
            r = messages_receive(service);
        if (service->poisoned)
            return service_expire(service);
        if (r < 0)
            return status_from_errno(r);
    }
}

static int service_open(struct service *service, enum gpu_driver driver,
    const Gmb__MoverHello *hello, const struct fdset *fds, struct gpu_error *error)
{
    const struct slabs_files files = {
        .tier_bytes = hello->tier_bytes,
        .disk_bytes = hello->disk_bytes,
        .slab_bytes = hello->slab_bytes,
        .tier_fd = fds->fds[0],
        .disk_fd = hello->disk_bytes > 0 ? fds->fds[1] : -1,
    };
    int r = device_open(driver, hello->device.data, &service->device, error);

    if (r == 0)
        r = slabs_new(&service->device, &files, &service->slabs);
    if (r == 0)
        r = imports_new(&service->device, &service->imports);
    if (r == 0)
        r = engine_new(&service->device, service->slabs, &service->engine, error);
    if (r < 0)
        return r;
    service->bounds = (struct job_bounds){
        .tier_bytes = hello->tier_bytes,
        .disk_bytes = hello->disk_bytes,
        .slab_bytes = hello->slab_bytes,
        .granularity_bytes = service->device.info->granularity_bytes,
    };
    return answer_ready(service->conn, device_taken_bytes(&service->device));
}

/* Waits for the broker's first word and gets ready. */
static Gmb__MoverExit service_greet(struct service *service, enum gpu_driver driver)
{
    struct pollfd readable = {.fd = conn_fd(service->conn), .events = POLLIN};
    _cleanup_fdset_ struct fdset fds = FDSET_EMPTY;
    Gmb__MoverExit status = GMB__MOVER_EXIT__MOVER_EXIT_END;
    struct gpu_error error = {0};
    Gmb__MoverMessage *message;
    int r;

    do
        r = poll(&readable, 1, -1) < 0 ? -errno : message_receive(service, &message, &fds);
    while (r == -EAGAIN || r == -EINTR);
    if (r < 0)
        return status_from_errno(r);
    if (message->body_case != GMB__MOVER_MESSAGE__BODY_HELLO) {
        status = status_from_errno(-EBADMSG);
    } else {
        r = service_open(service, driver, message->hello, &fds, &error);
        if (r < 0) {
            log_error("not ready: %s", error.text[0] != '\0' ? error.text : strerror(-r));
            status = error.code == CUDA_ERROR_OUT_OF_MEMORY ? GMB__MOVER_EXIT__MOVER_EXIT_MEMORY
                                                            : GMB__MOVER_EXIT__MOVER_EXIT_DEVICE;
        }
    }
    frame_message_free(&message->base);
    return status;
}

static void service_close(struct service *service)
{
    engine_free(service->engine);
    imports_free(service->imports);
    slabs_free(service->slabs);
    if (service->device.gpu != NULL)
        device_close(&service->device);
}

Gmb__MoverExit service_run(enum gpu_driver driver, int fd, bool *ret_clean)
{
    struct service service = {0};
    Gmb__MoverExit status;
    int r = conn_new_consume(fd, &service.conn);

    *ret_clean = false;
    if (r < 0)
        return status_from_errno(r);
    list_init(&service.farewells);
    status = service_greet(&service, driver);
    if (status == GMB__MOVER_EXIT__MOVER_EXIT_END && service.engine != NULL)
        status = service_loop(&service);
    if (status == GMB__MOVER_EXIT__MOVER_EXIT_END && service.task_count == 0) {
        service_close(&service);
        *ret_clean = true;
    }
    conn_free(service.conn);
    return status;
}
