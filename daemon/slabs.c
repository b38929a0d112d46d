/*
 *   WAITING ──start──▶ STARTING ──ready──▶ READY
 *      ▲                   │                 │
 *      └───── reaped ──────┴─────────────────┘
 *
 * The loop starts the process, reads its first word and watches its death; afterwards the socket is
 * the worker's, which sends and waits. It learns of a death from the socket. A socket is closed
 * only while no worker is at it, so that the number isn't somebody else's by then.
 *
 * `epoch` counts the processes: a slab of an earlier one is lost.
 */
#include "daemon/slabs.h"

#include <errno.h>
#include <event2/event.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/log.h"
#include "daemon/mover_process.h"
#include "daemon/slab/wire.h"

/* A stopped or hanging process is told of in the log, then and each time it has been as long. */
#define PATIENCE_MS 10000
/* What an ending process may take to free its slabs before it is killed. */
#define END_MS 1000
/* Until a worker has noticed that its process is gone. */
#define WORKER_NS (2 * NSEC_PER_MSEC)

const struct slabs_options slabs_options_default = {
    .driver = "cuda",
    .user = "nobody",
    .hello_ns = 60 * NSEC_PER_SEC,
    .backoff_ns = 100 * NSEC_PER_MSEC,
    .backoff_max_ns = 10 * NSEC_PER_SEC,
};

enum slabs_state { SLABS_WAITING, SLABS_STARTING, SLABS_READY, SLABS_STATE_MAX };

struct slab {
    uint64_t epoch;
    uint32_t index; /* in the process */
    unsigned char token[GPU_IPC_TOKEN_SIZE];
};

struct slabs {
    struct event_base *base;
    const struct gpu_device *device;
    uint8_t uuid[16];
    struct slabs_options options;
    struct slabs_handler handler;
    struct mover_process process;
    struct event *ready_event, *exit_event, *timer;
    unsigned failures; /* starts in a row that came to nothing */
    bool put_off;      /* the last start was, for want of fds or memory of the broker's own */
    struct slabs_stats stats;

    pthread_mutex_t mutex; /* of what follows */
    pthread_cond_t changed;
    enum slabs_state state;
    bool busy, stopped;
    int fd; /* -1: none */
    uint64_t epoch, last_id;
    char broken[GPU_ERROR_SIZE]; /* why it can't be started; "" while it may yet */
};

static struct slab *slab_of(const struct gpu_chunk *chunk)
{
    return (struct slab *) (uintptr_t) chunk->handle;
}

/* ------------------------------------------------------------------ the worker's side */

/* 0 when the reply is there; -EPIPE when the process is gone. */
static int reply_wait(const struct slabs *slabs, int fd, uint64_t id, struct slab_reply *ret)
{
    for (;;) {
        struct pollfd readable = {.fd = fd, .events = POLLIN};
        int r = poll(&readable, 1, PATIENCE_MS);
        ssize_t n;

        if (r == 0)
            log_warning(
                "gmbd-slab of device %s doesn't answer: requests there wait", slabs->device->uuid);
        if (r <= 0)
            continue;
        n = recv(fd, ret, sizeof(*ret), 0);
        if (n < 0 && errno == EINTR)
            continue;
        return n == (ssize_t) sizeof(*ret) && ret->id == id ? 0 : -EPIPE;
    }
}

static int exchange(
    const struct slabs *slabs, int fd, const struct slab_request *request, struct slab_reply *reply)
{
    ssize_t n;

    do
        n = send(fd, request, sizeof(*request), MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    if (n != (ssize_t) sizeof(*request))
        return -EPIPE;
    return reply_wait(slabs, fd, request->id, reply);
}

/* Waits while a process starts; -EAGAIN when none is there, -EIO when none will be. The mutex is
 * held. */
static int ready_wait(struct slabs *slabs, struct gpu_error *error)
{
    while (slabs->state == SLABS_STARTING && !slabs->stopped)
        (void) pthread_cond_wait(&slabs->changed, &slabs->mutex);
    if (slabs->state == SLABS_READY && !slabs->stopped)
        return 0;
    (void) snprintf(error->text, sizeof(error->text), "%s",
        slabs->broken[0] != '\0' ? slabs->broken : "gmbd-slab isn't there");
    return slabs->broken[0] != '\0' ? -EIO : -EAGAIN;
}

/* One request and its reply, about `slab`, which is of the process that answers. -EAGAIN: the
 * process isn't there, or is no longer the one that has the slab; -EIO. */
static int call(struct slabs *slabs, struct slab *slab, struct slab_request *request,
    struct slab_reply *reply, struct gpu_error *error)
{
    int fd, r;

    (void) pthread_mutex_lock(&slabs->mutex);
    r = ready_wait(slabs, error);
    fd = slabs->fd;
    if (request->kind == SLAB_CREATE)
        slab->epoch = slabs->epoch;
    else if (slab->epoch != slabs->epoch)
        r = -EAGAIN;
    request->id = ++slabs->last_id;
    slabs->busy = r == 0;
    (void) pthread_mutex_unlock(&slabs->mutex);
    if (r < 0)
        return r;
    r = exchange(slabs, fd, request, reply);
    (void) pthread_mutex_lock(&slabs->mutex);
    slabs->busy = false;
    (void) pthread_mutex_unlock(&slabs->mutex);
    if (r == 0)
        return 0;
    (void) snprintf(error->text, sizeof(error->text), "gmbd-slab has ended");
    return -EAGAIN;
}

static void text_take(struct gpu_error *error, const struct slab_reply *reply)
{
    (void) snprintf(
        error->text, sizeof(error->text), "%.*s", (int) sizeof(reply->text) - 1, reply->text);
}

int slabs_create(
    struct slabs *slabs, uint64_t bytes, struct gpu_chunk *ret, struct gpu_error *error)
{
    struct slab_request request = {.kind = SLAB_CREATE, .bytes = bytes};
    _cleanup_free_ struct slab *slab = malloc(sizeof(*slab));
    struct slab_reply reply;
    int r;

    if (slab == NULL)
        return -ENOMEM;
    r = call(slabs, slab, &request, &reply, error);
    if (r < 0)
        return r == -EAGAIN ? GPU_NO_MEMORY : r;
    if (reply.result != 0) {
        text_take(error, &reply);
        return reply.result;
    }
    slab->index = reply.index;
    memcpy(slab->token, reply.token, sizeof(slab->token));
    *ret = (struct gpu_chunk){
        .device = slabs->device, .handle = (uintptr_t) TAKE_PTR(slab), .bytes = bytes};
    return GPU_OK;
}

bool slabs_lost(struct slabs *slabs, const struct gpu_chunk *chunk)
{
    bool lost;

    (void) pthread_mutex_lock(&slabs->mutex);
    lost = slabs->stopped || slab_of(chunk)->epoch != slabs->epoch;
    (void) pthread_mutex_unlock(&slabs->mutex);
    return lost;
}

int slabs_release(struct slabs *slabs, struct gpu_chunk *chunk, struct gpu_error *error)
{
    struct slab_request request = {.kind = SLAB_FREE};
    struct slab_reply reply = {0};
    int r = 0;

    if (chunk->device == NULL)
        return 0;
    request.index = slab_of(chunk)->index;
    if (!slabs_lost(slabs, chunk))
        r = call(slabs, slab_of(chunk), &request, &reply, error);
    free(slab_of(chunk));
    *chunk = (struct gpu_chunk){0};
    /* With the process gone, so is the slab. */
    if (r < 0 || reply.result == 0)
        return 0;
    text_take(error, &reply);
    return reply.result;
}

struct gpu_shareable slabs_shareable(const struct gpu_chunk *chunk)
{
    struct gpu_shareable shareable = {.type = GPU_HANDLE_IPC, .fd = -1};

    memcpy(shareable.ipc_token, slab_of(chunk)->token, sizeof(shareable.ipc_token));
    return shareable;
}

/* ------------------------------------------------------------------ the loop's side */

static void timer_set(struct slabs *slabs, uint64_t wait_ns)
{
    const struct timeval wait = {
        .tv_sec = (time_t) (wait_ns / NSEC_PER_SEC),
        .tv_usec = (suseconds_t) (wait_ns % NSEC_PER_SEC / NSEC_PER_USEC),
    };

    (void) event_add(slabs->timer, &wait);
}

static void state_set(struct slabs *slabs, enum slabs_state state)
{
    (void) pthread_mutex_lock(&slabs->mutex);
    slabs->state = state;
    (void) pthread_cond_broadcast(&slabs->changed);
    (void) pthread_mutex_unlock(&slabs->mutex);
}

static void unwatch(struct slabs *slabs)
{
    if (slabs->ready_event != NULL)
        event_free(TAKE_PTR(slabs->ready_event));
    if (slabs->exit_event != NULL)
        event_free(TAKE_PTR(slabs->exit_event));
}

/* Another start has come to nothing: when the next one is due. */
static uint64_t backoff(struct slabs *slabs, const char *why)
{
    unsigned shift = MIN(slabs->failures, 20u);
    uint64_t wait = MIN(slabs->options.backoff_ns << shift, slabs->options.backoff_max_ns);

    log_error("gmbd-slab of device %s can't be used: %s", slabs->device->uuid, why);
    if (++slabs->failures < SLABS_ATTEMPTS)
        return wait;
    (void) pthread_mutex_lock(&slabs->mutex);
    (void) snprintf(slabs->broken, sizeof(slabs->broken), "gmbd-slab can't be used: %s", why);
    (void) pthread_mutex_unlock(&slabs->mutex);
    return wait;
}

/* What the broker itself is short of passes, and says nothing of the device: tried again for as
 * long as it takes. */
static bool passes(int error)
{
    return error == -EMFILE || error == -ENFILE || error == -ENOMEM || error == -EAGAIN;
}

/* As backoff(), for what passes. Said once in a row. */
static uint64_t put_off(struct slabs *slabs, int error)
{
    if (!slabs->put_off)
        log_warning("gmbd-slab of device %s can't be started yet: %s", slabs->device->uuid,
            strerror(-error));
    slabs->put_off = true;
    return slabs->options.backoff_ns;
}

/* The process has been reaped. */
static void ended(struct slabs *slabs)
{
    bool was_ready = slabs->stats.ready;
    char how[MOVER_PROCESS_TEXT], why[MOVER_PROCESS_TEXT + 64];
    uint64_t wait_ns = 0;

    mover_process_describe(&slabs->process, how);
    unwatch(slabs);
    mover_process_forget(&slabs->process);
    slabs->stats.ready = false;
    (void) pthread_mutex_lock(&slabs->mutex);
    slabs->epoch++;
    slabs->state = SLABS_WAITING;
    (void) pthread_cond_broadcast(&slabs->changed);
    (void) pthread_mutex_unlock(&slabs->mutex);
    /* What others still map of its slabs may leave no room for a context: that passes. */
    if (mover_process_starved(&slabs->process))
        wait_ns = slabs->options.backoff_ns;
    else if (!was_ready)
        wait_ns = backoff(slabs, how);
    timer_set(slabs, wait_ns);
    if (!was_ready)
        return;
    slabs->stats.losses++;
    (void) snprintf(why, sizeof(why), "the process that held its memory %s", how);
    slabs->handler.lost(slabs->handler.data, why);
}

static void on_exit_seen(evutil_socket_t fd, short what, void *data)
{
    struct slabs *slabs = data;

    (void) fd;
    (void) what;
    if (mover_process_reap(&slabs->process))
        ended(slabs);
}

/* Its first word. Whatever else it says is a fault of its own. */
static void on_ready(evutil_socket_t fd, short what, void *data)
{
    struct slabs *slabs = data;
    struct slab_ready ready = {0};
    ssize_t n = recv(fd, &ready, sizeof(ready), MSG_DONTWAIT);

    (void) what;
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    event_free(TAKE_PTR(slabs->ready_event));
    if (n != (ssize_t) sizeof(ready) || ready.version != SLAB_WIRE_VERSION) {
        if (n > 0)
            mover_process_kill(&slabs->process);
        return; /* how it ends says why */
    }
    (void) event_del(slabs->timer);
    slabs->failures = 0;
    slabs->stats.ready = true;
    slabs->stats.context_bytes = ready.context_bytes;
    (void) pthread_mutex_lock(&slabs->mutex);
    slabs->broken[0] = '\0';
    (void) pthread_mutex_unlock(&slabs->mutex);
    state_set(slabs, SLABS_READY);
    log_info("gmbd-slab %d of device %s is ready", (int) slabs->process.pid, slabs->device->uuid);
}

/* False without memory, or when the process doesn't take it. */
static bool greet(struct slabs *slabs, int fd)
{
    struct slab_hello hello = {.version = SLAB_WIRE_VERSION};

    memcpy(hello.device, slabs->uuid, sizeof(hello.device));
    slabs->ready_event = event_new(slabs->base, fd, EV_READ | EV_PERSIST, on_ready, slabs);
    slabs->exit_event =
        event_new(slabs->base, slabs->process.pidfd, EV_READ | EV_PERSIST, on_exit_seen, slabs);
    return slabs->ready_event != NULL && slabs->exit_event != NULL &&
           event_add(slabs->ready_event, NULL) == 0 && event_add(slabs->exit_event, NULL) == 0 &&
           send(fd, &hello, sizeof(hello), MSG_NOSIGNAL) == (ssize_t) sizeof(hello);
}

static void start(struct slabs *slabs)
{
    const struct mover_start start = {
        .name = "gmbd-slab",
        .variable = "GMB_SLAB",
        .program = slabs->options.program,
        .driver = slabs->options.driver,
        .user = slabs->options.user,
    };
    int fd, r = mover_process_start(&start, &slabs->process, &fd);

    if (r < 0) {
        timer_set(slabs, passes(r) ? put_off(slabs, r) : backoff(slabs, strerror(-r)));
        return;
    }
    slabs->put_off = false;
    slabs->stats.starts++;
    (void) pthread_mutex_lock(&slabs->mutex);
    close_fd(&slabs->fd);
    slabs->fd = fd;
    slabs->state = SLABS_STARTING;
    (void) pthread_mutex_unlock(&slabs->mutex);
    timer_set(slabs, slabs->options.hello_ns);
    if (!greet(slabs, fd)) {
        mover_process_kill(&slabs->process);
        timer_set(slabs, WORKER_NS); /* perhaps nothing else sees it end */
    }
}

/* A start is due, or one has taken too long. */
static void on_timer(evutil_socket_t fd, short what, void *data)
{
    struct slabs *slabs = data;
    bool busy;

    (void) fd;
    (void) what;
    if (slabs->process.pid != 0) {
        mover_process_kill(&slabs->process);
        timer_set(slabs, WORKER_NS);
        if (mover_process_reap(&slabs->process))
            ended(slabs);
        return;
    }
    (void) pthread_mutex_lock(&slabs->mutex);
    busy = slabs->busy;
    (void) pthread_mutex_unlock(&slabs->mutex);
    if (busy)
        timer_set(slabs, WORKER_NS);
    else
        start(slabs);
}

int slabs_new(struct event_base *base, const struct gpu_device *device, const uint8_t uuid[16],
    const struct slabs_options *options, const struct slabs_handler *handler, struct slabs **ret)
{
    struct slabs *slabs = calloc(1, sizeof(*slabs));

    if (slabs == NULL)
        return -ENOMEM;
    slabs->base = base;
    slabs->device = device;
    memcpy(slabs->uuid, uuid, sizeof(slabs->uuid));
    slabs->options = *options;
    slabs->handler = *handler;
    slabs->process = MOVER_PROCESS_NONE;
    slabs->fd = -1;
    (void) pthread_mutex_init(&slabs->mutex, NULL);
    (void) pthread_cond_init(&slabs->changed, NULL);
    slabs->timer = event_new(base, -1, 0, on_timer, slabs);
    if (slabs->timer == NULL) {
        (void) slabs_free(slabs);
        return -ENOMEM;
    }
    start(slabs);
    *ret = slabs;
    return 0;
}

void slabs_stop(struct slabs *slabs)
{
    if (slabs == NULL)
        return;
    (void) pthread_mutex_lock(&slabs->mutex);
    slabs->stopped = true;
    /* Wakes whoever waits for the process, and tells it to end. */
    if (slabs->fd >= 0)
        (void) shutdown(slabs->fd, SHUT_RDWR);
    (void) pthread_cond_broadcast(&slabs->changed);
    (void) pthread_mutex_unlock(&slabs->mutex);
    (void) event_del(slabs->timer);
    unwatch(slabs);
    mover_process_end(&slabs->process, END_MS);
}

struct slabs *slabs_free(struct slabs *slabs)
{
    if (slabs == NULL)
        return NULL;
    if (slabs->timer != NULL)
        slabs_stop(slabs);
    if (slabs->timer != NULL)
        event_free(slabs->timer);
    close_fd(&slabs->fd);
    (void) pthread_cond_destroy(&slabs->changed);
    (void) pthread_mutex_destroy(&slabs->mutex);
    free(slabs);
    return NULL;
}

void slabs_stats_get(struct slabs *slabs, struct slabs_stats *ret)
{
    *ret = slabs->stats;
    ret->pid = (int) slabs->process.pid;
}
