/* A loop around session_step() and the callbacks; it outlives the connection, to be joined once. */
#include "client/thread.h"

#include <signal.h>

#include "base/clock.h"
#include "client/dispatch.h"
#include "client/fork.h"
#include "client/wait.h"

static void *thread_main(void *data)
{
    struct gmb_session *session = data;

    (void) pthread_mutex_lock(&session->lock);
    while (!session->stopping) {
        if (callbacks_run(session, NULL) > 0)
            continue;
        if (session->phase != SESSION_OVER)
            session_step(session, CLOCK_NEVER);
        else
            (void) pthread_cond_wait(&session->changed, &session->lock);
    }
    (void) pthread_mutex_unlock(&session->lock);
    return NULL;
}

/* Born with every signal blocked, so that none can arrive in between. */
static int thread_create(struct gmb_session *session)
{
    sigset_t all, before;
    int r;

    (void) sigfillset(&all);
    (void) pthread_sigmask(SIG_SETMASK, &all, &before);
    r = pthread_create(&session->thread, NULL, thread_main, session);
    (void) pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (r == 0)
        (void) pthread_setname_np(session->thread, "gmb");
    return -r;
}

_public_ int gmb_thread_start(gmb_session *session)
{
    struct outcome outcome = OUTCOME_OK;
    int r;

    if (fork_guard_check(session, &outcome) < 0)
        return outcome_publish(&outcome);
    (void) pthread_mutex_lock(&session->lock);
    if (session->threaded) {
        (void) outcome_set(&outcome, GMB_E_INVALID, "this session has a background thread already");
    } else if (session->dispatching) {
        (void) outcome_set(&outcome, GMB_E_INVALID, "a gmb_dispatch() of this session runs");
    } else {
        r = thread_create(session);
        session->threaded = r == 0;
        if (r < 0)
            (void) outcome_set_errno(&outcome, r, "the background thread can't be started");
    }
    (void) pthread_mutex_unlock(&session->lock);
    return outcome_publish(&outcome);
}

void thread_stop(struct gmb_session *session)
{
    if (!session->threaded)
        return;
    (void) pthread_mutex_lock(&session->lock);
    session->stopping = true;
    (void) pthread_cond_broadcast(&session->changed);
    (void) pthread_mutex_unlock(&session->lock);
    session_wake(session);
    (void) pthread_join(session->thread, NULL);
    session->threaded = false;
}
