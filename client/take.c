/*
 * Taking memory: a lease or more of one. Blocking and asynchronous calls differ in who owns the
 * request: the calling thread, which waits and concludes, or whoever dispatches.
 */
#include "client/take.h"

#include <string.h>

#include "base/clock.h"
#include "client/conclude.h"
#include "client/device.h"
#include "client/fork.h"
#include "client/lease.h"
#include "client/request.h"
#include "client/text.h"
#include "client/wait.h"

/* What the broker may take to create a granule, far above what is measured (p99 0.4 ms). */
#define CREATE_NS_PER_GRANULE NSEC_PER_MSEC

const struct audience take_waiter = {.owner = REQUEST_OWNER_WAITER};

uint64_t take_creation_ns(const struct request *request)
{
    uint64_t granules = request->bytes / request->lease->device->info.granularity_bytes, creating;

    return __builtin_mul_overflow(granules, CREATE_NS_PER_GRANULE, &creating) ? UINT64_MAX
                                                                              : creating;
}

/* When a waiter stops believing in an answer: the broker keeps the deadline, if it is alive. */
static uint64_t patience_ends(const struct gmb_session *session, const struct request *request)
{
    uint64_t patience = add_saturate(MIN(request->wait_ns, LIMIT_WAIT_NS), session->timeout_ns);

    return add_saturate(
        clock_now(&clock_monotonic), add_saturate(patience, take_creation_ns(request)));
}

int take_request(enum request_kind kind, const struct audience *audience, struct gmb_lease *lease,
    uint64_t bytes, uint64_t wait_ns, struct request **ret, struct outcome *outcome)
{
    struct request *request = request_new(kind, audience->owner);

    if (request == NULL)
        return outcome_set(outcome, GMB_E_INTERNAL, "no host memory for a request");
    request->done = audience->done;
    request->user = audience->user;
    request->lease = lease;
    request->first_chunk = atomic_load(&lease->chunks);
    request->bytes = bytes;
    request->wait_ns = wait_ns;
    request->deadline_ns = patience_ends(lease->session, request);
    *ret = request;
    return 0;
}

static int params_read(
    const struct gmb_lease_params *params, struct gmb_lease_params *ret, struct outcome *outcome)
{
    if (params == NULL || params->size < sizeof(*ret))
        return outcome_set(outcome, GMB_E_INVALID, "params.size must be sizeof the structure");
    *ret = *params;
    if (ret->bytes == 0)
        return outcome_set(outcome, GMB_E_INVALID, "a lease of 0 bytes makes no sense");
    if (ret->max_bytes != 0 && ret->max_bytes < ret->bytes)
        return outcome_set(outcome, GMB_E_INVALID, "max_bytes is less than bytes");
    return 0;
}

static int lease_prepare(struct gmb_session *session, const struct gmb_lease_params *asked,
    const struct audience *audience, struct request **ret, struct outcome *outcome)
{
    struct gmb_lease_params params = {0};
    struct gmb_lease *lease;
    struct device *device;
    int r;

    r = params_read(asked, &params, outcome);
    if (r == 0)
        r = device_find(session, params.device, &device, outcome);
    if (r < 0)
        return r;
    if (params.chunk_bytes % device->info.granularity_bytes != 0)
        return outcome_set(outcome, GMB_E_INVALID, "chunk_bytes is no multiple of %llu",
            (unsigned long long) device->info.granularity_bytes);
    if (device->slabs && params.max_bytes > params.bytes)
        return outcome_set(outcome, GMB_E_UNSUPPORTED,
            "device %s shares memory over CUDA IPC: a lease there can't grow to max_bytes",
            device->info.uuid);
    r = device_retain(session, device, outcome);
    if (r < 0)
        return r;
    r = lease_make(session, device, MAX(params.bytes, params.max_bytes), &lease, outcome);
    if (r < 0)
        return r;
    r = take_request(REQUEST_LEASE, audience, lease, params.bytes, params.wait_ns, ret, outcome);
    if (r < 0) {
        lease_free(lease);
        return r;
    }
    (*ret)->chunk_bytes = params.chunk_bytes;
    text_clean((*ret)->label, sizeof((*ret)->label), params.label);
    return 0;
}

int take_prepare(struct gmb_session *session, const struct gmb_lease_params *params,
    struct request **ret, struct outcome *outcome)
{
    return lease_prepare(session, params, &take_waiter, ret, outcome);
}

int take_submit_consume(
    struct gmb_session *session, struct request *request, uint64_t *ret_id, struct outcome *outcome)
{
    int r;

    (void) pthread_mutex_lock(&session->lock);
    r = request_submit(session, request, outcome);
    /* Before the lock is given up: `done` may run, and want the number, right afterwards. */
    if (r == 0 && ret_id != NULL)
        *ret_id = request->id;
    (void) pthread_mutex_unlock(&session->lock);
    if (r < 0) {
        lease_free(request->lease);
        request_free(request);
    }
    return r;
}

/* Everything up to the request on its way. On failure nothing is held. */
static int lease_begin(struct gmb_session *session, const struct gmb_lease_params *params,
    const struct audience *audience, struct request **ret, uint64_t *ret_id,
    struct outcome *outcome)
{
    int r = lease_prepare(session, params, audience, ret, outcome);

    return r == 0 ? take_submit_consume(session, *ret, ret_id, outcome) : r;
}

static int grow_check(const struct gmb_lease *lease, uint64_t bytes, struct outcome *outcome)
{
    uint64_t mapped = atomic_load(&lease->chunks) * lease->chunk_bytes, more;

    if (lease->segment)
        return outcome_set(outcome, GMB_E_INVALID, "a segment doesn't grow");
    if (lease->device->slabs)
        return outcome_set(outcome, GMB_E_UNSUPPORTED,
            "device %s shares memory over CUDA IPC: a lease there can't grow",
            lease->device->info.uuid);
    if (bytes == 0)
        return outcome_set(outcome, GMB_E_INVALID, "growing by 0 bytes makes no sense");
    if (!round_up(bytes, lease->chunk_bytes, &more) || more > lease->reserved_bytes - mapped)
        return outcome_set(outcome, GMB_E_INVALID,
            "%llu bytes more would exceed the lease's max_bytes of %llu",
            (unsigned long long) bytes, (unsigned long long) lease->reserved_bytes);
    return 0;
}

static int lease_found(struct gmb_lease *lease, struct outcome *outcome)
{
    bool lost;

    (void) pthread_mutex_lock(&lease->session->lock);
    lost = lease->lost;
    (void) pthread_mutex_unlock(&lease->session->lock);
    return lost ? outcome_set(outcome, GMB_E_DISCONNECTED,
                      "the broker lost this lease when it restarted: it can only be given back")
                : 0;
}

/* As lease_begin; the lease is busy until the request is concluded. */
static int grow_begin(struct gmb_lease *lease, uint64_t bytes, uint64_t wait_ns,
    const struct audience *audience, struct request **ret, uint64_t *ret_id,
    struct outcome *outcome)
{
    struct gmb_session *session = lease->session;
    struct request *request = NULL;
    int r = lease_enter(lease, outcome);

    if (r < 0)
        return r;
    r = lease_found(lease, outcome);
    if (r == 0)
        r = grow_check(lease, bytes, outcome);
    if (r == 0)
        r = take_request(REQUEST_GROW, audience, lease, bytes, wait_ns, &request, outcome);
    if (r == 0) {
        (void) pthread_mutex_lock(&session->lock);
        r = request_submit(session, request, outcome);
        if (r == 0 && ret_id != NULL)
            *ret_id = request->id;
        (void) pthread_mutex_unlock(&session->lock);
    }
    if (r < 0) {
        request_free(request);
        lease_leave(lease);
        return r;
    }
    *ret = request;
    return 0;
}

int take_finish_consume(
    struct gmb_session *session, struct request *request, struct conclusion *ret)
{
    int r = request_await(session, request, &ret->outcome);

    if (r < 0) {
        ret->lease = NULL;
        return r;
    }
    request_conclude_consume(session, request, ret);
    return ret->outcome.code;
}

_public_ int gmb_lease_new(
    gmb_session *session, const struct gmb_lease_params *params, gmb_lease **ret_lease)
{
    struct conclusion conclusion = {.outcome = OUTCOME_OK};
    struct request *request;
    int r = fork_guard_check(session, &conclusion.outcome);

    if (r == 0)
        r = lease_begin(session, params, &take_waiter, &request, NULL, &conclusion.outcome);
    if (r == 0)
        r = take_finish_consume(session, request, &conclusion);
    if (r < 0)
        return outcome_publish(&conclusion.outcome);
    *ret_lease = conclusion.lease;
    return 0;
}

_public_ int gmb_lease_grow(gmb_lease *lease, uint64_t bytes, uint64_t wait_ns)
{
    struct conclusion conclusion = {.outcome = OUTCOME_OK};
    struct request *request;
    int r = fork_guard_check(lease->session, &conclusion.outcome);

    if (r == 0)
        r = grow_begin(lease, bytes, wait_ns, &take_waiter, &request, NULL, &conclusion.outcome);
    if (r == 0)
        (void) take_finish_consume(lease->session, request, &conclusion);
    return outcome_publish(&conclusion.outcome);
}

_public_ int gmb_lease_new_async(gmb_session *session, const struct gmb_lease_params *params,
    gmb_lease_fn done, void *user, uint64_t *ret_request)
{
    struct audience audience = {REQUEST_OWNER_CALLBACK, done, user};
    struct outcome outcome = OUTCOME_OK;
    struct request *request;
    int r = fork_guard_check(session, &outcome);

    if (r == 0 && done == NULL)
        r = outcome_set(&outcome, GMB_E_INVALID, "done is NULL");
    if (r == 0)
        (void) lease_begin(session, params, &audience, &request, ret_request, &outcome);
    return outcome_publish(&outcome);
}

_public_ int gmb_lease_grow_async(gmb_lease *lease, uint64_t bytes, uint64_t wait_ns,
    gmb_lease_fn done, void *user, uint64_t *ret_request)
{
    struct audience audience = {REQUEST_OWNER_CALLBACK, done, user};
    struct outcome outcome = OUTCOME_OK;
    struct request *request;
    int r = fork_guard_check(lease->session, &outcome);

    if (r == 0 && done == NULL)
        r = outcome_set(&outcome, GMB_E_INVALID, "done is NULL");
    if (r == 0)
        (void) grow_begin(lease, bytes, wait_ns, &audience, &request, ret_request, &outcome);
    return outcome_publish(&outcome);
}
