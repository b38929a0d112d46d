/*
 * Sealing: the mover sums the segment up, its steward becomes a holder, and only then is it what
 * others may read. It is written down before its writer hears of it.
 */
#include <errno.h>

#include "daemon/broker.h"
#include "daemon/message.h"
#include "daemon/segment_request.h"
#include "daemon/segment_walk.h"

/* The request of this connection that waits for the seal; NULL: an earlier one's, or none's. Its
 * number alone doesn't tell: a connection that came after has numbers of its own. */
static struct request *seal_request(const struct session *session, const struct segment *segment)
{
    struct request *request = request_find(session, segment->request);
    struct core_lease_view view;

    if (request == NULL || request->type != REQUEST_SEAL)
        return NULL;
    if (request->lease == segment->lease)
        return request;
    /* The segment forgets its lease when that has ended. */
    return segment->lease == 0 &&
                   !core_lease_get(segment->space->broker->core, request->lease, &view)
               ? request
               : NULL;
}

/* Ends the request that asked for it: the session to answer; NULL when nobody is there. */
static struct session *seal_asker(const struct segment *segment)
{
    const struct client *client = client_find(segment->space->broker, segment->writer);
    struct session *session = client != NULL ? client->session : NULL;
    struct request *request = session != NULL ? seal_request(session, segment) : NULL;

    if (request == NULL)
        return NULL;
    request_remove(session, request);
    return session;
}

void segment_seal_abandon(struct segment *segment)
{
    struct session *session = seal_asker(segment);

    if (session != NULL)
        message_refuse_plainly(session, segment->request, GMB_STATUS_CANCELLED,
            "the segment was given back before it was sealed");
}

void segment_seal_answer(struct segment *segment, int error, const char *text)
{
    struct broker *broker = segment->space->broker;
    struct session *session = seal_asker(segment);
    const struct core_action *refusal = &broker->segments->refusal;
    uint64_t now_ns = clock_now(broker->clock);
    bool sealed = error == 0 && segment_steward_attach(segment);

    if (sealed) {
        segment->writer = 0;
        segment->verified_ns = segment->sums != NULL ? now_ns : CLOCK_NEVER;
        segment->verify_ns = add_saturate(now_ns, broker->config->segment_verify_ns);
        segment->summed = segment->sums != NULL;
        broker->hosting[segment->device]->segment_count += segment->summed;
        segment_set_state(segment, SEGMENT_SEALED);
    } else {
        segment_set_state(segment, SEGMENT_WRITING);
        free(segment->sums);
        segment->sums = NULL;
    }
    if (session == NULL)
        return;
    if (sealed)
        message_done(session, segment->request);
    else if (error == 0)
        message_refuse(session, segment->request, refusal->refuse.status, refusal->refuse.limit, 0,
            refusal->refuse.available_bytes, refusal->refuse.text);
    else
        message_refuse(session, segment->request,
            error == -EAGAIN ? GMB_STATUS_EXHAUSTED : GMB_STATUS_GPU, GMB_LIMIT_DEVICE, 0, 0, text);
}

static bool seal_register(struct session *session, const struct segment *segment, uint64_t id)
{
    const struct request like = {.id = id, .type = REQUEST_SEAL, .lease = segment->lease};

    return request_register(session, &like, "");
}

/* The mover is at it: for a connection of the writer's that has ended, or for another request. */
static void seal_again(struct session *session, struct segment *segment, uint64_t id)
{
    if (seal_request(session, segment) != NULL)
        message_refuse_plainly(
            session, id, GMB_STATUS_INVALID, "the segment is being sealed already");
    else if (seal_register(session, segment, id))
        segment->request = id;
}

void on_segment_seal(struct session *session, const Gmb__ClientMessage *message)
{
    core_id lease = message->segment_seal->lease;
    struct segment *segment = segment_held(session, lease);

    if (segment == NULL) {
        message_refuse_plainly(
            session, message->id, GMB_STATUS_NOT_FOUND, "the client has no such segment");
        return;
    }
    if (segment->state == SEGMENT_SEALING) {
        seal_again(session, segment, message->id);
        return;
    }
    if (segment->state != SEGMENT_WRITING) {
        message_done(session, message->id);
        return;
    }
    segment->sums = calloc(segment->pieces, sizeof(segment->sums[0]));
    if (segment->sums == NULL) {
        message_refuse_plainly(
            session, message->id, GMB_STATUS_INTERNAL, "the broker has no host memory");
        return;
    }
    if (!seal_register(session, segment, message->id)) {
        free(segment->sums);
        segment->sums = NULL;
        return;
    }
    segment->request = message->id;
    segment_set_state(segment, SEGMENT_SEALING);
    if (segment_walk_start(segment, SEGMENT_WALK_SEAL))
        return;
    /* Without a mover there are no checksums. */
    free(segment->sums);
    segment->sums = NULL;
    segment_seal_answer(segment, 0, "");
}
