/*
 * One frame at a time. The fds of a frame live in the broker from their export to their sendmsg(2),
 * which is in the same call: what can't be sent is closed and exported again when it can.
 */
#include "daemon/grant.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "daemon/broker.h"
#include "daemon/request.h"
#include "daemon/segment_request.h"
#include "daemon/segment_tell.h"

/* Leases of at most so many chunks are worth it: one must not push out all the others' fds. */
#define SPARES_GRANT (EXECUTOR_SPARES / 4)

int grant_add(struct session *session, const struct core_action *action)
{
    struct grant *grant = malloc(sizeof(*grant));

    if (grant == NULL)
        return -ENOMEM;
    *grant = (struct grant){
        .request = action->request,
        .lease = action->grant.lease,
        .next = action->grant.first,
        .end = action->grant.first + action->grant.count,
        .total = action->grant.first + action->grant.count,
        .read_only = segment_read_only(session, action->grant.lease),
        .last = action->grant.part + 1 == action->grant.parts,
    };
    list_init(&grant->link);
    list_append(&session->grants, &grant->link);
    return 0;
}

static void grant_remove(struct grant *grant)
{
    list_remove(&grant->link);
    free(grant);
}

bool grant_pending(const struct session *session, core_id lease)
{
    list_for_each(grant, &session->grants, struct grant, link)
    {
        if (grant->lease == lease)
            return true;
    }
    return false;
}

void grant_remove_lease(struct session *session, core_id lease)
{
    list_for_each_safe(grant, &session->grants, struct grant, link)
    {
        if (grant->lease == lease)
            grant_remove(grant);
    }
}

void grant_remove_all(struct session *session)
{
    list_for_each_safe(grant, &session->grants, struct grant, link) grant_remove(grant);
}

/* What the chunks of one frame are sent as. */
struct parcel {
    Gmb__Chunk chunks[LIMIT_FRAME_FDS], *pointers[LIMIT_FRAME_FDS];
    struct gpu_shareable shareables[LIMIT_FRAME_FDS]; /* fds are in `fds` */
    size_t count;
    struct fdset fds;
};

/* An fd that there is no room for is closed: -EMSGSIZE. */
static int parcel_add(struct parcel *parcel, uint32_t number, uint32_t generation,
    const struct gpu_shareable *shareable)
{
    size_t i = parcel->count;
    Gmb__Chunk *chunk = parcel->pointers[i] = &parcel->chunks[i];
    int r = 0;

    gmb__chunk__init(chunk);
    chunk->number = number;
    chunk->generation = generation;
    parcel->shareables[i] = *shareable;
    if (shareable->type == GPU_HANDLE_IPC) {
        chunk->ipc_handle.data = parcel->shareables[i].ipc_token;
        chunk->ipc_handle.len = GPU_IPC_TOKEN_SIZE;
    } else {
        r = fdset_consume(&parcel->fds, shareable->fd);
    }
    if (r == 0)
        parcel->count++;
    return r;
}

/* Exports the next chunks, as many as one frame takes. */
static int chunks_export(struct session *session, const struct grant *grant, struct parcel *parcel,
    char reason[LIMIT_TEXT_BYTES])
{
    struct broker *broker = session->broker;
    uint32_t count = MIN(grant->end - grant->next, (uint32_t) LIMIT_FRAME_FDS);

    for (uint32_t i = 0; i < count; i++) {
        struct gpu_shareable shareable;
        struct gpu_error error = {0};
        uint32_t number, generation;
        int r = -ESTALE;

        if (core_lease_chunk(broker->core, grant->lease, grant->next + i, &number, &generation))
            r = executor_export(broker->executor, number, generation, &shareable, &error);
        /* Chunks that got their fd go out now; the others follow when there are fds again. */
        if ((r == -EMFILE || r == -ENFILE) && i > 0)
            return 0;
        if (r == -EMFILE || r == -ENFILE)
            return -EAGAIN;
        if (r < 0) {
            (void) snprintf(reason, LIMIT_TEXT_BYTES,
                "chunk %u of lease %llu can't be exported: %.150s", grant->next + i,
                (unsigned long long) grant->lease, error.text);
            return r;
        }
        r = parcel_add(parcel, number, generation, &shareable);
        if (r < 0)
            return r;
    }
    return 0;
}

/*
 * Small leases come and go, and the same chunks with them. The peer has its answer by now, so it
 * costs nobody's time to make the fds of their next grant.
 */
static void spares_make(struct executor *executor, const Gmb__Grant *grant)
{
    for (size_t i = 0; grant->total_chunks <= SPARES_GRANT && i < grant->n_chunks; i++)
        executor_spare(executor, grant->chunks[i]->number, grant->chunks[i]->generation);
}

static int frame_send(struct session *session, struct grant *grant,
    const struct core_lease_view *lease, char reason[LIMIT_TEXT_BYTES])
{
    Gmb__BrokerMessage message = GMB__BROKER_MESSAGE__INIT;
    Gmb__Grant body = GMB__GRANT__INIT;
    struct parcel parcel; /* some of it is filled: most frames have few chunks */
    int r;

    parcel.count = parcel.fds.count = 0;
    r = chunks_export(session, grant, &parcel, reason);
    if (r < 0) {
        fdset_close(&parcel.fds);
        return r;
    }
    body.lease = grant->lease;
    body.first_chunk = grant->next;
    body.total_chunks = grant->total;
    body.chunk_bytes = lease->chunk_bytes;
    body.handle_type = (Gmb__HandleType) session->broker->devices[lease->device].sharing;
    body.n_chunks = parcel.count;
    body.chunks = parcel.pointers;
    body.device.data = session->broker->devices[lease->device].uuid.bytes;
    body.device.len = UUID_BYTES;
    body.read_only = grant->read_only;
    message.id = grant->request < FRAME_BROKER_ID ? grant->request : 0;
    message.body_case = GMB__BROKER_MESSAGE__BODY_GRANT;
    message.grant = &body;
    r = conn_try_send_consume(session->conn, &message.base, &parcel.fds);
    if (r == -EAGAIN) {
        session->blocked = true;
        return 0;
    }
    if (r == -ETOOMANYREFS || r == -ENOBUFS)
        return -EAGAIN;
    if (r < 0) {
        (void) snprintf(reason, LIMIT_TEXT_BYTES, "a grant can't be sent: %s", strerror(-r));
        return r;
    }
    grant->next += (uint32_t) body.n_chunks;
    spares_make(session->broker->executor, &body);
    return 0;
}

int grant_pump(struct session *session, char reason[LIMIT_TEXT_BYTES])
{
    struct grant *grant = list_first(&session->grants, struct grant, link);
    struct core_lease_view lease;
    struct request *request;
    int r;

    if (grant == NULL || session->blocked || conn_queued(session->conn) > 0)
        return 0;
    if (!core_lease_get(session->broker->core, grant->lease, &lease)) {
        (void) snprintf(reason, LIMIT_TEXT_BYTES, "lease %llu vanished while it was being sent",
            (unsigned long long) grant->lease);
        return -ESTALE;
    }
    r = frame_send(session, grant, &lease, reason);
    if (r < 0)
        return r;
    if (grant->next == grant->end) {
        request = grant->last ? request_find(session, grant->request) : NULL;
        if (request != NULL)
            request_remove(session, request);
        grant_remove(grant);
        if (lease.kind == CORE_LEASE_SEGMENT)
            segment_reader_tell(session, lease.id);
    }
    return 0;
}
