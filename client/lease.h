/* Inside of leases: made, entered by one call at a time, emptied, ended. */
#pragma once

#include "client/session.h"

/* The driver's calls for its kind of memory. */
static inline const struct gpu_ops *lease_ops(const struct gmb_lease *lease)
{
    return gpu_ops_for(
        lease->session->gpu, lease->device->slabs ? GPU_HANDLE_IPC : GPU_HANDLE_POSIX_FD);
}

/* The process that had a device's memory has ended, or that of every such device, as it does with
 * the broker. `lock` is held. */
void leases_lost_take(struct gmb_session *session, const Gmb__MemoryLost *told);
void leases_lose_all(struct gmb_session *session);

/* In the session's list from birth, empty until it is granted. INTERNAL without host memory. */
int lease_make(struct gmb_session *session, struct device *device, uint64_t wanted_bytes,
    struct gmb_lease **ret, struct outcome *outcome);
/* Frees the object, with its farewell. Touches neither driver nor broker. Takes `lock`. NULL is
 * allowed; returns NULL. */
struct gmb_lease *lease_free(struct gmb_lease *lease);

/* By the broker's number; NULL when it isn't there, or isn't granted yet. `lock` is held. */
struct gmb_lease *lease_by_id(const struct gmb_session *session, uint64_t id);

/*
 * Reserves the lease for one call; INVALID if another is at work on it, TIMED_OUT while an earlier
 * grow isn't settled. Ends with lease_leave(). Both take `lock`.
 */
int lease_enter(struct gmb_lease *lease, struct outcome *outcome);
void lease_leave(struct gmb_lease *lease);

/*
 * Waits for the device's work, then unmaps everything behind the first `keep` chunks; with `keep` 0
 * and `last` frees the addresses too. On failure (GPU) everything is as it was. Without `lock`.
 */
int lease_empty(struct gmb_lease *lease, uint32_t keep, bool last, struct outcome *outcome);

/* Gives the addresses back, if there are any. */
void lease_range_free(struct gmb_lease *lease);

/* Empties the lease, tells the broker, awaits no answer, and frees it. Without `lock`. */
void lease_drop_consume(struct gmb_lease *lease);

/* Sends the farewell of an emptied lease, which then no longer has one; NULL where the broker lost
 * the lease and hears nothing of it. `lock` is held. */
int lease_farewell(struct gmb_lease *lease, enum request_owner owner, struct request **ret_request,
    struct outcome *outcome);

/* Waits for the broker's Done; not for NULL. `request` is the calling thread's and gone afterwards.
 * Without `lock`. */
int lease_done_wait(struct gmb_session *session, struct request *request, struct outcome *outcome);
