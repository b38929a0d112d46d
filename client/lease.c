/*
 * A lease is an address, a size of chunk and a count: the driver knows the mappings, the broker the
 * chunks. Whoever works on one marks it busy, so that driver calls need no lock.
 */
#include "client/lease.h"

#include <stdlib.h>

#include "client/lease_call.h"
#include "client/quarantine.h"
#include "client/request.h"
#include "client/revoke.h"

int lease_make(struct gmb_session *session, struct device *device, uint64_t wanted_bytes,
    struct gmb_lease **ret, struct outcome *outcome)
{
    struct gmb_lease *lease = calloc(1, sizeof(*lease));
    struct request *farewell = request_new(REQUEST_RELEASE, REQUEST_OWNER_NOBODY);

    if (lease == NULL || farewell == NULL) {
        free(lease);
        request_free(farewell);
        return outcome_set(outcome, GMB_E_INTERNAL, "no host memory for a lease");
    }
    list_init(&lease->link);
    lease->session = session;
    lease->device = device;
    lease->farewell = farewell;
    lease->wanted_bytes = wanted_bytes;
    lease->busy = true;
    (void) pthread_mutex_lock(&session->lock);
    list_append(&session->leases, &lease->link);
    (void) pthread_mutex_unlock(&session->lock);
    *ret = lease;
    return 0;
}

struct gmb_lease *lease_free(struct gmb_lease *lease)
{
    struct gmb_session *session;

    if (lease == NULL)
        return NULL;
    session = lease->session;
    (void) pthread_mutex_lock(&session->lock);
    list_remove(&lease->link);
    revoke_forget(lease);
    quarantine_forget(lease);
    lease_call_quiet(session, &session->revoke.now, lease);
    lease_call_quiet(session, &session->quarantine.now, lease);
    (void) pthread_mutex_unlock(&session->lock);
    request_free(lease->farewell);
    free(lease);
    return NULL;
}

struct gmb_lease *lease_by_id(const struct gmb_session *session, uint64_t id)
{
    list_for_each(lease, &session->leases, struct gmb_lease, link)
    {
        if (id != 0 && lease->id == id && !lease->dropped)
            return lease;
    }
    return NULL;
}

int lease_enter(struct gmb_lease *lease, struct outcome *outcome)
{
    struct gmb_session *session = lease->session;
    int r = 0;

    (void) pthread_mutex_lock(&session->lock);
    if (lease->busy)
        r = outcome_set(outcome, GMB_E_INVALID, "another call is at work on this lease");
    else if (lease->unsettled)
        r = outcome_set(outcome, GMB_E_TIMED_OUT,
            "the broker has not yet answered an earlier gmb_lease_grow() of this lease");
    else
        lease->busy = true;
    (void) pthread_mutex_unlock(&session->lock);
    return r;
}

void lease_leave(struct gmb_lease *lease)
{
    struct gmb_session *session = lease->session;

    (void) pthread_mutex_lock(&session->lock);
    lease->busy = false;
    revoke_look(session);
    quarantine_look(session);
    (void) pthread_mutex_unlock(&session->lock);
}

void lease_range_free(struct gmb_lease *lease)
{
    struct gpu *gpu = lease->session->gpu;

    if (lease->reserved_bytes == 0)
        return;
    /* A failure costs address space alone, and there is nobody to tell. A slab has its own. */
    if (!lease->device->slabs)
        (void) gpu->ops->range_free(gpu, lease->address, lease->reserved_bytes, NULL);
    lease->reserved_bytes = 0;
}

int lease_empty(struct gmb_lease *lease, uint32_t keep, bool last, struct outcome *outcome)
{
    struct gpu *gpu = lease->session->gpu;
    uint32_t chunks = atomic_load(&lease->chunks);
    struct gpu_error error = {0};
    int r = 0;

    if (keep < chunks) {
        r = gpu->ops->context_synchronize(gpu, lease->device->context, &error);
        if (r == 0)
            r = lease_ops(lease)->span_unmap(gpu, lease->address + keep * lease->chunk_bytes,
                (chunks - keep) * lease->chunk_bytes, &error);
        if (r != 0)
            return outcome_set(outcome, GMB_E_GPU, "%s", error.text);
        atomic_store(&lease->chunks, keep);
    }
    if (last)
        lease_range_free(lease);
    return 0;
}

/* What isn't mapped yet gets new memory, or can't be mapped. */
static void leases_lose(struct gmb_session *session, const struct uuid *only)
{
    list_for_each(lease, &session->leases, struct gmb_lease, link)
    {
        if (lease->device->slabs && lease->reserved_bytes > 0 &&
            (only == NULL || uuid_equal(&lease->device->uuid, only)))
            atomic_store(&lease->forfeit, true);
    }
}

void leases_lost_take(struct gmb_session *session, const Gmb__MemoryLost *told)
{
    struct uuid uuid;

    if (uuid_from_bytes(told->device.data, told->device.len, &uuid) == 0)
        leases_lose(session, &uuid);
}

void leases_lose_all(struct gmb_session *session)
{
    leases_lose(session, NULL);
}

int lease_farewell(struct gmb_lease *lease, enum request_owner owner, struct request **ret_request,
    struct outcome *outcome)
{
    struct request *request = lease->farewell;
    int r;

    lease->known = false;
    if (lease->lost) {
        *ret_request = NULL;
        return 0;
    }

    request->owner = owner;
    request->target = lease->id;
    r = request_submit(lease->session, request, outcome);
    if (r < 0)
        return r;
    lease->farewell = NULL;
    *ret_request = request;
    return 0;
}

void lease_drop_consume(struct gmb_lease *lease)
{
    struct gmb_session *session = lease->session;
    struct outcome ignored = OUTCOME_OK;
    struct request *request;

    /* What the driver doesn't unmap stays charged until this process ends: it still has it. */
    if (lease_empty(lease, 0, true, &ignored) == 0) {
        (void) pthread_mutex_lock(&session->lock);
        (void) lease_farewell(lease, REQUEST_OWNER_NOBODY, &request, &ignored);
        (void) pthread_mutex_unlock(&session->lock);
    }
    lease_free(lease);
}
