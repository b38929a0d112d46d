/*
 * The broker's state machine: (state, event, now) → actions.
 *
 * The core owns the ledger: devices, chunks, tenants, clients, leases, requests. It does no I/O,
 * reads no clock, starts no thread and links against policies, base and libc alone. Whatever
 * happens in the world becomes one `struct core_event`; what has to be done comes back as a list of
 * `struct core_action`, which the shell executes in order. Nothing in the core calls back.
 *
 * Ids are a slot number and a generation: an id of a thing that is gone is never mistaken for its
 * successor. 0 is no id.
 *
 * Memory is allocated for tenants, clients, leases, requests and chunks alone, all bounded by
 * base/limits.h; when the host has none, the event is refused with GMB_STATUS_INTERNAL and the
 * state stays as it was.
 *
 * Not thread-safe: one thread owns a core.
 */
#pragma once

#include "base/error.h"
#include "base/limits.h"
#include "policies/ladder.h"
#include "policies/pressure.h"
#include "policies/stall.h"

struct core;

typedef uint64_t core_id;

/* ------------------------------------------------------------------ configuration */

struct core_memory_limits {
    uint64_t min, low, high, max; /* bytes; high and max are SIZE_INFINITY where unset */
    uint64_t host_max;            /* of the host tier: the core only keeps it */
};

struct core_tenant_config {
    char name[LIMIT_NAME_BYTES + 1];
    uint32_t priority;    /* 0 … 1000, higher goes first */
    uint32_t weight;      /* 1 … 10000 */
    uint32_t clients_max; /* UINT32_MAX: no limit of the tenant's own */
    uint32_t leases_max;
    uint32_t tier_format; /* how evicted pages lie there: the core only keeps it */
    struct ladder ladder; /* what its workers are asked for under pressure */
    struct core_memory_limits memory[LIMIT_DEVICES]; /* by device index */
};

struct core_pressure_options {
    struct pressure_thresholds levels;
    uint64_t degrade_dwell_ns; /* on one rung of the ladder before the next lower one */
};

struct core_options {
    uint64_t recycle_idle_ns;   /* how long a returned chunk is kept for its tenant */
    uint64_t verify_window_ns;  /* how long a release may hold up those of other tenants */
    uint64_t orphan_grace_ns;   /* released bytes not back by then are called orphaned */
    uint64_t observe_ns;        /* distance of routine looks at a device's free memory */
    uint64_t create_backoff_ns; /* wait after the driver refused memory that the ledger has */
    uint64_t reclaim_ns;        /* distance of repeated RECLAIM actions */
    uint64_t prefetch_bytes;    /* clean chunks kept ready on each device */
    uint32_t clients_max;       /* of all tenants together; 0: LIMIT_CLIENTS */
    struct core_pressure_options pressure;
};

/* The values in force where the configuration says nothing; each is explained in core.c. */
extern const struct core_options core_options_default;

/* ------------------------------------------------------------------ events */

enum core_event_type {
    CORE_EVENT_TICK,          /* time passed: deadlines, timers, work left over */
    CORE_EVENT_DEVICE_ADD,    /* before any tenant */
    CORE_EVENT_CONFIGURE,     /* the whole list of tenants, all or nothing */
    CORE_EVENT_TENANT_SET,    /* one tenant's values, all or nothing */
    CORE_EVENT_CLIENT_ADD,    /* a greeted connection, its tenant known */
    CORE_EVENT_CLIENT_DETACH, /* its connection ended; the process may live and map its chunks */
    CORE_EVENT_CLIENT_ATTACH, /* a detached one is connected again; answered by nothing */
    CORE_EVENT_CLIENT_DEAD,   /* its process is dead by pidfd */
    CORE_EVENT_LEASE_REQUEST,
    CORE_EVENT_GANG_REQUEST,    /* leases on several devices, all or none */
    CORE_EVENT_SEGMENT_REQUEST, /* a lease that others may hold, too, whole from the start */
    CORE_EVENT_LEASE_GROW,
    CORE_EVENT_LEASE_SHRINK,
    CORE_EVENT_LEASE_RELEASE,
    CORE_EVENT_ARENA_REQUEST, /* a lease with holes, empty at first */
    CORE_EVENT_ARENA_FILL,    /* chunks for a run of empty indices of it */
    CORE_EVENT_ARENA_RETURN,  /* a holder has a run of filled indices no longer */
    CORE_EVENT_LEASE_ATTACH,  /* another client of the tenant becomes a holder of an arena */
    CORE_EVENT_ARENA_SHARE,   /* chunks that are there for a holder that hasn't got them */
    CORE_EVENT_DEVICE_DRAIN,  /* no grant there any more, or again */
    CORE_EVENT_RESTORE_WAIT,  /* a client begins or ends to wait for pages to be restored */
    CORE_EVENT_DEVICE_FAIL,   /* it is lost or broken: out of service for good */
    CORE_EVENT_DEVICE_HOLD,   /* memory kept back there for the shell's own process */
    CORE_EVENT_DEVICE_STALE,  /* no chunk that is there now can be granted again */
    CORE_EVENT_CANCEL,
    CORE_EVENT_CHUNK_CREATED,   /* answers CORE_ACTION_CHUNK_CREATE */
    CORE_EVENT_CHUNK_FAILED,    /* answers CORE_ACTION_CHUNK_CREATE */
    CORE_EVENT_CHUNK_RELEASED,  /* answers CORE_ACTION_CHUNK_RELEASE */
    CORE_EVENT_MEMORY_OBSERVED, /* answers CORE_ACTION_MEMORY_OBSERVE */
    CORE_EVENT_MAX
};

const char *core_event_type_name(enum core_event_type type);

struct core_gang_part {
    uint32_t device;      /* index, another one in each part */
    uint64_t bytes;       /* > 0 */
    uint64_t chunk_bytes; /* 0: core's choice */
};

struct core_event {
    enum core_event_type type;
    union {
        struct {
            uint64_t total_bytes;       /* of the device */
            uint64_t reserve_bytes;     /* not the broker's: contexts, others */
            uint64_t granularity_bytes; /* > 0 */
            bool whole; /* a lease there is one chunk, of whatever size: nothing can be put
                           together, grown or left empty */
        } device_add;   /* answered by DEVICE_ADDED with the next index, from 0 */
        struct {
            const struct core_tenant_config *tenants; /* borrowed for the call */
            size_t count;
            const struct core_pressure_options *pressure; /* borrowed; NULL: as they are */
        } configure;                                      /* CONFIGURED or REFUSED, with `cookie` */
        struct {
            const struct core_tenant_config *tenant; /* borrowed; found by name */
            uint64_t expected_revision;              /* 0: whatever it is */
        } tenant_set;                                /* CONFIGURED or REFUSED */
        struct {
            const char *tenant; /* borrowed name */
            bool steward;       /* the shell itself, for what no process holds: no client of the
                                   tenant's by count, and it neither runs nor stalls */
        } client_add;           /* CLIENT_ADDED or REFUSED */
        struct {
            /* It stays though it holds nothing, until it is dead, attached or, detached as it is,
             * told so again without this. */
            bool keep;
        } client_detach;
        struct {
            uint32_t device;      /* index */
            uint64_t bytes;       /* > 0 */
            uint64_t chunk_bytes; /* 0: core's choice */
            uint64_t wait_ns;     /* 0: not at all */
        } lease_request;          /* LEASE_REQUEST, SEGMENT_REQUEST: GRANT or REFUSE */
        struct {
            const struct core_gang_part *parts; /* borrowed for the call */
            uint32_t count;                     /* 1 … LIMIT_DEVICES */
            uint64_t wait_ns;
        } gang_request; /* one GRANT for each part, all in one step, or one REFUSE */
        struct {
            core_id lease;
            uint64_t bytes;
            uint64_t wait_ns;
        } lease_grow; /* GRANT or REFUSE */
        struct {
            core_id lease;
            uint32_t keep_chunks;
        } lease_shrink; /* DONE or REFUSE */
        struct {
            core_id lease;
            bool held;   /* perhaps still: its chunks go back to the driver, not to the tenant */
        } lease_release; /* DONE or REFUSE */
        struct {
            uint32_t device;
            uint32_t max_chunks;  /* 1 … LIMIT_LEASE_CHUNKS */
            uint64_t chunk_bytes; /* > 0 */
        } arena_request;          /* GRANT of 0 chunks, which names the lease, or REFUSE */
        struct {
            core_id lease;
            uint32_t first, count; /* indices, all empty and not asked for already; of a segment
                                      for a steward alone, as in arena_return */
            uint64_t wait_ns;
            bool urgent; /* a restore: goes before what else the tenant waits for */
        } arena_fill;    /* GRANT of [first, first + count) or REFUSE */
        struct {
            core_id lease;
            uint32_t first, count; /* indices that the client has */
        } arena_return;            /* DONE or REFUSE. They are empty once no holder has them */
        struct {
            core_id lease;
        } lease_attach; /* GRANT of 0 chunks, or REFUSE. The holder has nothing, and gets nothing
                           before its first ARENA_SHARE */
        struct {
            core_id lease;
            uint32_t first, count; /* indices that others have and the client hasn't; or none */
        } arena_share;             /* GRANT of them or REFUSE */
        struct {
            uint32_t device;
            bool undo;
        } device_drain; /* answered by nothing: waiting requests there are refused */
        struct {
            uint32_t device;
            bool waits;
        } restore_wait; /* answered by nothing; saying the same again changes nothing */
        struct {
            uint32_t device;
        } device_fail; /* as device_drain, and its memory is no longer verified */
        struct {
            uint32_t device;
            uint64_t bytes; /* 0: the process has its memory, and is among those that use some */
        } device_hold;      /* answered by nothing */
        struct {
            uint32_t device;
        } device_stale; /* answered by nothing: what lies ready is released, what is leased when it
                           is returned */
        struct {
            uint64_t request; /* the client's own id of the request to withdraw */
        } cancel;             /* DONE or REFUSE */
        struct {
            uint32_t device;
            uint32_t chunk;
            uint32_t generation;
            bool out_of_memory; /* CHUNK_FAILED: transient, else broken */
        } chunk;
        struct {
            uint32_t device;
            uint64_t free_bytes; /* as the driver says, taken in order with creates and releases;
                                    above the device's total: the driver couldn't say */
        } observed;
    };
    core_id client;   /* CLIENT_*, LEASE_*, GANG_*, SEGMENT_*, ARENA_*, CANCEL, RESTORE_WAIT */
    uint64_t request; /* of the same but CLIENT_* and RESTORE_WAIT: the client's id of this request,
                         > 0 */
    uint64_t cookie;  /* CONFIGURE, TENANT_SET, CLIENT_ADD: comes back in the answer */
};

/* ------------------------------------------------------------------ actions */

enum core_action_type {
    CORE_ACTION_DEVICE_ADDED,
    CORE_ACTION_CONFIGURED,
    CORE_ACTION_CLIENT_ADDED,
    CORE_ACTION_CLIENT_GONE, /* nothing of it is left; its id is free */
    CORE_ACTION_GRANT, /* send chunks [first, first + count) of a lease: to the client and, where
                          ARENA_FILL was asked for, to every holder that core_holder_has() names */
    CORE_ACTION_DONE,
    CORE_ACTION_REFUSE,
    CORE_ACTION_CHUNK_CREATE,   /* answered by CHUNK_CREATED or CHUNK_FAILED */
    CORE_ACTION_CHUNK_RELEASE,  /* answered by CHUNK_RELEASED */
    CORE_ACTION_MEMORY_OBSERVE, /* answered by MEMORY_OBSERVED */
    CORE_ACTION_RECLAIM,        /* a request waits for the device: empty chunks of arenas for it */
    CORE_ACTION_PRESSURE,       /* figures of a tenant on a device changed: core_pressure_get() */
    CORE_ACTION_ADVICE,         /* a tenant is asked for other steps: core_advice_get() */
    CORE_ACTION_MAX
};

const char *core_action_type_name(enum core_action_type type);

struct core_action {
    enum core_action_type type;
    core_id client;
    uint64_t request;
    uint64_t cookie;
    union {
        struct {
            core_id lease;
            uint32_t first, count; /* of the lease's chunks */
            uint32_t part, parts;  /* of a gang, in the order of its parts; else 0 and 1 */
        } grant;
        struct {
            enum gmb_status status;
            enum gmb_limit limit;
            uint64_t requested_bytes;
            uint64_t available_bytes;    /* what that limit had left */
            char text[LIMIT_TEXT_BYTES]; /* a sentence: what refused, with its value */
        } refuse;
        struct {
            uint32_t device;
            uint32_t chunk; /* number: the shell keeps the driver's handle under it */
            uint32_t generation;
            uint64_t bytes;
        } chunk;
        struct {
            uint32_t device;
        } device;
        struct {
            uint32_t device;
            uint32_t tenant; /* who waits, by index */
            uint64_t bytes;  /* that are missing beyond what is free or being released; asked for
                                again every reclaim_ns while they are */
            uint64_t wanted; /* all that the request adds to the tenant's use; 0: none waits */
            bool own;        /* the tenant itself is above its MemoryMax, or would be: it gives */
        } reclaim;
        struct {
            uint64_t revision;
        } configured;
        struct {
            uint32_t device, tenant;
            bool level; /* the tenant's level there or the device's is another: at once; else at
                           most once each CORE_PRESSURE_INTERVAL_NS */
        } pressure;
        struct {
            uint32_t tenant;
        } advice;
    };
};

#define CORE_PRESSURE_INTERVAL_NS UINT64_C(1000000)

/* No step yields more: what is left over is done by the next one (see core_busy). */
#define CORE_ACTIONS_MAX 512

struct core_actions {
    size_t count;
    struct core_action items[CORE_ACTIONS_MAX];
};

/* ------------------------------------------------------------------ calls */

/* `options` is copied. -ENOMEM. */
int core_new(const struct core_options *options, struct core **ret) _must_check_;
/* Accepts NULL; returns NULL. */
struct core *core_free(struct core *core);

/*
 * Takes one event at time `now_ns` (never smaller than in an earlier call) and overwrites
 * `actions`. Every event with a client and request id is answered sooner or later by exactly one
 * GRANT (a gang: one for each part), DONE or REFUSE for it, unless the client is detached or dead
 * before. Total over malformed
 * events: an unknown id, index or type is refused or, where nobody asked, ignored.
 */
void core_step(struct core *core, const struct core_event *event, uint64_t now_ns,
    struct core_actions *actions);

/* When the next TICK is due: CLOCK_NEVER, or at once (0) while work is left over from a full step.
 */
uint64_t core_next_tick(const struct core *core);

enum core_lease_kind { CORE_LEASE_WORKSPACE, CORE_LEASE_ARENA, CORE_LEASE_SEGMENT };

/* ------------------------------------------------------------------ what outlives a core */

enum core_record_type {
    CORE_RECORD_TENANT,
    CORE_RECORD_ACCOUNT,
    CORE_RECORD_CLIENT,
    CORE_RECORD_LEASE,
    CORE_RECORD_HOLDER, /* of an arena, beyond the first place */
    CORE_RECORD_SEAT,   /* holder of a segment, by a number of its own */
    CORE_RECORD_CHUNK,
    CORE_RECORD_MAX
};

/* Numbers stay what they are: a ledger holds them. */
enum core_record_state {
    CORE_CHUNK_CLEAN = 1,
    CORE_CHUNK_LEASED = 2,
    CORE_CHUNK_CACHED = 3,
    CORE_CHUNK_RELEASING = 4, /* perhaps done: then the shell has no handle any more */
};

#define CORE_NOBODY UINT32_MAX

/* One object as it is now, with all that the core must know to go on with it later. */
struct core_record {
    enum core_record_type type;
    uint32_t number;     /* of the slot; TENANT: its index; ACCOUNT: the tenant's, or CORE_NOBODY;
                            HOLDER: the lease's × LIMIT_LEASE_HOLDERS + its place */
    uint32_t generation; /* CLIENT, LEASE, HOLDER (the lease's), SEAT, CHUNK; of one that is gone:
                            its successor's */
    bool gone; /* CLIENT, LEASE, HOLDER, SEAT, CHUNK: there is none under that number any more */
    union {
        struct {
            char name[LIMIT_NAME_BYTES + 1];
        } tenant;
        struct {
            uint32_t device;
            uint64_t suspects_bytes; /* released, and not seen to be free */
            uint64_t others_bytes;   /* CORE_NOBODY: in use on the device by others … */
            bool draining;           /* … and whether an operator empties it */
        } account;
        struct {
            uint32_t tenant;
            bool steward;
        } client;
        struct {
            core_id client; /* the holder in the first place; 0: it has left, or of a segment */
            bool open;      /* that one takes part in fills */
            uint32_t tenant, device;
            uint32_t count; /* chunks that are granted; of an arena its chunks tell */
            uint32_t max;   /* indices; 0: a workspace */
            enum core_lease_kind kind;
            uint64_t chunk_bytes;
        } lease;
        struct {
            core_id lease, client;
            bool open;
        } holder; /* HOLDER, SEAT */
        struct {
            uint32_t device, tenant; /* CORE_NOBODY */
            bool forsaken;           /* it isn't to be granted again */
            enum core_record_state state;
            uint32_t index; /* LEASED */
            core_id lease;  /* LEASED; may be one that was not granted yet */
            uint64_t bytes;
        } chunk;
    };
};

/*
 * What the last step has changed, one record at a call; false when there is no more. What wasn't
 * taken is dropped by the next step. Records come in an order in which they can be written one by
 * one, before the step's actions are carried out, and be cut off anywhere: whoever restores a core
 * from them finds every byte, and nothing granted that was not. Costs what the step has changed.
 */
bool core_changed_next(struct core *core, struct core_record *ret);

/* The record of a lease as it is now; false when there is none. */
bool core_lease_record(const struct core *core, core_id lease, struct core_record *ret);

/*
 * Fills a new core from records, after its devices were added and before anything else, in the
 * order of enum core_record_type; then core_restore_end(), then CONFIGURE. Clients are detached,
 * but for stewards, which are as they were.
 * `handle` says of a chunk whether the shell has the memory: without it, one that is leased stays
 * charged as long as it is held but can't be granted or moved (it is stuck), and any other is gone
 * and suspect until its bytes are free. `damaged`: some records could not be read or used. A leased
 * chunk whose lease isn't there was then perhaps granted, and goes back to the driver; else its
 * grant was cut off, and it is the tenant's cache. -EINVAL, -EEXIST for a record that contradicts
 * itself or others: nothing of it is kept. -ESTALE for a holder whose lease or client has ended.
 * -ENOMEM.
 * Each holder that takes part in fills has every chunk of its lease, until it says what it hasn't.
 */
int core_restore(
    struct core *core, const struct core_record *record, bool handle, bool damaged) _must_check_;
/*
 * `damaged`: as above; holes in leases are stuck. Else
 * a hole is where a shrink was cut off: what lies behind it is the tenant's again. `generation` is
 * for numbers of which no record tells one: higher than any that they had. What had to be mended is
 * among the changes, if only core_changed_next() is asked before the next step. -ENOMEM.
 */
int core_restore_end(struct core *core, bool damaged, uint32_t generation) _must_check_;

/*
 * Re-derives every sum from the objects and compares: NULL when all holds, else a sentence that
 * names the first account that doesn't. Cost: all objects. For tests, the simulation and debug
 * builds.
 */
const char *core_check(const struct core *core);

/* ------------------------------------------------------------------ views (status, grants) */

struct core_device_view {
    uint64_t total, reserve, creating, leased, cached, clean, releasing, orphaned, unaccounted,
        free, granularity;
    uint64_t creating_clean; /* of `creating`, what is nobody's */
    uint64_t lacking;        /* of what DEVICE_HOLD keeps back: not there, and not on its way */
    uint32_t waiting;
    bool draining, failed;
};
struct core_tenant_view {
    char name[LIMIT_NAME_BYTES + 1];
    uint64_t revision;
    uint32_t priority, weight, clients, clients_max, leases, leases_max, waiting;
    bool configured;
};
struct core_tenant_device_view {
    struct core_memory_limits limits;
    uint64_t used, creating, leased, cached, releasing, orphaned, peak, overage;
};
struct core_client_view {
    core_id id;
    uint32_t tenant; /* index for core_tenant_view */
    uint32_t leases, waiting;
    uint64_t leased;
    bool detached;
};
struct core_lease_view {
    core_id id, client; /* of its first holder */
    enum core_lease_kind kind;
    uint32_t holders;
    uint32_t tenant, device;
    uint32_t chunks;     /* that it holds */
    uint32_t max_chunks; /* of an arena or segment; 0 for a workspace */
    uint64_t chunk_bytes, since_ns;
};
/* Up to date as of the last step; stall totals in ns, averages in millionths of the time. */
struct core_pressure_view {
    enum pressure_level level, device_level;
    struct core_memory_limits limits;
    uint64_t used;      /* charged, what it gave back and is kept for it included */
    uint64_t headroom;  /* what it could have now without anybody giving anything */
    uint64_t reachable; /* the most that it can ever have */
    uint64_t stall_ns[STALL_LINE_MAX];
    uint32_t stall[STALL_LINE_MAX][STALL_AVERAGE_MAX];
    bool stalled;          /* somebody is right now */
    uint64_t wait_mean_ns; /* of requests that had to wait: a moving mean; 0: none ever did */
    uint32_t waiting;
    bool draining;
};
struct core_advice_view {
    uint64_t id; /* grows; 0: nothing was ever asked */
    enum pressure_level rung;
    uint64_t since_ns;
    uint64_t used_then, used_now; /* over all devices, when it was given and now */
    struct ladder_rung steps;     /* in force, those of lower rungs included */
};
struct core_totals {
    uint64_t revision, granted, refused, timed_out;
    uint32_t devices, tenants, clients, leases, waiting;
};

void core_totals_get(const struct core *core, struct core_totals *ret);
/* Each is false where there is none; nothing is written then. */
bool core_device_get(const struct core *core, uint32_t device, struct core_device_view *ret);
bool core_tenant_get(const struct core *core, uint32_t tenant, struct core_tenant_view *ret);
bool core_tenant_find(const struct core *core, const char *name, uint32_t *ret_tenant);
bool core_tenant_device_get(
    const struct core *core, uint32_t tenant, uint32_t device, struct core_tenant_device_view *ret);
bool core_pressure_get(
    const struct core *core, uint32_t tenant, uint32_t device, struct core_pressure_view *ret);
bool core_device_pressure(
    const struct core *core, uint32_t device, enum pressure_level *ret_level, uint64_t *ret_used);
bool core_advice_get(const struct core *core, uint32_t tenant, struct core_advice_view *ret);
bool core_lease_get(const struct core *core, core_id lease, struct core_lease_view *ret);
/* The next one behind `after` (0: the first) in slot order: for paged lists. No steward is one. */
bool core_client_next(const struct core *core, core_id after, struct core_client_view *ret);
bool core_lease_next(const struct core *core, core_id after, struct core_lease_view *ret);
/* The tenant's values as one record, for a change of some of them. */
bool core_tenant_config_get(
    const struct core *core, uint32_t tenant, struct core_tenant_config *ret);
/* The client's next lease behind `after` (0: the first), in the order of grants. */
bool core_client_lease_next(const struct core *core, core_id client, core_id after, core_id *ret);
/* Whether the client is a holder of the lease, and has its chunk `index`. */
bool core_holder_find(const struct core *core, core_id lease, core_id client);
bool core_holder_has(const struct core *core, core_id lease, core_id client, uint32_t index);
/* Chunk `index` of a lease; false for an empty index of an arena. */
bool core_lease_chunk(const struct core *core, core_id lease, uint32_t index, uint32_t *ret_chunk,
    uint32_t *ret_generation);
