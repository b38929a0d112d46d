/*
 * All or nothing. Between the first part of a grant and here nobody but the library knows the
 * addresses, so that undoing needs no synchronisation with the device.
 *
 * A request that has to be given back turns into the Shrink or Release that says so: there is
 * nothing to allocate, so nothing that could fail.
 */
#include "client/conclude.h"

#include "client/gang.h"
#include "client/grant.h"
#include "client/lease.h"
#include "client/quarantine.h"
#include "client/request.h"
#include "client/revoke.h"

int conclude_enable(
    struct gmb_session *session, const struct request *request, struct outcome *outcome)
{
    const struct gmb_lease *lease = request->lease;
    struct gpu_error error = {0};
    int r = lease_ops(lease)->span_set_access(session->gpu, lease->device->gpu,
        lease->address + request->first_chunk * lease->chunk_bytes,
        request->mapped_chunks * lease->chunk_bytes,
        lease->read_only ? GPU_ACCESS_READ : GPU_ACCESS_READ_WRITE, &error);

    return r == 0 ? 0 : outcome_set(outcome, GMB_E_GPU, "%s", error.text);
}

bool request_chunks_undo(struct gmb_session *session, const struct request *request)
{
    struct gmb_lease *lease = request->lease;
    uint64_t at = lease->address + request->first_chunk * lease->chunk_bytes;
    uint64_t bytes = request->mapped_chunks * lease->chunk_bytes;

    if (bytes > 0 && lease_ops(lease)->span_unmap(session->gpu, at, bytes, NULL) != 0)
        return false;
    if (request_makes_lease(request))
        lease_range_free(lease);
    return true;
}

bool request_chunks_rewind(struct gmb_session *session, struct request *request)
{
    bool undone = request->lease == NULL || request_chunks_undo(session, request);

    if (request->kind == REQUEST_SEGMENT) {
        request->lease->read_only = false;
        if (request->bytes == 0)
            request->lease->wanted_bytes = 0;
    }
    request->total_chunks = request->granted_chunks = request->mapped_chunks = 0;
    return undone;
}

/* Consumes the request: as the message that gives its chunks back. */
static void give_back_consume(
    struct gmb_session *session, struct request *request, const struct gmb_lease *lease)
{
    struct outcome ignored;

    request->target = lease->id;
    request->keep_chunks = request->first_chunk;
    request->kind = request_makes_lease(request) ? REQUEST_RELEASE : REQUEST_SHRINK;
    request->owner = REQUEST_OWNER_NOBODY;
    request->sent = request->answered = false;
    request->lease = NULL;
    request->outcome = OUTCOME_OK;
    if (request_submit(session, request, &ignored) < 0)
        request_free(request);
}

void conclude_undo_consume(struct gmb_session *session, struct request *request, bool granted)
{
    bool undone = request_chunks_undo(session, request);

    (void) pthread_mutex_lock(&session->lock);
    if (undone && granted)
        give_back_consume(session, request, request->lease);
    else
        request_free(request);
    (void) pthread_mutex_unlock(&session->lock);
}

/* An arena or a watch that came when nobody waited for it any more. */
static void undo_consume(
    struct gmb_session *session, struct request *request, enum request_kind kind, uint64_t target)
{
    struct outcome ignored;

    close_fd(&request->table_fd);
    close_fd(&request->event_fd);
    request->kind = kind;
    request->target = target;
    request->sent = request->answered = false;
    (void) pthread_mutex_lock(&session->lock);
    if (request_submit(session, request, &ignored) < 0)
        request_free(request);
    (void) pthread_mutex_unlock(&session->lock);
}

/* A grow that nobody waits for leaves its lease as it was, or ends it if it was released. */
static void grow_settle(struct gmb_session *session, struct gmb_lease *lease)
{
    lease->unsettled = false;
    if (!lease->dropped)
        return;
    (void) pthread_mutex_unlock(&session->lock);
    lease_drop_consume(lease);
    (void) pthread_mutex_lock(&session->lock);
}

void request_conclude_consume(
    struct gmb_session *session, struct request *request, struct conclusion *ret)
{
    struct gmb_lease *lease = request->lease;
    enum request_kind kind = request->kind;
    bool nobody = request->owner == REQUEST_OWNER_NOBODY;
    bool granted, undone = false;

    ret->outcome = request->outcome;
    ret->lease = lease;
    if (request->kind == REQUEST_GANG) {
        gang_conclude_consume(session, request, NULL, &ret->outcome);
        return;
    }
    if (request_makes_arena(request) && request->arena_id != 0) {
        undo_consume(session, request, REQUEST_RELEASE, request->arena_id);
        return;
    }
    if (request->kind == REQUEST_WATCH && request->event_fd >= 0) {
        undo_consume(session, request, REQUEST_UNWATCH, request->target);
        return;
    }
    if (!request_takes_memory(request)) {
        request_free(request);
        return;
    }
    granted = grant_complete(request);
    if (ret->outcome.code == 0 && !nobody)
        (void) conclude_enable(session, request, &ret->outcome);
    if (ret->outcome.code != 0 || nobody)
        undone = request_chunks_undo(session, request);

    (void) pthread_mutex_lock(&session->lock);
    lease->busy = lease->busy && nobody;
    revoke_look(session);
    quarantine_look(session);
    if (ret->outcome.code == 0 && !nobody)
        atomic_store(&lease->chunks, request->total_chunks);
    if (undone && granted) {
        lease->held = request->first_chunk;
        lease->known = lease->known && kind != REQUEST_LEASE;
        give_back_consume(session, request, lease);
    } else {
        request_free(request);
    }
    if (kind == REQUEST_GROW && nobody)
        grow_settle(session, lease);
    (void) pthread_mutex_unlock(&session->lock);

    if ((kind == REQUEST_LEASE || kind == REQUEST_SEGMENT) && (ret->outcome.code != 0 || nobody))
        ret->lease = lease_free(lease);
}
