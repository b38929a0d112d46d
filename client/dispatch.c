/*
 * Answered requests with a callback queue up, whoever read their answer, until somebody dispatches.
 * gmb_fd() is an epoll set of the socket and an eventfd: readable when the broker sent something or
 * when a callback waits that another thread's blocking call has read.
 */
#include "client/dispatch.h"

#include <sys/eventfd.h>

#include "base/clock.h"
#include "client/conclude.h"
#include "client/fork.h"
#include "client/lease.h"
#include "client/news.h"
#include "client/quarantine.h"
#include "client/request.h"
#include "client/revoke.h"
#include "client/wait.h"

/* Without the lock. */
static void callback_run(
    struct gmb_session *session, struct request *request, const struct outcome *verdict)
{
    gmb_lease_fn done = request->done;
    void *user = request->user;
    struct conclusion conclusion;

    request_conclude_consume(session, request, &conclusion);
    if (verdict != NULL && conclusion.outcome.code == 0)
        conclusion.outcome = *verdict;
    done(user, conclusion.lease, outcome_publish(&conclusion.outcome));
}

static bool callbacks_wait(const struct gmb_session *session)
{
    return !list_empty(&session->answered) || quarantine_wait(session) || news_wait(session) ||
           revoke_wait(session);
}

int callbacks_run(struct gmb_session *session, const struct outcome *verdict)
{
    eventfd_t value;
    int count = 0;

    while (callbacks_wait(session)) {
        struct request *request = list_first(&session->answered, struct request, link);

        if (request == NULL) {
            count += quarantine_run(session);
            count += revoke_run(session);
            count += news_run(session);
            continue;
        }

        list_remove(&request->link);
        (void) pthread_mutex_unlock(&session->lock);
        callback_run(session, request, verdict);
        count++;
        (void) pthread_mutex_lock(&session->lock);
    }
    /* A session that is over stays readable, so that a loop comes to hear of it. */
    if (session->phase != SESSION_OVER)
        (void) eventfd_read(session->notify_fd, &value);
    return count;
}

_public_ int gmb_fd(const gmb_session *session)
{
    return session->epoll_fd;
}

static int dispatch(struct gmb_session *session, uint64_t deadline_ns, struct outcome *outcome)
{
    int count;

    if (!callbacks_wait(session) && session->phase != SESSION_OVER)
        session_step(session, deadline_ns);
    while (!callbacks_wait(session) && session->phase != SESSION_OVER &&
           clock_now(&clock_monotonic) < deadline_ns)
        session_step(session, deadline_ns);
    count = callbacks_run(session, NULL);
    if (count == 0 && session->phase == SESSION_OVER) {
        *outcome = session->broken;
        return outcome->code;
    }
    return count;
}

_public_ int gmb_dispatch(gmb_session *session, int timeout_ms)
{
    uint64_t deadline_ns = CLOCK_NEVER;
    struct outcome outcome = OUTCOME_OK;
    int r = fork_guard_check(session, &outcome);

    if (r < 0)
        return outcome_publish(&outcome);
    if (timeout_ms >= 0)
        deadline_ns = clock_now(&clock_monotonic) + (uint64_t) timeout_ms * NSEC_PER_MSEC;
    (void) pthread_mutex_lock(&session->lock);
    if (session->threaded) {
        r = outcome_set(&outcome, GMB_E_INVALID, "the background thread dispatches this session");
    } else if (session->dispatching) {
        r = outcome_set(&outcome, GMB_E_INVALID, "another gmb_dispatch() of this session runs");
    } else {
        session->dispatching = true;
        r = dispatch(session, deadline_ns, &outcome);
        session->dispatching = false;
    }
    (void) pthread_mutex_unlock(&session->lock);
    return r < 0 ? outcome_publish(&outcome) : r;
}

_public_ int gmb_cancel(gmb_session *session, uint64_t id)
{
    struct outcome outcome = OUTCOME_OK;
    struct request *request;

    if (fork_guard_check(session, &outcome) < 0)
        return outcome_publish(&outcome);
    (void) pthread_mutex_lock(&session->lock);
    request = request_find(session, id);
    if (request == NULL || request->owner != REQUEST_OWNER_CALLBACK)
        (void) outcome_set(&outcome, GMB_E_NOT_FOUND,
            "request %llu is answered already, or never was", (unsigned long long) id);
    else
        (void) request_cancel(session, id, &outcome);
    (void) pthread_mutex_unlock(&session->lock);
    return outcome_publish(&outcome);
}
