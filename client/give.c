/*
 * Giving memory back. The order keeps the ledger true: the device finishes, the chunks are
 * unmapped, and only then the broker hears that they are free. What the driver doesn't unmap is
 * never said to be free; it stays charged until the process ends.
 */
#include "base/clock.h"
#include "client/fork.h"
#include "client/lease.h"
#include "client/request.h"
#include "client/wait.h"

int lease_done_wait(struct gmb_session *session, struct request *request, struct outcome *outcome)
{
    if (request == NULL)
        return 0;
    request->deadline_ns = add_saturate(clock_now(&clock_monotonic), session->timeout_ns);
    if (request_await(session, request, outcome) < 0)
        return outcome_set(outcome, GMB_E_TIMED_OUT,
            "the broker doesn't answer: the memory is unmapped and is free once it reads on");
    *outcome = request->outcome;
    request_free(request);
    return outcome->code;
}

static int shrink_tell(
    struct gmb_lease *lease, uint32_t keep, struct request *request, struct outcome *outcome)
{
    struct gmb_session *session = lease->session;
    int r;

    request->target = lease->id;
    request->keep_chunks = keep;
    (void) pthread_mutex_lock(&session->lock);
    lease->held = keep;
    if (lease->lost) {
        (void) pthread_mutex_unlock(&session->lock);
        request_free(request);
        return 0;
    }
    r = request_submit(session, request, outcome);
    (void) pthread_mutex_unlock(&session->lock);
    if (r < 0) {
        request_free(request);
        return r;
    }
    return lease_done_wait(session, request, outcome);
}

static int lease_shrink(struct gmb_lease *lease, uint64_t bytes, struct outcome *outcome)
{
    uint64_t keep = bytes / lease->chunk_bytes + (bytes % lease->chunk_bytes != 0);
    struct request *request;
    int r;

    if (lease->segment)
        return outcome_set(outcome, GMB_E_INVALID, "a segment is given back whole");
    if (keep > atomic_load(&lease->chunks))
        return outcome_set(outcome, GMB_E_INVALID, "the lease has only %llu bytes",
            (unsigned long long) gmb_lease_bytes(lease));
    if (keep == atomic_load(&lease->chunks))
        return 0;
    if (lease->device->slabs)
        return outcome_set(outcome, GMB_E_UNSUPPORTED,
            "device %s shares memory over CUDA IPC: a lease there has no address without its "
            "memory; release it",
            lease->device->info.uuid);
    /* Before anything is unmapped: a shrink that fails leaves the lease as it was. */
    request = request_new(REQUEST_SHRINK, REQUEST_OWNER_WAITER);
    if (request == NULL)
        return outcome_set(outcome, GMB_E_INTERNAL, "no host memory for a request");
    r = lease_empty(lease, (uint32_t) keep, false, outcome);
    if (r < 0) {
        request_free(request);
        return r;
    }
    return shrink_tell(lease, (uint32_t) keep, request, outcome);
}

_public_ int gmb_lease_shrink(gmb_lease *lease, uint64_t bytes)
{
    struct outcome outcome = OUTCOME_OK;
    int r = fork_guard_check(lease->session, &outcome);

    if (r == 0)
        r = lease_enter(lease, &outcome);
    if (r == 0) {
        (void) lease_shrink(lease, bytes, &outcome);
        lease_leave(lease);
    }
    return outcome_publish(&outcome);
}

static int lease_release(struct gmb_lease *lease, struct outcome *outcome)
{
    struct gmb_session *session = lease->session;
    struct request *request = NULL;
    int r = lease_empty(lease, 0, true, outcome);

    if (r == 0) {
        (void) pthread_mutex_lock(&session->lock);
        r = lease_farewell(lease, REQUEST_OWNER_WAITER, &request, outcome);
        (void) pthread_mutex_unlock(&session->lock);
    }
    lease_free(lease);
    return r == 0 ? lease_done_wait(session, request, outcome) : r;
}

/* False, with the lease left to the seat, while a grow of it isn't settled. */
static bool lease_release_now(struct gmb_lease *lease)
{
    bool now;

    (void) pthread_mutex_lock(&lease->session->lock);
    now = !lease->unsettled;
    lease->dropped = true;
    (void) pthread_mutex_unlock(&lease->session->lock);
    return now;
}

_public_ int gmb_lease_release(gmb_lease *lease)
{
    struct outcome outcome = OUTCOME_OK;
    int r;

    if (lease == NULL)
        return 0;
    r = fork_guard_check(lease->session, &outcome);
    if (r == 0)
        r = lease_enter(lease, &outcome);
    if (r == 0) {
        (void) lease_release(lease, &outcome);
    } else if (r == GMB_E_TIMED_OUT && lease_release_now(lease)) {
        /* Settled between the two looks. */
        outcome = OUTCOME_OK;
        (void) lease_release(lease, &outcome);
    }
    return outcome_publish(&outcome);
}

_public_ int gmb_lease_lost(const gmb_lease *lease)
{
    return atomic_load(&lease->forfeit);
}

_public_ uint64_t gmb_lease_address(const gmb_lease *lease)
{
    return lease->address;
}

_public_ void *gmb_lease_context(const gmb_lease *lease)
{
    return lease->device->context;
}

_public_ uint64_t gmb_lease_bytes(const gmb_lease *lease)
{
    return atomic_load(&lease->chunks) * lease->chunk_bytes;
}

_public_ uint64_t gmb_lease_chunk_bytes(const gmb_lease *lease)
{
    return lease->chunk_bytes;
}

_public_ uint64_t gmb_lease_max_bytes(const gmb_lease *lease)
{
    return lease->reserved_bytes;
}
