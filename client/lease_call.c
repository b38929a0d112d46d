/* See lease_call.h. */
#include "client/lease_call.h"

void lease_call_begin(
    struct gmb_session *session, struct lease_call *call, const struct gmb_lease *lease)
{
    call->running = lease;
    call->runner = pthread_self();
    (void) pthread_mutex_unlock(&session->lock);
}

void lease_call_end(struct gmb_session *session, struct lease_call *call)
{
    (void) pthread_mutex_lock(&session->lock);
    call->running = NULL;
    (void) pthread_cond_broadcast(&session->changed);
}

void lease_call_quiet(
    struct gmb_session *session, struct lease_call *call, const struct gmb_lease *lease)
{
    while (call->running != NULL && (lease == NULL || call->running == lease) &&
           !pthread_equal(call->runner, pthread_self()))
        (void) pthread_cond_wait(&session->changed, &session->lock);
}
