/*
 * One frame after the other: decode, find the request, apply. The broker is trusted with memory,
 * not with this process's life: whatever it sends is checked, and what makes no sense ends the
 * session.
 */
#include "client/receive.h"
#include "client/lease.h"

#include <errno.h>
#include <string.h>

#include "client/arena_fill.h"
#include "client/arena_serve.h"
#include "client/conclude.h"
#include "client/device.h"
#include "client/gang.h"
#include "client/grant.h"
#include "client/lease.h"
#include "client/news.h"
#include "client/quarantine.h"
#include "client/request.h"
#include "client/resume.h"
#include "client/revoke.h"

static void created_take(
    struct request *request, const Gmb__ArenaCreated *created, struct fdset *fds)
{
    request->arena_id = created->lease;
    request->arena_chunk_bytes = created->chunk_bytes;
    request->arena_page_bytes = created->page_bytes;
    request->arena_max_chunks = created->max_chunks;
    request->arena_shared = created->shared;
    request->arena_holder = created->holder;
    if (created->device.len == UUID_BYTES)
        memcpy(request->arena_device.bytes, created->device.data, UUID_BYTES);
    request->table_fd = fdset_take(fds, 0);
    request->event_fd = fdset_take(fds, 1);
}

/* Whether the kind of answer fits the request; what has no meaning for it is a breach. */
static int answer_take(struct gmb_session *session, struct request *request,
    const Gmb__BrokerMessage *message, struct fdset *fds, struct outcome *why)
{
    switch (message->body_case) {
    case GMB__BROKER_MESSAGE__BODY_GRANT:
        if (request->kind == REQUEST_GANG)
            return gang_grant_take(session, request, message->grant, fds, why);
        if (request_takes_memory(request))
            return grant_take(session, request, message->grant, fds, why);
        break;
    case GMB__BROKER_MESSAGE__BODY_ARENA_CREATED:
        if (!request_makes_arena(request))
            break;
        created_take(request, message->arena_created, fds);
        request->resumes = session->resumes;
        request_answer(session, request);
        return 0;
    case GMB__BROKER_MESSAGE__BODY_PRESSURE_WATCHING:
        if (request->kind != REQUEST_WATCH)
            break;
        request->target = message->pressure_watching->watch;
        request->event_fd = fdset_take(fds, 0);
        request->drops = session->drops;
        request_answer(session, request);
        return 0;
    case GMB__BROKER_MESSAGE__BODY_DONE:
        if (request_takes_memory(request) || request_makes_arena(request) ||
            request->kind == REQUEST_WATCH)
            break;
        if (request->kind == REQUEST_SUBSCRIBE)
            news_advice_overtake(session);
        request_answer(session, request);
        return 0;
    case GMB__BROKER_MESSAGE__BODY_ERROR:
        /* A grant that broke off: what came of it is taken back, and the broker knows. */
        (void) outcome_from_error(&request->outcome, message->error);
        if (request->outcome.code == GMB_E_PROTOCOL) {
            *why = request->outcome;
            return why->code;
        }
        request_answer(session, request);
        return 0;
    case GMB__BROKER_MESSAGE__BODY_WELCOME:
    case GMB__BROKER_MESSAGE__BODY_CHUNK_RECALL:
    case GMB__BROKER_MESSAGE__BODY_RESUMED:
    case GMB__BROKER_MESSAGE__BODY_LEASE_REVOKE:
    case GMB__BROKER_MESSAGE__BODY_PRESSURE:
    case GMB__BROKER_MESSAGE__BODY_ADVICE:
    case GMB__BROKER_MESSAGE__BODY_DEVICE_FAILED:
    case GMB__BROKER_MESSAGE__BODY_ENDING:
    case GMB__BROKER_MESSAGE__BODY_MEMORY_LOST:
    case GMB__BROKER_MESSAGE__BODY_SEGMENT_QUARANTINED:
    case GMB__BROKER_MESSAGE__BODY__NOT_SET:
    case _GMB__BROKER_MESSAGE__BODY__CASE_IS_INT_SIZE:
        break;
    }
    return outcome_set(why, GMB_E_PROTOCOL,
        "the broker answered request %llu with a message of the wrong kind",
        (unsigned long long) request->id);
}

static int event_take(struct gmb_session *session, const Gmb__BrokerMessage *message,
    struct fdset *fds, struct outcome *why)
{
    if (message->body_case == GMB__BROKER_MESSAGE__BODY_GRANT)
        return arena_grant_take(session, message->grant, fds, why);
    if (message->body_case == GMB__BROKER_MESSAGE__BODY_DEVICE_FAILED) {
        device_failed_take(session, message->device_failed);
        return 0;
    }
    if (message->body_case == GMB__BROKER_MESSAGE__BODY_MEMORY_LOST) {
        leases_lost_take(session, message->memory_lost);
        return 0;
    }
    if (message->body_case == GMB__BROKER_MESSAGE__BODY_SEGMENT_QUARANTINED)
        return quarantine_take(session, message->segment_quarantined, why);
    if (message->body_case == GMB__BROKER_MESSAGE__BODY_CHUNK_RECALL)
        return arena_recall_take(session, message->chunk_recall, why);
    if (message->body_case == GMB__BROKER_MESSAGE__BODY_LEASE_REVOKE)
        return revoke_take(session, message->lease_revoke, why);
    if (message->body_case == GMB__BROKER_MESSAGE__BODY_PRESSURE)
        return news_pressure_take(session, message->pressure, why);
    if (message->body_case == GMB__BROKER_MESSAGE__BODY_ADVICE)
        return news_advice_take(session, message->advice, why);
    if (message->body_case == GMB__BROKER_MESSAGE__BODY_ENDING) {
        session->ending = true;
        return 0;
    }
    if (message->body_case != GMB__BROKER_MESSAGE__BODY_ERROR)
        return 0; /* a reply in the place of an event: nobody waits for it */
    (void) outcome_from_error(why, message->error);
    return why->code;
}

static int message_take(struct gmb_session *session, const Gmb__BrokerMessage *message,
    struct fdset *fds, struct outcome *why)
{
    struct request *request;

    if (session->phase != SESSION_READY)
        return resume_take(session, message, fds, why);
    if (message->id == 0)
        return event_take(session, message, fds, why);
    request = request_find(session, message->id);
    if (request == NULL)
        return outcome_set(why, GMB_E_PROTOCOL,
            "the broker answered request %llu, which nobody made",
            (unsigned long long) message->id);
    return answer_take(session, request, message, fds, why);
}

static int frame_take(struct gmb_session *session, const uint8_t *bytes, size_t size,
    struct fdset *fds, struct outcome *why)
{
    Gmb__BrokerMessage *message;
    int r = frame_decode_broker(bytes, size, &message);

    if (r == -ENOMEM)
        return outcome_set(why, GMB_E_INTERNAL, "no host memory for a message of the broker's");
    if (r < 0)
        return outcome_set(
            why, GMB_E_PROTOCOL, "the broker sent %zu bytes that are no message", size);
    if (frame_broker_foreign(message))
        r = 0; /* only a later version knows how many fds belong to it */
    else if (frame_broker_fds(message) != fds->count &&
             (message->body_case != GMB__BROKER_MESSAGE__BODY_WELCOME || fds->count > 0))
        r = outcome_set(why, GMB_E_PROTOCOL, "the broker sent %zu fds where %zu belong", fds->count,
            frame_broker_fds(message));
    else
        r = message_take(session, message, fds, why);
    frame_message_free(&message->base);
    return r;
}

static void settle(struct gmb_session *session)
{
    while (!list_empty(&session->settling)) {
        struct request *request = list_first(&session->settling, struct request, link);
        struct conclusion ignored;

        list_remove(&request->link);
        (void) pthread_mutex_unlock(&session->lock);
        if (request->kind == REQUEST_FILL)
            arena_fill_conclude_consume(session, request);
        else
            request_conclude_consume(session, request, &ignored);
        (void) pthread_mutex_lock(&session->lock);
    }
}

void session_receive(struct gmb_session *session)
{
    for (unsigned i = 0; i < LIMIT_READ_BURST && session->conn != NULL; i++) {
        _cleanup_fdset_ struct fdset fds = FDSET_EMPTY;
        struct outcome why = OUTCOME_OK;
        const uint8_t *bytes;
        size_t size;
        int r = conn_receive(session->conn, &bytes, &size, &fds);

        if (r == -EAGAIN)
            break;
        if (r == -ECONNRESET)
            outcome_set(&why, GMB_E_DISCONNECTED,
                session->ending ? "the broker was ended in order"
                                : "the broker closed the connection");
        else if (r == -EBADMSG)
            outcome_set(&why, GMB_E_PROTOCOL, "the broker sent a frame that is too large");
        else if (r < 0)
            outcome_set_errno(&why, r, "reading from the broker failed");
        else
            (void) frame_take(session, bytes, size, &fds, &why);
        if (why.code != 0)
            session_break(session, &why);
    }
    settle(session);
    arenas_serve(session);
}
