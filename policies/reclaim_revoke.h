/*
 * Which workspaces are asked back when a plan over arenas falls short. Pure, as policies/reclaim.h.
 *
 * A workspace is in use and nobody can move it: only its worker can give it up. So it is asked for
 * the strictly entitled alone: of tenants of lower priority than the requester, and of anybody else
 * only for what the requester lacks of its MemoryMin. Nothing is asked of the requester itself, and
 * nobody is asked for what would bring it below its own MemoryMin.
 *
 * Order of tenants: lower priority first; then those above their MemoryHigh; then whoever was told
 * to degrade and did not; then whoever has most for its weight.
 *
 * Within a tenant, the largest lease that lies wholly within what is still missing: so the fewest
 * workers are disturbed, and one that gives all of its lease, as most have to, gives nothing in
 * vain. Where none is so small, the smallest one, of which only the missing part is asked. Of
 * equals the youngest: it has the least work to lose.
 */
#pragma once

#include "policies/reclaim.h"

struct revoke_lease {
    uint32_t tenant; /* index of its row */
    uint64_t bytes, chunk_bytes;
    uint64_t age_ns;
    uint64_t token; /* the caller's name for it */
};

struct revoke_request {
    uint64_t bytes;       /* missing, that no arena can give */
    uint32_t beneficiary; /* row of the tenant that asked */
    uint64_t wanted;      /* what the request needs in all, as in struct reclaim_request */
};

struct revoke_step {
    uint32_t lease;             /* row */
    uint64_t bytes;             /* to be given of it: whole chunks */
    enum reclaim_reason reason; /* ABOVE_HIGH, LOWER_PRIORITY or BELOW_MIN */
};

/*
 * Writes at most `max_steps` steps, in order, of at most what is missing, rounded up to the last
 * lease's whole chunks. Returns their number, and in `ret_planned` the bytes. Rows that make no
 * sense (no such tenant, chunks of 0 bytes, no chunk) are left out; nothing for an unknown
 * beneficiary. `taken` is scratch of `lease_count`. Time: steps × (leases + tenants).
 */
size_t revoke_plan(const struct revoke_request *request, const struct reclaim_tenant *tenants,
    size_t tenant_count, const struct revoke_lease *leases, size_t lease_count, bool *taken,
    struct revoke_step *ret_steps, size_t max_steps, uint64_t *ret_planned);
