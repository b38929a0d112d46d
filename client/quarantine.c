/*
 * That a segment is in quarantine stands in its lease, for whoever asks between two steps, and is
 * never taken back. The broker says it again when a session resumes: nobody is called twice.
 */
#include "client/quarantine.h"

#include "client/fork.h"
#include "client/lease.h"
#include "client/lease_call.h"
#include "client/wait.h"

void quarantine_look(struct gmb_session *session)
{
    if (quarantine_wait(session))
        session_notify(session);
}

int quarantine_take(
    struct gmb_session *session, const Gmb__SegmentQuarantined *message, struct outcome *why)
{
    struct gmb_lease *lease = lease_by_id(session, message->lease);

    if (lease == NULL || atomic_load(&lease->quarantined))
        return 0;
    if (!lease->segment)
        return outcome_set(why, GMB_E_PROTOCOL,
            "the broker says that lease %llu is in quarantine, which is no segment",
            (unsigned long long) message->lease);
    atomic_store(&lease->quarantined, true);
    lease->unheard = true;
    session->quarantine.noted++;
    quarantine_look(session);
    return 0;
}

/* As with leases that are asked back, one that a call is at work on comes when that is over. */
static struct gmb_lease *unheard_first(const struct gmb_session *session)
{
    if (session->quarantine.noted == 0)
        return NULL;
    list_for_each(lease, &session->leases, struct gmb_lease, link)
    {
        if (lease->unheard && !lease->busy && !lease->dropped)
            return lease;
    }
    return NULL;
}

bool quarantine_wait(const struct gmb_session *session)
{
    return session->quarantine.call != NULL && !session->leaving && unheard_first(session) != NULL;
}

void quarantine_forget(struct gmb_lease *lease)
{
    lease->session->quarantine.noted -= lease->unheard;
    lease->unheard = false;
}

int quarantine_run(struct gmb_session *session)
{
    struct quarantine_subscription *quarantine = &session->quarantine;
    int count = 0;

    for (; quarantine_wait(session); count++) {
        struct gmb_lease *lease = unheard_first(session);
        gmb_segment_fn call = quarantine->call;
        void *user = quarantine->user;

        quarantine_forget(lease);
        lease_call_begin(session, &quarantine->now, lease);
        call(user, lease);
        lease_call_end(session, &quarantine->now);
    }
    return count;
}

_public_ int gmb_segment_subscribe(gmb_session *session, gmb_segment_fn quarantined, void *user)
{
    struct outcome outcome = OUTCOME_OK;

    if (fork_guard_check(session, &outcome) < 0)
        return outcome_publish(&outcome);
    (void) pthread_mutex_lock(&session->lock);
    session->quarantine.call = NULL;
    lease_call_quiet(session, &session->quarantine.now, NULL);
    session->quarantine.call = quarantined;
    session->quarantine.user = user;
    quarantine_look(session);
    (void) pthread_mutex_unlock(&session->lock);
    return outcome_publish(&outcome);
}

_public_ int gmb_segment_quarantined(const gmb_lease *lease)
{
    return atomic_load(&lease->quarantined);
}
