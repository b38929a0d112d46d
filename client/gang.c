/*
 * The parts are granted one after the other, in the order in which they were asked for, and mapped
 * as they come. Only when the last one is there anybody gets to know an address; when something
 * fails before, every part is unmapped and given back.
 */
#include "client/gang.h"

#include <stdlib.h>

#include "base/clock.h"
#include "client/conclude.h"
#include "client/fork.h"
#include "client/grant.h"
#include "client/lease.h"
#include "client/request.h"
#include "client/take.h"
#include "client/wait.h"

int gang_transmit(struct conn *conn, const struct request *request)
{
    Gmb__ClientMessage message = GMB__CLIENT_MESSAGE__INIT;
    Gmb__GangRequest body;
    Gmb__GangPart parts[LIMIT_DEVICES], *pointers[LIMIT_DEVICES];

    for (size_t i = 0; i < request->part_count; i++) {
        struct request *part = request->parts[i];

        gmb__gang_part__init(&parts[i]);
        parts[i].device.data = part->lease->device->uuid.bytes;
        parts[i].device.len = UUID_BYTES;
        parts[i].bytes = part->bytes;
        parts[i].chunk_bytes = part->chunk_bytes;
        pointers[i] = &parts[i];
    }
    gmb__gang_request__init(&body);
    body.n_parts = request->part_count;
    body.parts = pointers;
    body.wait_ns = request->wait_ns;
    body.label = request->parts[0]->label;
    message.id = request->id;
    message.body_case = GMB__CLIENT_MESSAGE__BODY_GANG_REQUEST;
    message.gang_request = &body;
    return conn_send_consume(conn, &message.base, NULL);
}

int gang_grant_take(struct gmb_session *session, struct request *request, const Gmb__Grant *grant,
    struct fdset *fds, struct outcome *why)
{
    struct request *part = request->parts[request->part_at];
    int r;

    part->owner = request->owner;
    part->outcome = request->outcome;
    r = grant_part_take(session, part, grant, fds, why);
    if (r < 0)
        return r;
    request->outcome = part->outcome;
    request->deadline_ns = MAX(request->deadline_ns, part->deadline_ns);
    if (grant_complete(part) && ++request->part_at == request->part_count)
        request_answer(session, request);
    return 0;
}

void gang_disown(const struct request *request)
{
    for (size_t i = 0; i < request->part_count; i++)
        request->parts[i]->lease->known = false;
}

bool gang_rewind(struct gmb_session *session, struct request *request)
{
    bool undone = true;

    for (size_t i = 0; i < request->part_count; i++)
        undone = request_chunks_rewind(session, request->parts[i]) && undone;
    request->part_at = 0;
    return undone;
}

/* One lease comes to an end before anybody knew of it. */
static void part_undo_consume(struct gmb_session *session, struct request *part, bool granted)
{
    struct gmb_lease *lease = part->lease;

    conclude_undo_consume(session, part, granted);
    (void) lease_free(lease);
}

void gang_conclude_consume(struct gmb_session *session, struct request *request,
    struct gmb_lease **ret_leases, struct outcome *ret)
{
    bool granted = request->part_at == request->part_count;
    bool keep = request->owner != REQUEST_OWNER_NOBODY;

    *ret = request->outcome;
    for (size_t i = 0; keep && ret->code == 0 && i < request->part_count; i++)
        (void) conclude_enable(session, request->parts[i], ret);
    keep = keep && ret->code == 0;
    for (size_t i = 0; i < request->part_count; i++) {
        struct request *part = TAKE_PTR(request->parts[i]);

        if (!keep) {
            part_undo_consume(session, part, granted);
            continue;
        }
        ret_leases[i] = part->lease;
        atomic_store(&part->lease->chunks, part->total_chunks);
        lease_leave(part->lease);
        request_free(part);
    }
    request_free(request);
}

/* ------------------------------------------------------------------ the call */

/* Structures of another version of this header may be longer: the first one says how long. */
static const struct gmb_lease_params *params_at(const struct gmb_lease_params *params, size_t i)
{
    return (const void *) ((const char *) params + i * params->size);
}

/* Every part with its lease. On failure the caller frees the request. */
static int parts_prepare(struct gmb_session *session, const struct gmb_lease_params *params,
    size_t n, struct request *gang, struct outcome *outcome)
{
    gang->parts = calloc(n, sizeof(struct request *));
    if (gang->parts == NULL)
        return outcome_set(outcome, GMB_E_INTERNAL, "no host memory for a request");
    for (size_t i = 0; i < n; i++) {
        int r = take_prepare(session, params_at(params, i), &gang->parts[i], outcome);

        if (r < 0)
            return r;
        gang->part_count++;
        /* The broker makes one device's chunks after the other, at worst. */
        gang->deadline_ns = i == 0
                                ? gang->parts[0]->deadline_ns
                                : add_saturate(gang->deadline_ns, take_creation_ns(gang->parts[i]));
    }
    gang->wait_ns = params->wait_ns;
    return 0;
}

/* Nothing has been asked for: the leases are empty. */
static void parts_drop(struct request *gang)
{
    for (size_t i = 0; i < gang->part_count; i++)
        (void) lease_free(gang->parts[i]->lease);
    request_free(gang);
}

static int gang_begin(struct gmb_session *session, const struct gmb_lease_params *params, size_t n,
    struct request **ret, struct outcome *outcome)
{
    struct request *gang;
    int r;

    if (n == 0 || n > LIMIT_DEVICES)
        return outcome_set(outcome, GMB_E_INVALID, "a gang has 1 to %d parts", LIMIT_DEVICES);
    if (params == NULL || params->size < sizeof(*params))
        return outcome_set(outcome, GMB_E_INVALID, "params.size must be sizeof the structure");
    gang = request_new(REQUEST_GANG, REQUEST_OWNER_WAITER);
    if (gang == NULL)
        return outcome_set(outcome, GMB_E_INTERNAL, "no host memory for a request");
    r = parts_prepare(session, params, n, gang, outcome);
    if (r == 0) {
        (void) pthread_mutex_lock(&session->lock);
        r = request_submit(session, gang, outcome);
        (void) pthread_mutex_unlock(&session->lock);
    }
    if (r < 0) {
        parts_drop(gang);
        return r;
    }
    *ret = gang;
    return 0;
}

_public_ int gmb_lease_gang(
    gmb_session *session, const struct gmb_lease_params *params, size_t n, gmb_lease **ret_leases)
{
    struct outcome outcome = OUTCOME_OK;
    struct gmb_lease *leases[LIMIT_DEVICES];
    struct request *request = NULL;
    int r = fork_guard_check(session, &outcome);

    if (r == 0)
        r = gang_begin(session, params, n, &request, &outcome);
    if (r == 0)
        r = request_await(session, request, &outcome);
    if (r == 0)
        gang_conclude_consume(session, request, leases, &outcome);
    for (size_t i = 0; r == 0 && outcome.code == 0 && i < n; i++)
        ret_leases[i] = leases[i];
    return outcome_publish(&outcome);
}
