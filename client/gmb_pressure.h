/*
 * The part of gmb.h that is about pressure; that header brings it.
 */
#pragma once

#include "gmb.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * How short memory is, and what the tenant's configuration asks its workers to do about it. The
 * broker keeps a page of figures for each tenant, mapped read-only in every session of it: what is
 * read there costs no system call and no lock, and is never half of one state and half of another.
 * docs/pressure.md says what the levels mean and how they are tuned.
 *
 * `device` is an index as for gmb_device_get(). With a broker that keeps no such page all of this
 * is GMB_E_UNSUPPORTED. When the broker has gone its last figures stay readable; once the session
 * has noticed (it notices where something reads the socket: gmb_thread_start(), gmb_dispatch() or a
 * blocking call) they carry GMB_PRESSURE_STALE, and nothing counts as free any more.
 */
enum gmb_pressure_level {
    GMB_PRESSURE_NONE = 0,
    GMB_PRESSURE_LOW = 1,
    GMB_PRESSURE_MEDIUM = 2,
    GMB_PRESSURE_CRITICAL = 3
};

enum gmb_pressure_flag {
    GMB_PRESSURE_PAUSE_NEW = 1, /* the advice in force asks to begin nothing new */
    GMB_PRESSURE_FAILED = 2,    /* the device is out of service, or is being drained */
    GMB_PRESSURE_STALE = 4      /* the broker has gone: these are its last figures */
};

/* Shares of time are in millionths. `stall` is time in which requests or wanted pages of the tenant
 * waited: of `some` of its clients, of all that were active (`full`). */
struct gmb_pressure {
    size_t size;           /* in: sizeof(struct gmb_pressure) */
    uint32_t level;        /* enum gmb_pressure_level of the tenant on this device */
    uint32_t device_level; /* of the device, whoever uses it */
    uint32_t rung;         /* of the tenant's ladder, in force: 0 none to 3 */
    uint32_t flags;        /* GMB_PRESSURE_* */
    uint64_t advice;       /* id of the advice in force; 0: there was none yet */
    uint64_t used_bytes;
    uint64_t min_bytes, low_bytes, high_bytes, max_bytes; /* its limits; UINT64_MAX: none */
    uint64_t headroom_bytes;  /* what it could have now without anybody giving anything */
    uint64_t reachable_bytes; /* the most that it can ever have */
    uint64_t some_stall_us, full_stall_us; /* since the broker began */
    uint32_t some_avg10, some_avg60, full_avg10, full_avg60;
    uint64_t wait_estimate_ns; /* what requests that had to wait have lately waited */
    uint32_t reject_below;     /* requests of lower priority are to be turned away; 0: none */
    uint32_t waiting;          /* requests for memory of the tenant that wait now */
    uint64_t updated_ns;       /* CLOCK_MONOTONIC: when the broker wrote this */
};

/* The tenant's level on that device (GMB_PRESSURE_NONE to GMB_PRESSURE_CRITICAL): one load of
 * shared memory, for the inner loop of a scheduler. INVALID, UNSUPPORTED, FORKED. */
int gmb_pressure_get(const gmb_session *session, unsigned device);

/* All figures of one moment. No system call, never blocks. INVALID, UNSUPPORTED (also while the
 * broker has written nothing for that device), FORKED, PROTOCOL (the page changes faster than a
 * broker may change it). */
int gmb_pressure_read(const gmb_session *session, unsigned device, struct gmb_pressure *pressure);

/*
 * What an engine that sizes its caches takes for the memory of its device, as cuMemGetInfo() would
 * tell on a device of its own: `total` is the most that the tenant can ever have there, `free` what
 * it could have now without anybody giving anything; whoever asks for all of it allows for a wait,
 * since some may have to be released by the broker first. Free is never more than total, and total
 * never more than the device hands out, whatever limits changed meanwhile; a device out of service
 * has nothing free. No system call. Errors as gmb_pressure_read().
 */
int gmb_memory_info(
    const gmb_session *session, unsigned device, uint64_t *ret_free, uint64_t *ret_total);

/* When an fd is to become readable: when a level is reached from below, once for each rise; or when
 * `stall_ns` of stall fall within `window_ns` (as for PSI), again in each window while that goes
 * on. One of both. */
struct gmb_watch_params {
    size_t size;        /* sizeof(struct gmb_watch_params) */
    const char *device; /* UUID text; NULL: the broker's first device */
    uint32_t level;     /* enum gmb_pressure_level, from LOW on; 0: by stall */
    uint32_t of_device; /* not 0: the device's level instead of the tenant's */
    uint64_t stall_ns;  /* by stall: from 1 us to the window */
    uint64_t window_ns; /* 0.5 s to 10 s; by level: at most one event in it, 0 for 0.5 s */
    uint32_t full;      /* by stall: not 0 for `full`, else `some` */
};

/*
 * An fd for poll(2) that becomes readable at most once a window; reading 8 bytes resets it, as with
 * an eventfd. Nobody need dispatch for it. The fd is the caller's to close; `ret_watch` names the
 * watch for gmb_pressure_unwatch(), and it ends with the session, or when the connection to the
 * broker breaks: whoever dispatches or waits then makes the fd readable a last time, and
 * gmb_pressure_unwatch() says NOT_FOUND. Both block for one exchange with the broker. INVALID,
 * NOT_FOUND (no such device or watch), EXHAUSTED (too many watches of the session or of the
 * tenant), UNSUPPORTED, TIMED_OUT, DISCONNECTED, FORKED.
 */
int gmb_pressure_watch(
    gmb_session *session, const struct gmb_watch_params *params, int *ret_fd, uint64_t *ret_watch);
int gmb_pressure_unwatch(gmb_session *session, uint64_t watch);

/* The steps of a tenant's ladder. */
enum gmb_degrade {
    GMB_DEGRADE_REDUCE_BATCH = 1,          /* run `factor` (0 to 1) of the batch */
    GMB_DEGRADE_QUANTIZE_KV = 2,           /* new KV in 8 bit; `value` is enum gmb_kv_format */
    GMB_DEGRADE_SHRINK_CONTEXT = 3,        /* at most `value` tokens of a prompt */
    GMB_DEGRADE_DROP_PREFIX_CACHE = 4,     /* drop the share `factor` (up to 1) of it */
    GMB_DEGRADE_REJECT_BELOW_PRIORITY = 5, /* turn requests of priority below `value` away */
    GMB_DEGRADE_PAUSE_NEW = 6              /* begin no new request */
};

enum gmb_kv_format { GMB_KV_INT8 = 1, GMB_KV_FP8 = 2 };

struct gmb_advice_step {
    uint32_t action; /* enum gmb_degrade: each at most once in an advice */
    double factor;
    uint64_t value;
};

/* Everything that is asked of the worker now. It replaces the advice before: what isn't in it any
 * more is taken back, and an advice without a step takes all of it back. */
struct gmb_advice {
    uint64_t id; /* grows with each advice, until the broker is another one; 0: what that one's
                    predecessor asked is taken back, and nothing else asked */
    uint32_t rung;
    uint32_t step_count;
    const struct gmb_advice_step *steps; /* valid during the callback */
};

/* Called by whoever dispatches (as gmb_lease_fn) with the latest state or advice: of several that
 * came meanwhile, the last alone. Both may call any gmb_* function but gmb_disconnect() and
 * gmb_dispatch(); what they hold up is every other callback of the session. */
typedef void (*gmb_pressure_fn)(void *user, unsigned device, const struct gmb_pressure *pressure);
typedef void (*gmb_advice_fn)(void *user, const struct gmb_advice *advice);

/*
 * From now on `pressure` is called when the state on a device changes, at most once each 100 ms,
 * and `advice` when the tenant's ladder asks for something else; with the present ones at once. Who
 * subscribes says that it acts on advice: `pressure` may be NULL, `advice` only together with it,
 * which ends the subscription. Who wants to know and not to act reads the figures or watches them.
 * Replaces the callbacks before; none of those runs any more when this has returned, except the one
 * that it is called from. After a failure there is no subscription. Blocks for one exchange with
 * the broker. INVALID, UNSUPPORTED, TIMED_OUT, DISCONNECTED, FORKED.
 */
int gmb_pressure_subscribe(
    gmb_session *session, gmb_pressure_fn pressure, gmb_advice_fn advice, void *user);

enum gmb_advice_outcome { GMB_ADVICE_DONE = 0, GMB_ADVICE_PARTLY = 1, GMB_ADVICE_REFUSED = 2 };

/*
 * Says what this worker did about one step of an advice, and how many bytes of device memory that
 * gave. The broker shows it beside what its ledger saw, and first takes memory from tenants that
 * don't answer; so answer soon, and REFUSED rather than not. Blocks for one exchange with the
 * broker. NOT_FOUND (the advice isn't in force any more), INVALID, UNSUPPORTED, TIMED_OUT,
 * DISCONNECTED, FORKED.
 */
int gmb_advice_ack(gmb_session *session, uint64_t advice, enum gmb_degrade action,
    enum gmb_advice_outcome outcome, uint64_t freed_bytes);

/* What gmb_admit() answers beside errors. */
enum gmb_admission {
    GMB_ADMIT_NOW = 0,   /* there is memory for it */
    GMB_ADMIT_WAIT = 1,  /* not now: nothing new is to begin, or memory has to be given first */
    GMB_ADMIT_REJECT = 2 /* it needs more memory than the arena has free, and its priority is below
                            what gets memory now; or it can never fit */
};

/*
 * Whether a request that needs `pages` pages of the arena should begin, before it takes any: judged
 * by the tenant's page of figures and the arena's own free pages. `priority` is the request's, on
 * the scale of the ladder's reject-below-priority; one below that is turned away unless the pages
 * are free already, where it would take memory from nobody. For WAIT `ret_wait_ns` (may be NULL) is
 * an estimate, else 0. A snapshot, no promise. Any thread; no system call. UNSUPPORTED, FORKED,
 * PROTOCOL.
 */
int gmb_admit(gmb_arena *arena, uint64_t pages, uint32_t priority, uint64_t *ret_wait_ns);

#ifdef __cplusplus
}
#endif
