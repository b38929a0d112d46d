/*
 * What is asked of a lease stands in the lease: a later word replaces an earlier one that nobody
 * was called for, and a lease that goes takes it along. Without a callback it stands there until
 * somebody subscribes.
 */
#include "client/revoke.h"

#include "base/clock.h"
#include "client/fork.h"
#include "client/lease.h"
#include "client/lease_call.h"
#include "client/wait.h"

void revoke_look(struct gmb_session *session)
{
    if (revoke_wait(session))
        session_notify(session);
}

int revoke_take(struct gmb_session *session, const Gmb__LeaseRevoke *message, struct outcome *why)
{
    struct gmb_lease *lease = lease_by_id(session, message->lease);

    if (message->bytes == 0)
        return outcome_set(why, GMB_E_PROTOCOL, "the broker revoked nothing of lease %llu",
            (unsigned long long) message->lease);
    if (lease == NULL)
        return 0;
    session->revoke.noted += lease->revoked_bytes == 0;
    lease->revoked_bytes = message->bytes;
    lease->revoked_until_ns = add_saturate(clock_now(&clock_monotonic), message->deadline_ns);
    revoke_look(session);
    return 0;
}

/* A lease that a call is at work on is asked for when that is over: it may just be being made, and
 * whoever is called could do nothing with it. */
static struct gmb_lease *revoked_first(const struct gmb_session *session)
{
    if (session->revoke.noted == 0)
        return NULL;
    list_for_each(lease, &session->leases, struct gmb_lease, link)
    {
        if (lease->revoked_bytes != 0 && !lease->busy && !lease->dropped)
            return lease;
    }
    return NULL;
}

bool revoke_wait(const struct gmb_session *session)
{
    return session->revoke.call != NULL && !session->leaving && revoked_first(session) != NULL;
}

void revoke_forget(struct gmb_lease *lease)
{
    lease->session->revoke.noted -= lease->revoked_bytes != 0;
    lease->revoked_bytes = 0;
}

int revoke_run(struct gmb_session *session)
{
    struct revoke_subscription *revoke = &session->revoke;
    int count = 0;

    for (; revoke_wait(session); count++) {
        struct gmb_lease *lease = revoked_first(session);
        uint64_t bytes = lease->revoked_bytes, until_ns = lease->revoked_until_ns;
        gmb_revoke_fn call = revoke->call;
        void *user = revoke->user;

        revoke_forget(lease);
        lease_call_begin(session, &revoke->now, lease);
        call(user, lease, bytes, until_ns);
        lease_call_end(session, &revoke->now);
    }
    return count;
}

_public_ int gmb_revoke_subscribe(gmb_session *session, gmb_revoke_fn revoke, void *user)
{
    struct outcome outcome = OUTCOME_OK;

    if (fork_guard_check(session, &outcome) < 0)
        return outcome_publish(&outcome);
    (void) pthread_mutex_lock(&session->lock);
    session->revoke.call = NULL;
    lease_call_quiet(session, &session->revoke.now, NULL);
    session->revoke.call = revoke;
    session->revoke.user = user;
    revoke_look(session);
    (void) pthread_mutex_unlock(&session->lock);
    return 0;
}
