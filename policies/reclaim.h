/*
 * Whose memory goes when somebody entitled needs some: a plan over chunks of arenas.
 *
 * Pure. The caller hands one row for each chunk that could be emptied and one for each tenant; the
 * policy orders chunks and says why. Nothing here reads memory that a tenant can write: rows are
 * copies, already checked.
 *
 * Order (docs/architecture.md section 8): empty chunks of anybody; then cold pages of tenants above
 * MemoryHigh; then above MemoryLow; then idle segments, whole and with everything that holds for
 * pages; then of those whose priority is below the requester's; then,
 * for a requester below its MemoryMin and only as far as that reaches, of anybody. Within each,
 * lower priority first. Nobody is brought below its MemoryMin: what it gave would be promised to it
 * anew. Nothing but empty chunks is taken from a tenant of higher priority than the requester
 * unless that tenant is above its MemoryHigh or the requester is below its MemoryMin. Last come the
 * requester's own cold pages, below its MemoryMin too: what they leave is its own again, and
 * without them what is guaranteed to it could fill up with what it doesn't use.
 *
 * A chunk that came just now (RECLAIM_GUARD_NS) is guarded: a requester gets it only where it has a
 * higher priority or is below its MemoryMin. Equals that need more than there is would otherwise
 * take from each other, for ever, what the other has just got and has not used yet.
 *
 * Among equals, whoever was told to degrade and did not gives first, then whoever has most for its
 * weight. Within a tenant, the chunk that is cheapest to empty (see `score`). What has no room in
 * the tenant's host tier is dropped where it is recomputable; a page there that pages on the device
 * continue makes room only for what can't be dropped.
 */
#pragma once

#include "base/clock.h"
#include "base/macro.h"

/* What a worker on a busy machine takes from a grant to the first use of a page: it maps the chunk,
 * and a thread that waits is woken and pins. A pin protects what is in use from then on. */
#define RECLAIM_GUARD_NS (125 * NSEC_PER_MSEC)

struct reclaim_tenant {
    uint64_t used, min, low, high; /* bytes on the device */
    uint64_t host_left;            /* bytes of the host tier that it may still take … */
    uint64_t
        host_carrying; /* … and that cost pages on the device, which continue what lies there */
    uint32_t priority, weight;
    bool ignores_advice; /* was told to degrade and did not */
};

struct reclaim_chunk {
    uint32_t tenant; /* index of its row */
    uint64_t bytes;
    uint64_t page_bytes;
    uint32_t resident, pinned, free, evicted,
        recomputable, /* pages; pinned and recomputable ones are resident, too */
        continued;    /* … and of these, those that resident pages of other chunks continue */
    uint64_t idle_ns; /* since the last use of any page */
    uint64_t here_ns; /* since it came */
    double recompute_cost; /* sum over resident pages of tokens × position, any unit; 0 unknown */
    uint64_t token;        /* the caller's name for it */
    bool segment;          /* not a chunk: a whole segment that nobody has, `resident` its pieces */
};

struct reclaim_request {
    uint64_t bytes;       /* to free */
    uint32_t beneficiary; /* row of the tenant that asked; UINT32_MAX: an operator */
    uint32_t from;        /* row of the only tenant that gives; UINT32_MAX: any. Where it is the
                             beneficiary, its own MemoryMax asks: it is not protected from itself */
    uint64_t wanted;   /* what the request needs in all, of which `bytes` are missing; 0: as much */
    bool whole_device; /* an operator empties the device: not even MemoryMin protects */
    bool empty_only;   /* nobody is there to copy pages: only chunks without any */
};

enum reclaim_reason {
    RECLAIM_EMPTY, /* no page to copy */
    RECLAIM_ABOVE_HIGH,
    RECLAIM_ABOVE_LOW,
    RECLAIM_IDLE_SEGMENT,   /* nobody reads it: no worker notices before it opens it again */
    RECLAIM_LOWER_PRIORITY, /* protected by MemoryLow, but the requester goes before it */
    RECLAIM_BELOW_MIN,      /* for a requester below its guarantee */
    RECLAIM_OWN,            /* of the requester itself, though it is protected from others */
    RECLAIM_OPERATOR,
    RECLAIM_REASON_MAX
};

struct reclaim_step {
    uint32_t chunk; /* row */
    enum reclaim_reason reason;
    double score; /* smaller went first within the tenant: bytes to copy, out and, as likely as
                            the chunk is used again soon, back; without room in the tier, and
                            what would go along */
    uint32_t drop_pages; /* recomputable ones to drop, since the tenant's tier is full */
};

enum reclaim_shortfall {
    RECLAIM_COMPLETE,
    RECLAIM_NOTHING_LEFT, /* what isn't planned is pinned or in workspaces */
    RECLAIM_PROTECTED,    /* what is left is protected from this requester */
    RECLAIM_GUARDED,      /* what is left came just now: later */
    RECLAIM_HOST_FULL,    /* the host tier of those who could give has no room */
    RECLAIM_CUT_SHORT,    /* max_steps were too few: there is more to take */
    RECLAIM_NO_MEMORY,    /* the broker's own, to plan with: nothing is planned */
    RECLAIM_SHORTFALL_MAX
};

const char *reclaim_reason_name(enum reclaim_reason reason);
const char *reclaim_shortfall_name(enum reclaim_shortfall shortfall);

/*
 * Writes at most `max_steps` steps, in order, whose chunks together reach `request->bytes` where
 * they can. Returns their number; `ret_planned` the bytes, `ret_shortfall` why it is less. Rows
 * that make no sense (no such tenant, pages of 0 bytes) are left out. Time: n + steps × log n.
 */
size_t reclaim_plan(const struct reclaim_request *request, const struct reclaim_tenant *tenants,
    size_t tenant_count, const struct reclaim_chunk *chunks, size_t chunk_count,
    struct reclaim_step *ret_steps, size_t max_steps, uint64_t *ret_planned,
    enum reclaim_shortfall *ret_shortfall);

/* ------------------------------------------------------------------ the last resort */

/* A victim that was warned and did not answer, and what is known about it. */
struct reclaim_kill {
    bool allowed;    /* by the configuration */
    uint32_t victim; /* rows; the beneficiary of an operator's plan is UINT32_MAX */
    uint32_t beneficiary;
    uint32_t dying; /* victims killed whose memory isn't back yet */
    bool killed_before;
    uint64_t since_ns;    /* the last kill */
    uint64_t cooldown_ns; /* that must lie between two kills */
};

enum reclaim_kill_verdict {
    RECLAIM_KILL_YES,
    RECLAIM_KILL_FORBIDDEN,    /* the configuration doesn't allow it */
    RECLAIM_KILL_ITSELF,       /* the requester is never its own victim */
    RECLAIM_KILL_NOT_ENTITLED, /* neither below its MemoryMin nor of strictly higher priority */
    RECLAIM_KILL_ANOTHER,      /* one at a time */
    RECLAIM_KILL_COOLDOWN,
    RECLAIM_KILL_VERDICT_MAX
};

const char *reclaim_kill_verdict_name(enum reclaim_kill_verdict verdict);

/* The first guard that forbids it, in the order above. Total: unknown rows are not entitled. */
enum reclaim_kill_verdict reclaim_may_kill(
    const struct reclaim_kill *kill, const struct reclaim_tenant *tenants, size_t tenant_count);
