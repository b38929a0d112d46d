/*
 * Leader and followers. One thread at a time leads: it polls the socket without the lock, then
 * takes in what has come. The others sleep on the condition. Leaving the seat wakes everybody:
 * those whose answer came go on, and one of the others leads.
 *
 * A wake-up that comes while nobody leads isn't lost: the eventfd stays readable until a leader has
 * read it.
 */
#include "client/wait.h"

#include <assert.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include "base/clock.h"
#include "client/quarantine.h"
#include "client/receive.h"
#include "client/request.h"
#include "client/resume.h"
#include "client/revoke.h"

static struct timespec timespec_from_ns(uint64_t ns)
{
    return (struct timespec){
        .tv_sec = (time_t) (ns / NSEC_PER_SEC),
        .tv_nsec = (long) (ns % NSEC_PER_SEC),
    };
}

static void follow(struct gmb_session *session, uint64_t deadline_ns)
{
    struct timespec until = timespec_from_ns(deadline_ns);

    if (deadline_ns == CLOCK_NEVER)
        (void) pthread_cond_wait(&session->changed, &session->lock);
    else
        (void) pthread_cond_timedwait(&session->changed, &session->lock, &until);
}

static void lead_poll(struct gmb_session *session, uint64_t deadline_ns)
{
    short events = session->watching_write ? POLLIN | POLLOUT : POLLIN;
    struct pollfd fds[] = {
        {session->conn != NULL ? conn_fd(session->conn) : -1, events, 0},
        {session->wake_fd, POLLIN, 0},
        {session->arrivals_fd, POLLIN, 0},
        {session->retry_fd, POLLIN, 0},
    };
    struct timespec left = timespec_from_ns(sub_saturate(deadline_ns, clock_now(&clock_monotonic)));
    struct epoll_event arrived[8];
    eventfd_t value;
    uint64_t expirations;

    (void) pthread_mutex_unlock(&session->lock);
    /* A signal's interruption is a step in which nothing changed. */
    (void) ppoll(fds, ARRAY_SIZE(fds), deadline_ns == CLOCK_NEVER ? NULL : &left, NULL);
    if (fds[1].revents != 0)
        (void) eventfd_read(session->wake_fd, &value);
    /* Takes the edges alone; whoever waits for pages looks at the pages. */
    if (fds[2].revents != 0)
        (void) epoll_wait(session->arrivals_fd, arrived, ARRAY_SIZE(arrived), 0);
    /* What is due the clock says; reading only resets it. */
    if (fds[3].revents != 0)
        (void) !read(session->retry_fd, &expirations, sizeof(expirations));
    (void) pthread_mutex_lock(&session->lock);
}

void session_step(struct gmb_session *session, uint64_t deadline_ns)
{
    if (session->reading) {
        follow(session, deadline_ns);
        return;
    }
    if (session->phase == SESSION_OVER)
        return;
    session->reading = true;
    /* Arenas want to be looked after even when nothing comes. */
    if (!list_empty(&session->arenas))
        deadline_ns = MIN(deadline_ns, session->arenas_due_ns);
    lead_poll(session, deadline_ns);
    resume_step(session);
    request_pump(session);
    session_receive(session);
    session->reading = false;
    (void) pthread_cond_broadcast(&session->changed);
}

int request_await(struct gmb_session *session, struct request *request, struct outcome *outcome)
{
    struct gmb_lease *grown = request->kind == REQUEST_GROW ? request->lease : NULL;
    bool answered;

    (void) pthread_mutex_lock(&session->lock);
    while (!request->answered && clock_now(&clock_monotonic) < request->deadline_ns)
        session_step(session, request->deadline_ns);
    answered = request->answered;
    if (!answered) {
        request_abandon(session, request);
        if (grown != NULL)
            grown->busy = false;
        revoke_look(session);
        quarantine_look(session);
    }
    (void) pthread_mutex_unlock(&session->lock);
    return answered ? 0
                    : outcome_set(outcome, GMB_E_TIMED_OUT,
                          "the broker doesn't answer: it is stopped or overloaded");
}

/* Neither can fail: the fds are non-blocking, and a counter that is full is readable already. */
void session_wake(struct gmb_session *session)
{
    (void) eventfd_write(session->wake_fd, 1);
}

void session_notify(struct gmb_session *session)
{
    (void) eventfd_write(session->notify_fd, 1);
}
