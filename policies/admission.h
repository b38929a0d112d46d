/*
 * Admission: may a request have its memory now, later, or never?
 *
 * A pure function of what the ledger says at one instant; the caller charges the request in the
 * same step, so that no two requests can both be told yes for the same bytes.
 *
 * Three limits are asked in this order, and the first that refuses is the one that is named:
 * the tenant's own MemoryMax, what the device has, and what is promised to others by their
 * MemoryMin. A tenant may always have its own unused MemoryMin as far as the memory is there.
 * MemoryLow plays no part: it protects from reclaim. MemoryHigh slows down (throttle.h).
 *
 * All sizes are bytes on one device. Sums saturate: a figure too large to be true is "a lot", never
 * a small number.
 */
#pragma once

#include "base/error.h"

struct admission_view {
    uint64_t requested; /* > 0 */
    uint64_t held;      /* what the lease that is to grow has already */
    uint64_t recycled;  /* part of `requested` that the tenant's own returned chunks supply */
    uint64_t ready;     /* part of `requested` that clean chunks supply */

    uint64_t used; /* everything charged to the tenant, returned chunks included */
    uint64_t min, max;

    uint64_t capacity;
    uint64_t free;              /* owned by nobody */
    uint64_t clean;             /* created, never leased; `ready` is part of it */
    uint64_t reserved;          /* asked for by waiting requests that rank higher */
    uint64_t others_unused_min; /* sum of max(0, MemoryMin - used) of the other tenants */
    uint64_t others_min;        /* sum of their MemoryMin */
};

enum admission_verdict {
    ADMISSION_ADMIT,
    ADMISSION_WAIT,   /* `limit` holds it back now */
    ADMISSION_REFUSE, /* `limit` can never allow it */
    ADMISSION_VERDICT_MAX
};

struct admission_decision {
    enum admission_verdict verdict;
    enum gmb_limit limit;     /* NONE with ADMIT */
    uint64_t available_bytes; /* what that limit has left for this tenant */
};

const char *admission_verdict_name(enum admission_verdict verdict);

struct admission_decision admission_decide(const struct admission_view *view);
