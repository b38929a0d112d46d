/*
 * A session is built in the order of its fields and torn down from any point of it by one
 * destructor.
 *
 * Leaving politely comes before that: the broker keeps what a closed connection had until the
 * process ends, since it may still be mapped. So disconnecting withdraws what waits, takes in what
 * still comes, gives everything back, and closes last.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>

#include "base/clock.h"
#include "client/arena.h"
#include "client/connect.h"
#include "client/device.h"
#include "client/dial.h"
#include "client/dispatch.h"
#include "client/fork.h"
#include "client/lease.h"
#include "client/news.h"
#include "client/request.h"
#include "client/resume.h"
#include "client/resume_held.h"
#include "client/status.h"
#include "client/thread.h"
#include "client/wait.h"
#include "client/watch.h"
#include "gpu/loader.h"

#define SOCKET_DEFAULT "/run/gmbd/client.sock"
#define TIMEOUT_DEFAULT_NS (10 * NSEC_PER_SEC)

static void requests_free(struct list *requests)
{
    list_for_each_safe(request, requests, struct request, link)
    {
        if (request_makes_lease(request))
            request->lease->busy = false; /* it goes with the session's list */
        for (size_t i = 0; i < request->part_count; i++)
            request->parts[i]->lease->busy = false;
        request_free(request);
    }
}

/* Memory and fds alone: sends nothing, calls no driver but to close it. Also in a forked child. */
static struct gmb_session *session_free(struct gmb_session *session)
{
    if (session == NULL)
        return NULL;
    if (list_linked(&session->registered))
        fork_guard_remove(session);
    requests_free(&session->pending);
    requests_free(&session->answered);
    requests_free(&session->settling);
    list_for_each_safe(lease, &session->leases, struct gmb_lease, link) lease_free(lease);
    list_for_each_safe(lease, &session->arenas, struct gmb_lease, link)
        arena_destroy(arena_from_lease(lease));
    session->conn = conn_free(session->conn);
    close_fd(&session->epoll_fd);
    close_fd(&session->notify_fd);
    close_fd(&session->wake_fd);
    close_fd(&session->arrivals_fd);
    close_fd(&session->retry_fd);
    session->held = resume_held_free(session->held);
    status_unmap(&session->status);
    watches_end(session);
    free(session->subscription.news);
    free(session->devices);
    free(session->socket);
    free(session->program);
    session->gpu = gpu_close(session->gpu);
    (void) pthread_cond_destroy(&session->changed);
    (void) pthread_mutex_destroy(&session->lock);
    (void) pthread_mutex_destroy(&session->context_lock);
    free(session);
    return NULL;
}

static void session_free_ptr(struct gmb_session **session)
{
    *session = session_free(*session);
}

static int session_make(struct gmb_session **ret, struct outcome *outcome)
{
    struct gmb_session *session = calloc(1, sizeof(*session));
    pthread_condattr_t attributes;

    if (session == NULL)
        return outcome_set(outcome, GMB_E_INTERNAL, "no host memory for a session");
    list_init(&session->registered);
    list_init(&session->pending);
    list_init(&session->answered);
    list_init(&session->settling);
    list_init(&session->leases);
    list_init(&session->arenas);
    list_init(&session->watches);
    (void) pthread_mutex_init(&session->lock, NULL);
    (void) pthread_mutex_init(&session->context_lock, NULL);
    (void) pthread_condattr_init(&attributes);
    (void) pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void) pthread_cond_init(&session->changed, &attributes);
    (void) pthread_condattr_destroy(&attributes);
    session->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    session->notify_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    session->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    session->arrivals_fd = epoll_create1(EPOLL_CLOEXEC);
    session->retry_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (session->epoll_fd < 0 || session->notify_fd < 0 || session->wake_fd < 0 ||
        session->arrivals_fd < 0 || session->retry_fd < 0) {
        (void) outcome_set_errno(outcome, errno, "no fds for a session");
        session_free(session);
        return outcome->code;
    }
    *ret = session;
    return 0;
}

static int poll_set_fill(struct gmb_session *session, struct outcome *outcome)
{
    struct epoll_event event = {.events = EPOLLIN};

    if (epoll_ctl(session->epoll_fd, EPOLL_CTL_ADD, conn_fd(session->conn), &event) < 0 ||
        epoll_ctl(session->epoll_fd, EPOLL_CTL_ADD, session->notify_fd, &event) < 0 ||
        epoll_ctl(session->epoll_fd, EPOLL_CTL_ADD, session->retry_fd, &event) < 0)
        return outcome_set_errno(outcome, errno, "no poll set for a session");
    return 0;
}

/* The driver that the broker uses: memory of another one can't be mapped. */
static int driver_open(
    struct gmb_session *session, const char *asked, const char *used, struct outcome *outcome)
{
    struct gpu_error error = {0};
    enum gpu_driver driver;

    if (asked != NULL && strcmp(asked, used) != 0)
        return outcome_set(outcome, GMB_E_UNSUPPORTED,
            "the broker's driver is %s, not the %s that the options ask for", used, asked);
    if (gpu_driver_parse(used, &driver) < 0)
        return outcome_set(
            outcome, GMB_E_UNSUPPORTED, "the broker's driver %s is unknown to this library", used);
    if (gpu_open(driver, GPU_ROLE_CLIENT, &session->gpu, &error) != 0)
        return outcome_set(outcome, GMB_E_GPU, "%s", error.text);
    return 0;
}

static int session_greet(struct gmb_session *session, const struct gmb_options *options,
    uint64_t deadline_ns, struct outcome *outcome)
{
    _cleanup_fdset_ struct fdset fds = FDSET_EMPTY;
    Gmb__BrokerMessage *message;
    int r = connect_greet(session->conn, options->program, deadline_ns, &message, &fds, outcome);

    if (r < 0)
        return r;
    (void) snprintf(session->tenant, sizeof(session->tenant), "%s", message->welcome->tenant);
    resume_token_take(session, message->welcome);
    r = driver_open(session, options->driver, message->welcome->driver, outcome);
    if (r == 0)
        r = devices_load(session, message->welcome, outcome);
    if (r == 0)
        r = news_prepare(session, outcome);
    if (r == 0 && fds.count > 0)
        r = status_map(&session->status, fds.fds[0], session->device_count, outcome);
    frame_message_free(&message->base);
    return r;
}

static const char *socket_path(const struct gmb_options *options)
{
    const char *path = options->socket != NULL ? options->socket : secure_getenv("GMB_SOCKET");

    return path != NULL ? path : SOCKET_DEFAULT;
}

/* What a later connection needs. */
static int options_keep(
    struct gmb_session *session, const struct gmb_options *options, struct outcome *outcome)
{
    session->patient = options->offline == GMB_OFFLINE_WAIT;
    session->socket = strdup(socket_path(options));
    session->program = options->program != NULL ? strdup(options->program) : NULL;
    if (session->socket == NULL || (options->program != NULL && session->program == NULL))
        return outcome_set(outcome, GMB_E_INTERNAL, "no host memory for a session");
    return 0;
}

static int session_connect(
    const struct gmb_options *options, struct gmb_session **ret, struct outcome *outcome)
{
    _cleanup_(session_free_ptr) struct gmb_session *session = NULL;
    uint64_t deadline_ns;
    int fd, r = session_make(&session, outcome);

    if (r < 0)
        return r;
    r = options_keep(session, options, outcome);
    if (r < 0)
        return r;
    session->timeout_ns = options->timeout_ns != 0 ? options->timeout_ns : TIMEOUT_DEFAULT_NS;
    deadline_ns = add_saturate(clock_now(&clock_monotonic), session->timeout_ns);
    r = dial(session->socket, deadline_ns, &fd, outcome);
    if (r < 0)
        return r;
    r = conn_new_consume(fd, &session->conn);
    if (r < 0)
        return outcome_set_errno(outcome, r, "no connection can be made");
    r = session_greet(session, options, deadline_ns, outcome);
    if (r == 0)
        r = poll_set_fill(session, outcome);
    if (r < 0)
        return r;
    fork_guard_add(session);
    *ret = TAKE_PTR(session);
    return 0;
}

_public_ int gmb_connect(const struct gmb_options *options, gmb_session **ret_session)
{
    static const struct gmb_options defaults = {.size = sizeof(defaults)};
    struct outcome outcome = OUTCOME_OK;
    struct gmb_options copy = defaults;

    if (options != NULL)
        memcpy(&copy, options, MIN(options->size, sizeof(copy)));
    if (copy.size < offsetof(struct gmb_options, offline))
        (void) outcome_set(&outcome, GMB_E_INVALID, "options.size must be sizeof the structure");
    else if (copy.offline > GMB_OFFLINE_WAIT)
        (void) outcome_set(&outcome, GMB_E_INVALID, "options.offline is none that there is");
    else
        (void) session_connect(&copy, ret_session, &outcome);
    return outcome_publish(&outcome);
}

static struct request *callback_pending(struct gmb_session *session)
{
    list_for_each(request, &session->pending, struct request, link)
    {
        if (request->owner == REQUEST_OWNER_CALLBACK)
            return request;
    }
    return NULL;
}

/*
 * Everything that waits is withdrawn and called back; `lock` is held. A callback may make calls
 * that read answers, so that nothing about the lists is known after one.
 */
static void pending_withdraw(struct gmb_session *session)
{
    struct outcome cancelled = OUTCOME_OK;
    struct request *request;

    (void) outcome_set(&cancelled, GMB_E_CANCELLED, "the session was disconnected");
    (void) callbacks_run(session, &cancelled);
    while ((request = callback_pending(session)) != NULL) {
        struct gmb_lease *grown = request->kind == REQUEST_GROW ? request->lease : NULL;
        gmb_lease_fn done = request->done;
        void *user = request->user;

        request_abandon(session, request);
        if (grown != NULL)
            grown->busy = false;
        (void) pthread_mutex_unlock(&session->lock);
        done(user, grown, outcome_publish(&cancelled));
        (void) pthread_mutex_lock(&session->lock);
        (void) callbacks_run(session, &cancelled);
    }
}

/* Until every request is answered: a broker that doesn't is left to find the connection closed. */
static void pending_settle(struct gmb_session *session, uint64_t deadline_ns)
{
    while (!list_empty(&session->pending) && session->phase == SESSION_READY &&
           clock_now(&clock_monotonic) < deadline_ns)
        session_step(session, deadline_ns);
}

static void session_leave(struct gmb_session *session)
{
    uint64_t deadline_ns = add_saturate(clock_now(&clock_monotonic), session->timeout_ns);

    (void) pthread_mutex_lock(&session->lock);
    /* Nobody waits for a broker that is away: it finds the process gone. */
    session->leaving = true;
    if (session->phase != SESSION_READY)
        session_end(session, &session->broken);
    pending_withdraw(session);
    arenas_withdraw(session);
    pending_settle(session, deadline_ns);
    list_for_each_safe(lease, &session->leases, struct gmb_lease, link)
    {
        /* What isn't settled by now, a silent broker has: it ends with the process. */
        if (lease->busy || lease->unsettled)
            continue;
        (void) pthread_mutex_unlock(&session->lock);
        lease_drop_consume(lease);
        (void) pthread_mutex_lock(&session->lock);
    }
    list_for_each_safe(lease, &session->arenas, struct gmb_lease, link)
    {
        struct gmb_arena *arena = arena_from_lease(lease);

        if (arena_filling(arena))
            continue;
        (void) pthread_mutex_unlock(&session->lock);
        arena_drop_consume(arena);
        (void) pthread_mutex_lock(&session->lock);
    }
    pending_settle(session, deadline_ns);
    (void) pthread_mutex_unlock(&session->lock);
}

_public_ void gmb_disconnect(gmb_session *session)
{
    if (session == NULL)
        return;
    if (fork_guard_same(session)) {
        thread_stop(session);
        session_leave(session);
        devices_release(session);
    }
    session_free(session);
}

_public_ int gmb_connection(gmb_session *session)
{
    struct outcome outcome = OUTCOME_OK;
    int result = GMB_CONNECTION_READY;

    if (fork_guard_check(session, &outcome) < 0)
        return outcome_publish(&outcome);
    (void) pthread_mutex_lock(&session->lock);
    if (session->phase == SESSION_OVER)
        result = GMB_CONNECTION_OVER;
    else if (session->phase != SESSION_READY)
        result = GMB_CONNECTION_AWAY;
    (void) pthread_mutex_unlock(&session->lock);
    return result;
}

_public_ const char *gmb_tenant(const gmb_session *session)
{
    return session->tenant;
}

_public_ const char *gmb_driver(const gmb_session *session)
{
    return gpu_driver_name(session->gpu->driver);
}

_public_ void *gmb_driver_symbol(const gmb_session *session, const char *name)
{
    return session->gpu->cuda != NULL ? dlsym(session->gpu->cuda->handle, name) : NULL;
}
