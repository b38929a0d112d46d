/*
 * A segment is a lease whose request names it: the grant says whether this process is to write it.
 * Sealing changes what the mapping allows before the broker hears of it, and back if it says no.
 */
#include "client/segment.h"

#include <string.h>

#include "base/clock.h"
#include "client/ask.h"
#include "client/conclude.h"
#include "client/device.h"
#include "client/fork.h"
#include "client/lease.h"
#include "client/request.h"
#include "client/take.h"
#include "client/text.h"
#include "client/wait.h"

/* ------------------------------------------------------------------ messages */

int segment_transmit(struct conn *conn, struct request *request)
{
    Gmb__ClientMessage message = GMB__CLIENT_MESSAGE__INIT;
    Gmb__SegmentRequest asking;
    Gmb__SegmentSeal seal = GMB__SEGMENT_SEAL__INIT;
    Gmb__SegmentRemove removing;

    message.id = request->id;
    if (request->kind == REQUEST_SEGMENT) {
        gmb__segment_request__init(&asking);
        asking.device.data = request->lease->device->uuid.bytes;
        asking.device.len = UUID_BYTES;
        asking.name = request->label;
        asking.bytes = request->bytes;
        asking.chunk_bytes = request->chunk_bytes;
        asking.wait_ns = request->wait_ns;
        asking.group = request->shared;
        message.body_case = GMB__CLIENT_MESSAGE__BODY_SEGMENT_REQUEST;
        message.segment_request = &asking;
    } else if (request->kind == REQUEST_SEAL) {
        seal.lease = request->target;
        message.body_case = GMB__CLIENT_MESSAGE__BODY_SEGMENT_SEAL;
        message.segment_seal = &seal;
    } else {
        gmb__segment_remove__init(&removing);
        removing.device.data = (uint8_t *) (uintptr_t) request->device->uuid.bytes;
        removing.device.len = UUID_BYTES;
        removing.name = request->label;
        removing.group = request->shared;
        message.body_case = GMB__CLIENT_MESSAGE__BODY_SEGMENT_REMOVE;
        message.segment_remove = &removing;
    }
    return conn_send_consume(conn, &message.base, NULL);
}

/* ------------------------------------------------------------------ taking */

/* A name is taken as it is or not at all: two that are cut alike would be one. */
static int params_check(const struct gmb_segment_params *params, struct outcome *outcome)
{
    char clean[LIMIT_NAME_BYTES + 1];

    if (params == NULL || params->size < sizeof(*params))
        return outcome_set(outcome, GMB_E_INVALID, "params.size must be sizeof the structure");
    text_clean(clean, sizeof(clean), params->name);
    if (clean[0] == '\0' || strcmp(clean, params->name) != 0)
        return outcome_set(outcome, GMB_E_INVALID,
            "the name of a segment has 1 to %d bytes, UTF-8 without controls", LIMIT_NAME_BYTES);
    return 0;
}

static int segment_prepare(struct gmb_session *session, const struct gmb_segment_params *params,
    bool create, const struct audience *audience, struct request **ret, struct outcome *outcome)
{
    struct gmb_lease *lease;
    struct device *device;
    int r = params_check(params, outcome);

    if (r == 0)
        r = device_find(session, params->device, &device, outcome);
    if (r < 0)
        return r;
    if (create && params->bytes == 0)
        return outcome_set(outcome, GMB_E_INVALID, "a segment of 0 bytes makes no sense");
    if (params->chunk_bytes % device->info.granularity_bytes != 0)
        return outcome_set(outcome, GMB_E_INVALID, "chunk_bytes is no multiple of %llu",
            (unsigned long long) device->info.granularity_bytes);
    r = device_retain(session, device, outcome);
    if (r == 0)
        r = lease_make(session, device, create ? params->bytes : 0, &lease, outcome);
    if (r < 0)
        return r;
    lease->segment = true;
    r = take_request(REQUEST_SEGMENT, audience, lease, create ? params->bytes : 0, params->wait_ns,
        ret, outcome);
    if (r < 0) {
        lease_free(lease);
        return r;
    }
    (*ret)->chunk_bytes = create ? params->chunk_bytes : 0;
    (*ret)->shared = params->group != 0;
    text_clean((*ret)->label, sizeof((*ret)->label), params->name);
    return 0;
}

static int segment_take(struct gmb_session *session, const struct gmb_segment_params *params,
    bool create, struct gmb_lease **ret)
{
    struct conclusion conclusion = {.outcome = OUTCOME_OK};
    struct request *request;
    int r = fork_guard_check(session, &conclusion.outcome);

    if (r == 0)
        r = segment_prepare(session, params, create, &take_waiter, &request, &conclusion.outcome);
    if (r == 0)
        r = take_submit_consume(session, request, NULL, &conclusion.outcome);
    if (r == 0)
        r = take_finish_consume(session, request, &conclusion);
    if (r < 0)
        return outcome_publish(&conclusion.outcome);
    *ret = conclusion.lease;
    return 0;
}

static int segment_take_async(struct gmb_session *session, const struct gmb_segment_params *params,
    bool create, const struct audience *audience, uint64_t *ret_request)
{
    struct outcome outcome = OUTCOME_OK;
    struct request *request;
    int r = fork_guard_check(session, &outcome);

    if (r == 0 && audience->done == NULL)
        r = outcome_set(&outcome, GMB_E_INVALID, "done is NULL");
    if (r == 0)
        r = segment_prepare(session, params, create, audience, &request, &outcome);
    if (r == 0)
        (void) take_submit_consume(session, request, ret_request, &outcome);
    return outcome_publish(&outcome);
}

_public_ int gmb_segment_create(
    gmb_session *session, const struct gmb_segment_params *params, gmb_lease **ret_lease)
{
    return segment_take(session, params, true, ret_lease);
}

_public_ int gmb_segment_open(
    gmb_session *session, const struct gmb_segment_params *params, gmb_lease **ret_lease)
{
    return segment_take(session, params, false, ret_lease);
}

_public_ int gmb_segment_create_async(gmb_session *session, const struct gmb_segment_params *params,
    gmb_lease_fn done, void *user, uint64_t *ret_request)
{
    const struct audience audience = {REQUEST_OWNER_CALLBACK, done, user};

    return segment_take_async(session, params, true, &audience, ret_request);
}

_public_ int gmb_segment_open_async(gmb_session *session, const struct gmb_segment_params *params,
    gmb_lease_fn done, void *user, uint64_t *ret_request)
{
    const struct audience audience = {REQUEST_OWNER_CALLBACK, done, user};

    return segment_take_async(session, params, false, &audience, ret_request);
}

_public_ int gmb_segment_writable(const gmb_lease *lease)
{
    return lease->segment && !lease->read_only;
}

/* ------------------------------------------------------------------ sealing */

static int access_set(struct gmb_lease *lease, enum gpu_access access, struct outcome *outcome)
{
    struct gpu *gpu = lease->session->gpu;
    struct gpu_error error = {0};
    int r = gpu->ops->span_set_access(
        gpu, lease->device->gpu, lease->address, gmb_lease_bytes(lease), access, &error);

    return r == 0 ? 0 : outcome_set(outcome, GMB_E_GPU, "%s", error.text);
}

static int writes_wait(struct gmb_lease *lease, struct outcome *outcome)
{
    struct gpu *gpu = lease->session->gpu;
    struct gpu_error error = {0};
    int r = gpu->ops->context_synchronize(gpu, lease->device->context, &error);

    return r == 0 ? 0 : outcome_set(outcome, GMB_E_GPU, "%s", error.text);
}

static int seal_ask(struct gmb_lease *lease, uint64_t wait_ns, struct outcome *outcome)
{
    struct gmb_session *session = lease->session;
    struct request *request = request_new(REQUEST_SEAL, REQUEST_OWNER_WAITER);

    if (request == NULL)
        return outcome_set(outcome, GMB_E_INTERNAL, "no host memory for a request");
    request->target = lease->id;
    if (request_ask_for(session, request, MIN(wait_ns, LIMIT_WAIT_NS), outcome) < 0)
        return outcome->code;
    request_free(request);
    return 0;
}

static int segment_seal(struct gmb_lease *lease, uint64_t wait_ns, struct outcome *outcome)
{
    struct outcome ignored = OUTCOME_OK;
    int r;

    if (!gmb_segment_writable(lease))
        return outcome_set(
            outcome, GMB_E_INVALID, "this process writes no such segment, or it is sealed");
    r = writes_wait(lease, outcome);
    if (r == 0)
        r = access_set(lease, GPU_ACCESS_READ, outcome);
    if (r < 0)
        return r;
    r = seal_ask(lease, wait_ns, outcome);
    if (r == 0)
        lease->read_only = true;
    else
        (void) access_set(lease, GPU_ACCESS_READ_WRITE, &ignored);
    return r;
}

_public_ int gmb_segment_seal(gmb_lease *lease, uint64_t wait_ns)
{
    struct outcome outcome = OUTCOME_OK;
    int r = fork_guard_check(lease->session, &outcome);

    if (r == 0)
        r = lease_enter(lease, &outcome);
    if (r == 0) {
        (void) segment_seal(lease, wait_ns, &outcome);
        lease_leave(lease);
    }
    return outcome_publish(&outcome);
}

/* ------------------------------------------------------------------ removing */

static int segment_remove(
    struct gmb_session *session, const struct gmb_segment_params *params, struct outcome *outcome)
{
    struct request *request;
    struct device *device;
    int r = params_check(params, outcome);

    if (r == 0)
        r = device_find(session, params->device, &device, outcome);
    if (r < 0)
        return r;
    request = request_new(REQUEST_REMOVE, REQUEST_OWNER_WAITER);
    if (request == NULL)
        return outcome_set(outcome, GMB_E_INTERNAL, "no host memory for a request");
    request->device = device;
    request->shared = params->group != 0;
    text_clean(request->label, sizeof(request->label), params->name);
    r = request_ask(session, request, outcome);
    if (r == 0)
        request_free(request);
    return r;
}

_public_ int gmb_segment_remove(gmb_session *session, const struct gmb_segment_params *params)
{
    struct outcome outcome = OUTCOME_OK;

    if (fork_guard_check(session, &outcome) == 0)
        (void) segment_remove(session, params, &outcome);
    return outcome_publish(&outcome);
}
