/*
 * The one error rule.
 *
 *   0          success
 *   > 0        an outcome that the direct caller must handle; each module that has such outcomes
 *              declares its own enum, whose zero is success
 *   < 0        a negative errno: something broke on the way; forwarded unchanged to whoever logs it
 *
 * Outputs (`ret_*`) are written on success only. A function either logs or returns; nothing below
 * the daemon's shell and the programs' main files logs.
 *
 * What a peer sees is `enum gmb_status`, closed and numbered for ever: it travels on the wire and
 * is what `libgmb` returns (as a negative number). `status_from_errno()` is total.
 */
#pragma once

#include "base/macro.h"

enum gmb_status {
    GMB_STATUS_OK = 0,
    GMB_STATUS_EXHAUSTED = 1,     /* a limit refused; retry helps once memory is given back */
    GMB_STATUS_OVER_LIMIT = 2,    /* larger than the limit can ever allow; retry never helps */
    GMB_STATUS_TIMED_OUT = 3,     /* the request's own deadline passed while it waited */
    GMB_STATUS_CANCELLED = 4,     /* by the client, or because its process died */
    GMB_STATUS_INVALID = 5,       /* the request makes no sense */
    GMB_STATUS_NOT_FOUND = 6,     /* no such lease, tenant, device or request */
    GMB_STATUS_DENIED = 7,        /* the caller may not do that */
    GMB_STATUS_CONFLICT = 8,      /* the revision is not the one that the caller saw */
    GMB_STATUS_UNSUPPORTED = 9,   /* version or feature that the other side lacks */
    GMB_STATUS_DISCONNECTED = 10, /* the broker is away */
    GMB_STATUS_FORKED = 11,       /* the session belongs to the parent process */
    GMB_STATUS_GPU = 12,          /* the driver failed; the text names the call and its code */
    GMB_STATUS_PROTOCOL = 13,     /* the other side broke the protocol */
    GMB_STATUS_INTERNAL = 14, /* ours: a fault in the broker or the library, or no host memory */
    GMB_STATUS_MAX
};

/* Which limit refused: goes with EXHAUSTED, OVER_LIMIT and TIMED_OUT. */
enum gmb_limit {
    GMB_LIMIT_NONE = 0,
    GMB_LIMIT_DEVICE = 1,      /* the device is full */
    GMB_LIMIT_DRIVER = 2,      /* the ledger has room but the driver refused to create memory */
    GMB_LIMIT_GUARANTEED = 3,  /* what is free is promised to others by their MemoryMin */
    GMB_LIMIT_MEMORY_MAX = 4,  /* the tenant's MemoryMax */
    GMB_LIMIT_MEMORY_HIGH = 5, /* the tenant is above MemoryHigh and is being slowed down */
    GMB_LIMIT_CLIENTS_MAX = 6,
    GMB_LIMIT_LEASES_MAX = 7,
    GMB_LIMIT_REQUESTS = 8,  /* requests in flight for one client */
    GMB_LIMIT_CHUNKS = 9,    /* chunks in one lease */
    GMB_LIMIT_DRAINING = 10, /* an operator empties the device */
    GMB_LIMIT_PERMISSION =
        11,                  /* it isn't the caller's, or there is no such thing: not told apart */
    GMB_LIMIT_HOLDERS = 12,  /* clients that hold one lease, or leases of others of the tenant */
    GMB_LIMIT_UNSEALED = 13, /* another process writes the segment */
    GMB_LIMIT_MAX
};

/* Name as it goes into JSON and messages (`exhausted`); never NULL, "unknown" outside the enum. */
const char *status_name(enum gmb_status status);
/* One sentence for people. Never NULL. */
const char *status_text(enum gmb_status status);
/* `MemoryMax`, `device`, …; never NULL. */
const char *limit_name(enum gmb_limit limit);

/* Total: every errno (positive or negative) has a status; 0 is OK. */
enum gmb_status status_from_errno(int error);
