/* See resume.h. */
#include "client/resume.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/timerfd.h>

#include "base/clock.h"
#include "client/arena.h"
#include "client/arena_want.h"
#include "client/conclude.h"
#include "client/connect.h"
#include "client/device.h"
#include "client/dial.h"
#include "client/gang.h"
#include "client/lease.h"
#include "client/pressure.h"
#include "client/request.h"
#include "client/resume_held.h"
#include "client/status.h"
#include "client/wait.h"
#include "client/watch.h"

#define PAUSE_FIRST_NS (10 * NSEC_PER_MSEC)
#define PAUSE_LAST_NS NSEC_PER_SEC
/* connect(2) waits for room in a listener's queue; here somebody else waits, too. */
#define DIAL_NS (5 * NSEC_PER_MSEC)

int session_usable(const struct gmb_session *session, struct outcome *outcome)
{
    if (session->phase == SESSION_READY || (session->phase != SESSION_OVER && session->patient))
        return 0;
    *outcome = session->broken;
    return outcome->code;
}

/* ------------------------------------------------------------------ the timer */

void resume_arm(struct gmb_session *session)
{
    bool here = session->phase == SESSION_READY || session->phase == SESSION_OVER;
    uint64_t at_ns = here ? CLOCK_NEVER : session->retry_ns;
    struct itimerspec spec = {0};

    list_for_each(request, &session->pending, struct request, link)
    {
        if (!here && request_takes_memory(request))
            at_ns = MIN(at_ns, request->expires_ns);
    }
    if (at_ns != CLOCK_NEVER) {
        spec.it_value.tv_sec = (time_t) (at_ns / NSEC_PER_SEC);
        spec.it_value.tv_nsec = (long) (at_ns % NSEC_PER_SEC);
    }
    (void) timerfd_settime(session->retry_fd, TFD_TIMER_ABSTIME, &spec, NULL);
}

/* The first try comes almost at once: a restart takes some milliseconds. Between half and all of
 * the pause, so that a thousand clients don't come in step. */
static void retry_later(struct gmb_session *session)
{
    uint64_t pause_ns = MIN(2 * session->retry_pause_ns, PAUSE_LAST_NS);
    uint32_t dice = 0;

    session->retry_pause_ns = MAX(pause_ns, PAUSE_FIRST_NS);
    (void) getrandom(&dice, sizeof(dice), GRND_NONBLOCK);
    session->retry_ns = clock_now(&clock_monotonic) + session->retry_pause_ns / 2 +
                        dice % (session->retry_pause_ns / 2);
    resume_arm(session);
}

/* ------------------------------------------------------------------ the end of a connection */

static void connection_drop(struct gmb_session *session)
{
    if (session->conn != NULL)
        (void) epoll_ctl(session->epoll_fd, EPOLL_CTL_DEL, conn_fd(session->conn), NULL);
    session->conn = conn_free(session->conn);
    session->watching_write = false;
    session->held = resume_held_free(session->held);
    session->drops++;
    atomic_store(&session->stale, true);
    leases_lose_all(session);
    watches_end(session);
}

void session_end(struct gmb_session *session, const struct outcome *why)
{
    connection_drop(session);
    session->phase = SESSION_OVER;
    session->broken = *why;
    resume_arm(session);
    while (!list_empty(&session->pending)) {
        struct request *request = list_first(&session->pending, struct request, link);

        /* The requests' own outcomes say more, where they have one. */
        if (request->outcome.code == 0)
            request->outcome = *why;
        request_answer(session, request);
    }
    session_notify(session);
}

/* Whether a request waits for the broker's return; what doesn't is answered now. A cancel goes with
 * the connection, and so does what it was to withdraw: nobody else would. */
static bool request_stays(const struct gmb_session *session, const struct request *request)
{
    return session->patient && request_resumes(request) && !request->withdrawn &&
           (!request_takes_memory(request) || request->wait_ns != GMB_WAIT_NONE) &&
           request->owner != REQUEST_OWNER_NOBODY && request->outcome.code == 0;
}

static void request_part(struct gmb_session *session, struct request *request)
{
    if (request_is_note(request)) {
        list_remove(&request->link);
        session->unsent -= !request->sent;
        request_free(request);
        return;
    }
    gang_disown(request);
    if (request->withdrawn && request->outcome.code == 0)
        (void) outcome_set(&request->outcome, GMB_E_CANCELLED,
            "the request was withdrawn when the broker went away");
    if (!request_settles(request) && request->outcome.code == 0)
        request->outcome = session->broken;
    request_answer(session, request);
}

/* Sends it anew, from the start. What was mapped of a grant that broke off isn't ours. */
static void request_rewind(struct gmb_session *session, struct request *request)
{
    bool undone;

    gang_disown(request);
    if (request->sent) {
        request->again = true;
        request->sent = false;
        session->unsent++;
    }
    (void) pthread_mutex_unlock(&session->lock);
    undone = request->kind == REQUEST_GANG ? gang_rewind(session, request)
                                           : request_chunks_rewind(session, request);
    (void) pthread_mutex_lock(&session->lock);
    if (!undone && !request->answered) {
        (void) outcome_set(
            &request->outcome, GMB_E_GPU, "the driver keeps what a broken grant had mapped");
        request_answer(session, request);
    }
}

static struct request *rewind_next(struct gmb_session *session)
{
    list_for_each(request, &session->pending, struct request, link)
    {
        if (request->sent)
            return request;
    }
    return NULL;
}

static void session_away(struct gmb_session *session, const struct outcome *why)
{
    struct request *request;

    connection_drop(session);
    session->phase = SESSION_AWAY;
    session->broken = *why;
    list_for_each_safe(each, &session->pending, struct request, link)
    {
        if (!request_stays(session, each))
            request_part(session, each);
    }
    while ((request = rewind_next(session)) != NULL)
        request_rewind(session, request);
    retry_later(session);
}

void session_break(struct gmb_session *session, const struct outcome *why)
{
    if (session->resumable && !session->leaving && why->code != GMB_E_PROTOCOL)
        session_away(session, why);
    else
        session_end(session, why);
}

/* ------------------------------------------------------------------ coming back */

void resume_token_take(struct gmb_session *session, const Gmb__Welcome *welcome)
{
    session->resumable = welcome->token.len == SESSION_TOKEN_BYTES;
    if (session->resumable)
        memcpy(session->token, welcome->token.data, SESSION_TOKEN_BYTES);
}

static int connection_try(struct gmb_session *session, struct outcome *outcome)
{
    struct epoll_event event = {.events = EPOLLIN};
    uint64_t now_ns = clock_now(&clock_monotonic);
    int fd, r = dial(session->socket, now_ns + DIAL_NS, &fd, outcome);

    if (r < 0)
        return r;
    r = conn_new_consume(fd, &session->conn);
    if (r < 0)
        return outcome_set_errno(outcome, r, "no connection can be made");
    if (epoll_ctl(session->epoll_fd, EPOLL_CTL_ADD, conn_fd(session->conn), &event) < 0)
        return outcome_set_errno(outcome, errno, "no poll set for a session");
    r = connect_hello(session->conn, session->program, session->token, outcome);
    if (r < 0)
        return r;
    session->phase = SESSION_GREETING;
    session->retry_ns = add_saturate(now_ns, session->timeout_ns);
    resume_arm(session);
    return 0;
}

/* Nobody keeps the requests' deadlines while the broker is away. */
static void requests_expire(struct gmb_session *session, uint64_t now_ns)
{
    list_for_each_safe(request, &session->pending, struct request, link)
    {
        if (!request_takes_memory(request) || now_ns < request->expires_ns)
            continue;
        request->outcome = session->broken;
        request_answer(session, request);
    }
    resume_arm(session);
}

static void connection_retry(struct gmb_session *session)
{
    struct outcome why = OUTCOME_OK;

    if (connection_try(session, &why) == 0)
        return;
    connection_drop(session);
    retry_later(session);
}

void resume_step(struct gmb_session *session)
{
    uint64_t now_ns = clock_now(&clock_monotonic);
    struct outcome why = OUTCOME_OK;

    if (session->phase == SESSION_READY || session->phase == SESSION_OVER)
        return;
    requests_expire(session, now_ns);
    if (now_ns < session->retry_ns)
        return;
    if (session->phase == SESSION_AWAY) {
        connection_retry(session);
    } else {
        (void) outcome_set(&why, GMB_E_DISCONNECTED, "the broker doesn't answer the greeting");
        session_away(session, &why);
    }
}

/* ------------------------------------------------------------------ what the broker says then */

static bool is_named(const struct gmb_lease *lease, const uint64_t *ids, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (ids[i] == lease->id)
            return true;
    }
    return false;
}

/* Those of the list that are named, or all of them where nothing was resumed. */
static void lose(struct list *leases, bool all, const uint64_t *ids, size_t count)
{
    list_for_each(lease, leases, struct gmb_lease, link)
    {
        if (!lease->known || (!all && !is_named(lease, ids, count)))
            continue;
        lease->lost = true;
        lease->known = false;
    }
}

/* Requests that concern what is lost have nobody to answer them. What gives something back names it
 * by numbers that mean nothing to a broker that resumed nothing, or something else. */
static void orphans_answer(struct gmb_session *session, bool resumed)
{
    list_for_each_safe(request, &session->pending, struct request, link)
    {
        if (!resumed && request_settles(request)) {
            request_answer(session, request);
            continue;
        }
        if (request->kind == REQUEST_SEAL ? resumed
                                          : request->lease == NULL || !request->lease->lost)
            continue;
        (void) outcome_set(
            &request->outcome, GMB_E_DISCONNECTED, "the broker lost this lease when it restarted");
        request_answer(session, request);
    }
}

static void session_ready(struct gmb_session *session, bool resumed)
{
    session->held = resume_held_free(session->held);
    session->phase = SESSION_READY;
    session->broken = OUTCOME_OK;
    session->ending = false;
    session->retry_pause_ns = 0;
    resume_arm(session);
    orphans_answer(session, resumed);
    list_for_each(lease, &session->arenas, struct gmb_lease, link)
    {
        if (!lease->lost)
            arena_want_again(arena_from_lease(lease));
    }
    session->arenas_due_ns = 0;
    pressure_subscribe_again(session);
    request_pump(session);
}

static int held_send(struct gmb_session *session, struct outcome *why)
{
    int r = resume_held_send(session->held, session->conn, ++session->last_id);

    if (r < 0)
        return outcome_set_errno(why, r, "the session can't be resumed");
    if (r == 1)
        session->held = resume_held_free(session->held);
    return 0;
}

/* Without the same devices the page before stays, as its broker's last word. */
static int page_take(struct gmb_session *session, const Gmb__Welcome *welcome, struct fdset *fds,
    struct outcome *why)
{
    int r;

    if (!devices_same(session, welcome) || fds->count == 0)
        return 0;
    r = status_remap(&session->status, fds->fds[0], why);
    if (r == 0)
        atomic_store(&session->stale, false);
    return r;
}

static int welcome_take(struct gmb_session *session, const Gmb__Welcome *welcome, struct fdset *fds,
    struct outcome *why)
{
    int r;

    if (welcome->version == 0 || welcome->version > CLIENT_PROTOCOL_VERSION ||
        strcmp(welcome->driver, gpu_driver_name(session->gpu->driver)) != 0)
        return outcome_set(why, GMB_E_PROTOCOL,
            "the broker came back with version %u and driver %s", welcome->version,
            welcome->driver);
    resume_token_take(session, welcome);
    r = page_take(session, welcome, fds, why);
    if (r < 0)
        return r;
    session->resumes++;
    if (!welcome->resumed) {
        lose(&session->leases, true, NULL, 0);
        lose(&session->arenas, true, NULL, 0);
        session_ready(session, false);
        return 0;
    }
    r = resume_held_take(session, &session->held);
    if (r < 0)
        return outcome_set_errno(why, r, "the session can't be resumed");
    session->phase = SESSION_RESUMING;
    return held_send(session, why);
}

int resume_take(struct gmb_session *session, const Gmb__BrokerMessage *message, struct fdset *fds,
    struct outcome *why)
{
    if (message->body_case == GMB__BROKER_MESSAGE__BODY_ERROR) {
        (void) outcome_from_error(why, message->error);
        /* A broker that is full or not configured yet may be asked again. */
        why->code = GMB_E_DISCONNECTED;
        return why->code;
    }
    if (session->phase == SESSION_GREETING &&
        message->body_case == GMB__BROKER_MESSAGE__BODY_WELCOME)
        return welcome_take(session, message->welcome, fds, why);
    /* The broker sends no chunks and recalls before the last part was answered. */
    if (session->phase != SESSION_RESUMING ||
        message->body_case != GMB__BROKER_MESSAGE__BODY_RESUMED)
        return outcome_set(
            why, GMB_E_PROTOCOL, "the broker resumes the session with a message of the wrong kind");
    lose(&session->leases, false, message->resumed->lost, message->resumed->n_lost);
    lose(&session->arenas, false, message->resumed->lost, message->resumed->n_lost);
    if (session->held != NULL)
        return held_send(session, why);
    session_ready(session, true);
    return 0;
}
