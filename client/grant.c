/*
 * Each part of a grant is mapped as it comes and its fds are closed at once, so that a lease of any
 * size needs at most one frame's worth of fds. A mapping is a reference of its own: the imported
 * handle is released right behind it, and a lease is an address, a chunk size and a count.
 */
#include "client/grant.h"

#include <string.h>

#include "base/clock.h"
#include "client/lease.h"
#include "client/request.h"

static uint64_t chunks_for(uint64_t bytes, uint64_t chunk_bytes)
{
    return bytes / chunk_bytes + (bytes % chunk_bytes != 0);
}

/* The first part says what all of them are. */
static int first_part_check(
    const struct request *request, const Gmb__Grant *grant, struct outcome *why)
{
    const struct gmb_lease *lease = request->lease;
    uint64_t granule = lease->device->info.granularity_bytes, wanted;

    if (grant->chunk_bytes % granule != 0 ||
        (request->chunk_bytes != 0 && !grant->read_only &&
            grant->chunk_bytes != request->chunk_bytes) ||
        (!request_makes_lease(request) && grant->chunk_bytes != lease->chunk_bytes))
        return outcome_set(why, GMB_E_PROTOCOL, "the broker granted chunks of %llu bytes",
            (unsigned long long) grant->chunk_bytes);
    if (lease->device->slabs && grant->total_chunks != 1)
        return outcome_set(
            why, GMB_E_PROTOCOL, "the broker granted %u slabs for a lease", grant->total_chunks);
    wanted = request->first_chunk + chunks_for(request->bytes, grant->chunk_bytes);
    if (request->kind == REQUEST_SEGMENT && request->bytes == 0)
        wanted = grant->total_chunks; /* it is opened: its size is what there is */
    if (grant->read_only && request->kind != REQUEST_SEGMENT)
        return outcome_set(why, GMB_E_PROTOCOL, "the broker granted memory that can't be written");
    if (request->kind == REQUEST_SEGMENT && request->bytes == 0 && !grant->read_only)
        return outcome_set(why, GMB_E_PROTOCOL, "the broker wants written what is only read");
    if (grant->total_chunks != wanted)
        return outcome_set(why, GMB_E_PROTOCOL,
            "the broker granted %u chunks where %llu were asked", grant->total_chunks,
            (unsigned long long) wanted);
    return 0;
}

int grant_belongs(const struct gmb_lease *lease, const Gmb__Grant *grant, struct outcome *why)
{
    struct uuid uuid;

    Gmb__HandleType kind = lease->device->slabs ? GMB__HANDLE_TYPE__HANDLE_TYPE_IPC
                                                : GMB__HANDLE_TYPE__HANDLE_TYPE_POSIX_FD;

    if (grant->handle_type != kind)
        return outcome_set(why, GMB_E_PROTOCOL, "the broker granted chunks of another kind");
    if (uuid_from_bytes(grant->device.data, grant->device.len, &uuid) < 0 ||
        !uuid_equal(&uuid, &lease->device->uuid))
        return outcome_set(why, GMB_E_PROTOCOL, "the broker granted chunks of another device");
    return 0;
}

static int part_check(const struct request *request, const Gmb__Grant *grant, struct outcome *why)
{
    const struct gmb_lease *lease = request->lease;
    bool first = request->total_chunks == 0;
    bool named = !request_makes_lease(request) || !first;
    int r = grant_belongs(lease, grant, why);

    if (r < 0)
        return r;
    if (named && grant->lease != lease->id)
        return outcome_set(why, GMB_E_PROTOCOL, "the broker granted chunks of another lease");
    if (grant->first_chunk != request->first_chunk + request->granted_chunks)
        return outcome_set(
            why, GMB_E_PROTOCOL, "the broker granted chunk %u out of order", grant->first_chunk);
    if (first)
        return first_part_check(request, grant, why);
    if (grant->total_chunks != request->total_chunks || grant->chunk_bytes != lease->chunk_bytes ||
        (grant->read_only != 0) != lease->read_only)
        return outcome_set(why, GMB_E_PROTOCOL, "the broker changed a grant half-way");
    return 0;
}

int grant_range_reserve(
    struct gmb_session *session, struct gmb_lease *lease, uint64_t chunk_bytes, struct outcome *ret)
{
    uint64_t granule = lease->device->info.granularity_bytes, bytes;
    uint64_t align = (granule & (granule - 1)) == 0 ? granule : 0;
    struct gpu_error error = {0};
    int r;

    if (!round_up(lease->wanted_bytes, chunk_bytes, &bytes))
        return outcome_set(ret, GMB_E_INVALID, "max_bytes rounded up to whole chunks is too large");
    r = session->gpu->ops->range_reserve(session->gpu, bytes, align, &lease->address, &error);
    if (r != 0)
        return outcome_set(ret, GMB_E_GPU, "%s", error.text);
    lease->reserved_bytes = bytes;
    return 0;
}

int grant_chunk_map(struct gmb_session *session, struct gmb_lease *lease, uint32_t index, int fd,
    struct outcome *ret)
{
    const struct gpu_ops *ops = session->gpu->ops;
    struct gpu_shareable shareable = {.type = GPU_HANDLE_POSIX_FD, .fd = fd};
    uint64_t address = lease->address + index * lease->chunk_bytes;
    struct gpu_error error = {0}, later = {0};
    struct gpu_chunk chunk = {0};
    int r, releasing;

    r = ops->chunk_import_borrow(
        session->gpu, lease->device->gpu, &shareable, lease->chunk_bytes, &chunk, &error);
    if (r != 0)
        return outcome_set(ret, GMB_E_GPU, "%s", error.text);
    r = ops->chunk_map(session->gpu, &chunk, address, NULL, &error);
    releasing = ops->chunk_release(session->gpu, &chunk, &later);
    if (r == 0 && releasing != 0) {
        (void) ops->span_unmap(session->gpu, address, lease->chunk_bytes, NULL);
        return outcome_set(ret, GMB_E_GPU, "%s", later.text);
    }
    return r == 0 ? 0 : outcome_set(ret, GMB_E_GPU, "%s", error.text);
}

/* The slab of a lease lies where the driver likes: that is the lease's address. */
static int slab_map(struct gmb_session *session, struct gmb_lease *lease, const Gmb__Chunk *told,
    struct outcome *ret)
{
    const struct gpu_ops *ops = lease_ops(lease);
    struct gpu_shareable shareable = {.type = GPU_HANDLE_IPC, .fd = -1};
    struct gpu_error error = {0};
    struct gpu_chunk chunk = {0};
    int r;

    memcpy(shareable.ipc_token, told->ipc_handle.data, sizeof(shareable.ipc_token));
    r = ops->chunk_import_borrow(
        session->gpu, lease->device->gpu, &shareable, lease->chunk_bytes, &chunk, &error);
    if (r == 0) {
        r = ops->chunk_map(session->gpu, &chunk, 0, &lease->address, &error);
        (void) ops->chunk_release(session->gpu, &chunk, NULL); /* a token: no driver call */
    }
    if (r != 0)
        return outcome_set(ret, GMB_E_GPU, "%s", error.text);
    lease->reserved_bytes = lease->chunk_bytes;
    return 0;
}

/* Without the lock: only the seat touches these fields of the lease and the request. */
static void part_map(struct gmb_session *session, struct request *request, const Gmb__Grant *grant,
    struct fdset *fds)
{
    struct gmb_lease *lease = request->lease;

    if (lease->device->slabs) {
        request->mapped_chunks +=
            slab_map(session, lease, grant->chunks[0], &request->outcome) == 0;
        return;
    }
    if (lease->reserved_bytes == 0 &&
        grant_range_reserve(session, lease, lease->chunk_bytes, &request->outcome) < 0)
        return;
    for (size_t i = 0; i < fds->count; i++) {
        _cleanup_close_ int fd = fdset_take(fds, i);
        uint32_t index = request->first_chunk + request->mapped_chunks;

        if (grant_chunk_map(session, lease, index, fd, &request->outcome) < 0)
            return;
        request->mapped_chunks++;
    }
}

bool grant_complete(const struct request *request)
{
    return request->total_chunks > 0 &&
           request->first_chunk + request->granted_chunks == request->total_chunks;
}

int grant_part_take(struct gmb_session *session, struct request *request, const Gmb__Grant *grant,
    struct fdset *fds, struct outcome *why)
{
    uint64_t patience = add_saturate(clock_now(&clock_monotonic), session->timeout_ns);
    int r = part_check(request, grant, why);

    if (r < 0)
        return r;
    request->total_chunks = grant->total_chunks;
    request->deadline_ns = MAX(request->deadline_ns, patience);
    if (request_makes_lease(request)) {
        request->lease->id = grant->lease;
        request->lease->chunk_bytes = grant->chunk_bytes;
        request->lease->read_only = grant->read_only;
        if (request->lease->wanted_bytes == 0)
            request->lease->wanted_bytes = grant->total_chunks * grant->chunk_bytes;
    }
    /* Nothing is mapped for a waiter that has gone or after a failure: it would be undone. */
    if (request->outcome.code == 0 && request->owner != REQUEST_OWNER_NOBODY) {
        (void) pthread_mutex_unlock(&session->lock);
        part_map(session, request, grant, fds);
        (void) pthread_mutex_lock(&session->lock);
    }
    request->granted_chunks += (uint32_t) grant->n_chunks;
    if (grant_complete(request) && request->kind != REQUEST_FILL && request->outcome.code == 0 &&
        request->owner != REQUEST_OWNER_NOBODY) {
        request->lease->held = request->total_chunks;
        request->lease->known = true;
    }
    return 0;
}

int grant_take(struct gmb_session *session, struct request *request, const Gmb__Grant *grant,
    struct fdset *fds, struct outcome *why)
{
    int r = grant_part_take(session, request, grant, fds, why);

    if (r == 0 && grant_complete(request))
        request_answer(session, request);
    return r;
}
