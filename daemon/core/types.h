/*
 * The core's objects. Only daemon/core and its unit tests include this.
 *
 *   account   what one tenant has on one device; each device has one more, `nobody`, for chunks
 *             that no tenant pays for. Every chunk is charged to exactly one account at any time
 *   holder    one client's part in a lease: which of its chunks its process has, or may have
 *             mapped. A lease has one holder or, if it is shared, several of one tenant
 *   steward   a client that is no process: it holds what is to outlive every process
 *   charge    the token in the chunk that says which account pays, and under which heading
 *   pool      chunks of one size on one account that lie ready: CACHED ones of a tenant, CLEAN ones
 *             of nobody
 *   suspects  bytes that the driver took back from us and that are still not free
 *   gang      one request for leases on several devices: its parts are requests that are queued on
 *             their devices and admitted, granted or refused in one step, all together
 *   epoch     one batch of releases of one account, between two looks at the device's free memory
 */
#pragma once

#include <assert.h>

#include "base/clock.h"
#include "base/heap.h"
#include "base/list.h"
#include "daemon/core/core.h"
#include "daemon/core/slots.h"

enum chunk_state {
    CHUNK_NONE,
    CHUNK_CREATING,  /* asked of the driver, or about to be */
    CHUNK_CLEAN,     /* created, never leased */
    CHUNK_LEASED,    /* part of a lease, or of one that is being put together */
    CHUNK_CACHED,    /* returned, kept for the same tenant */
    CHUNK_RELEASING, /* to be released, or the driver is at it */
    CHUNK_RELEASED,  /* the driver took it back; not yet seen to be free */
    CHUNK_STATE_MAX
};

enum request_state {
    REQUEST_NONE,
    REQUEST_QUEUED,
    REQUEST_CREATING, /* admitted and charged; its chunks are being made */
    REQUEST_GRANTED,
    REQUEST_REFUSED,
    REQUEST_CANCELLED,
    REQUEST_STATE_MAX
};

enum lease_state {
    LEASE_NONE,
    LEASE_PENDING, /* its request isn't granted yet */
    LEASE_ACTIVE,
    LEASE_ENDED,
    LEASE_STATE_MAX
};

enum client_state { CLIENT_NONE, CLIENT_ACTIVE, CLIENT_DETACHED, CLIENT_DEAD, CLIENT_STATE_MAX };

enum verify_phase {
    VERIFY_IDLE,
    VERIFY_RELEASING, /* a look, the releases and another look are with the shell */
    VERIFY_LOOKING,   /* all released; waiting for what the next look shows */
    VERIFY_PHASE_MAX
};

struct account;

/* Zeroed: charged to nothing. */
struct charge {
    struct account *account;
    uint64_t bytes;
    enum chunk_state heading;
};

/* Suspects of one slice of time, so that the number of records stays small. */
struct suspect {
    uint64_t bytes, since_ns;
};
#define SUSPECT_SLICES 4 /* to one orphan_grace_ns */
#define SUSPECT_RECORDS (SUSPECT_SLICES + 2)

struct account {
    struct tenant *tenant; /* NULL: nobody */
    struct device *device;
    struct core_memory_limits limits;
    uint64_t bytes[CHUNK_STATE_MAX]; /* of its chunks, by state */
    uint64_t used;                   /* all of them and the suspects */
    uint64_t peak;                   /* most that `used` ever was */

    struct suspect young[SUSPECT_RECORDS]; /* oldest first */
    uint32_t young_count;
    uint64_t suspects; /* sum of `young` and `orphaned` */
    uint64_t orphaned, orphaned_since_ns;
    uint64_t twice; /* while it is restored: bytes that may be among the suspects, and a chunk's */
    bool leaks;     /* its last epoch ended with bytes missing */
    bool changed;   /* its suspects; of nobody's: what others use, and the draining of the device */

    struct list pools;     /* struct pool.link */
    struct list idle;      /* struct chunk.age, oldest first: all chunks of all pools */
    struct list releasing; /* struct chunk.link, to be handed to the driver */
    struct list waiting;   /* struct request.queue_link, by arrival */
    struct list idle_link; /* device.idle_accounts */
    struct list releasing_link;
    struct list waiting_link;
    struct list suspect_link;
    struct list over_link; /* device.over_accounts: used above a MemoryMax that was lowered */
    uint64_t over_reclaim_ns;
    struct list supply;      /* struct request.supply_link: with chunks to be asked for */
    struct list supply_link; /* device.supply */
    uint32_t issued;         /* CREATING chunks that the shell was asked for */
    uint32_t waiting_count;
    uint64_t waiting_bytes; /* of the requests that wait */

    uint32_t active_clients, stalled_clients; /* connected ones: see stalled.h */
    struct stall stall;
    struct pressure_state pressure;
    uint8_t shown_device_level; /* as the shell was told last … */
    uint64_t shown_ns;          /* … which was then */
    uint64_t wait_mean_ns;
    struct heap_node due;     /* core.pressures: when to look again though nothing happened */
    struct list touched_link; /* device.touched: something changed within this step */
};

struct pool {
    struct list link; /* account.pools */
    struct list hash_link;
    struct account *account;
    uint64_t chunk_bytes;
    uint32_t count;
    struct list chunks; /* struct chunk.link; first: returned last */
};
#define POOL_BUCKETS 4096

struct chunk {
    struct slot slot;
    struct charge charge;
    uint64_t since_ns;       /* CLEAN, CACHED: since when */
    struct list link;        /* pool, account.releasing or verify.chunks */
    struct list age;         /* account.idle */
    struct lease *lease;     /* LEASED, and CREATING for one */
    struct request *request; /* CREATING for one */
    uint32_t index;          /* in the lease */
    uint16_t holders;        /* LEASED: that have it. It comes back when none has */
    uint8_t state;           /* enum chunk_state */
    bool issued : 1;         /* CREATING, RELEASING: the shell has the job */
    bool exposed : 1;        /* was granted once: never goes to another tenant */
    bool forsaken : 1;       /* not to be granted again: a holder died with it, whose process may
                                have handed it on, or the shell can't pass it on any more */
    bool stuck : 1;          /* LEASED: the broker has no handle, its holders have the memory */
};

struct verify {
    enum verify_phase phase;
    struct account *account;
    struct list chunks;  /* of the epoch: RELEASING, then RELEASED */
    uint32_t unanswered; /* releases */
    uint64_t started_ns; /* when all were released */
    uint64_t pause_ns;   /* before the next look */
    uint64_t look_ns;    /* when that is; CLOCK_NEVER while one is with the shell */
};

/* What a device has for everybody: when it changes, every tenant's headroom there does. */
struct common {
    uint64_t ready, unused_min, reserved;
    uint32_t reserved_priority;
    uint32_t level;
    bool draining;
};

/* All tenants' figures on one device are looked at anew, some in each step. */
struct sweep {
    struct common seen; /* as it was when the last sweep began */
    uint64_t began_ns;
    uint32_t next; /* tenant's index, while one runs */
    bool running, wanted;
};

struct device {
    struct core *core;
    uint32_t index;
    uint64_t total, reserve, granularity, capacity;
    uint64_t bytes[CHUNK_STATE_MAX]; /* sums over its accounts … */
    uint64_t suspects, orphaned;
    uint64_t owned;      /* … and of these */
    uint64_t min_sum;    /* MemoryMin of all tenants */
    uint64_t unused_min; /* max(0, MemoryMin - used) of all tenants */
    uint64_t spare;      /* CACHED bytes of all tenants, as far as these stay above MemoryMin */
    uint64_t others;     /* what was last seen in use that is neither ours nor suspect */
    uint64_t stuck;      /* of the leased bytes: held by their holders alone, part of `others` */
    uint32_t changed;    /* accounts that are marked so */
    /* Kept back for a process of the shell's that isn't there, as if others used it. */
    uint64_t hold, hold_wanted; /* … and from the next look on, which sees what it has by then */
    uint32_t hold_looks;        /* looks that were on their way before */
    struct account nobody;

    struct list idle_accounts, releasing_accounts, waiting_accounts, suspect_accounts,
        over_accounts;
    struct list supply; /* struct account.supply_link, whose turn it is first */
    uint32_t issued;    /* sum over its accounts */
    uint32_t waiting_count;
    uint32_t gang_count;         /* of these, parts of gangs */
    uint64_t recent_chunk_bytes; /* size last asked for */
    uint64_t
        ahead_chunk_bytes; /* for the first whom the device holds back, 0: nobody; its size … */
    uint64_t ahead_bytes;  /* … and what may be made ready for it */

    struct verify verify;
    uint32_t looks; /* MEMORY_OBSERVE with the shell */
    uint64_t observe_ns, observe_pause_ns;
    uint64_t create_after_ns; /* the driver said no: not before */
    uint64_t expire_ns;       /* no ready chunk is due for release before */
    uint64_t age_ns;          /* no suspect is due to be called orphaned before */
    bool whole;               /* a lease is one chunk */
    bool draining;            /* an operator empties it: nothing new is granted */
    bool failed;              /* it is lost or broken: nor here */
    bool drain;               /* something changed that may let a request through */

    uint64_t reserved;          /* by requests that the last drain left waiting … */
    uint32_t reserved_priority; /* … of tenants of at most this Priority */
    struct pressure_state pressure;
    struct list touched;
    struct sweep sweep;
};

struct tenant {
    uint32_t index;
    char name[LIMIT_NAME_BYTES + 1];
    uint64_t revision;
    uint32_t priority, weight, clients_max, leases_max, tier_format;
    bool configured;
    bool dropped; /* was configured; kept until its last byte is back */
    bool changed; /* new: not written down yet */
    uint32_t clients, leases, leases_pending, waiting;
    uint32_t arenas, segments; /* of the leases, and … */
    uint32_t index_count;      /* … the indices of both */
    uint32_t attached;         /* holders of its leases beyond the first of each */
    uint32_t stewards;         /* clients that `clients` doesn't count */
    struct ladder ladder;
    struct ladder_state rung;
    struct ladder_rung asked; /* steps of the last advice */
    uint64_t advice, advice_ns, advice_used;
    struct heap_node ladder_due; /* core.ladders */
    uint32_t account_count;
    struct account accounts[]; /* by device index */
};

/* What a client has and waits for on one device. */
struct client_device {
    uint32_t leases;  /* and those that it asks for */
    uint16_t waiting; /* QUEUED requests */
    bool restoring;   /* wanted pages are not there yet */
    bool stalled;     /* one of both */
};
static_assert(LIMIT_REQUESTS_PER_CLIENT <= UINT16_MAX, "a client's requests can be counted");

struct client {
    struct slot slot;
    struct tenant *tenant;
    enum client_state state;
    bool steward;
    struct list holdings; /* struct holder.client_link, of ACTIVE leases */
    struct list requests; /* struct request.client_link */
    uint32_t holding_count, request_count;
    uint64_t leased_bytes;          /* that it has; what is shared counts for each holder */
    struct client_device devices[]; /* by device index */
};

/* The number under which a holder of a segment is written down. Of an arena's holders the lease and
 * the place are one; a segment may have too many for that. */
struct seat {
    struct slot slot;
    struct holder *holder;
};

struct holder {
    struct list lease_link;  /* lease.holders, in the order in which they came */
    struct list client_link; /* client.holdings once the lease is ACTIVE */
    struct lease *lease;
    struct client *client;
    struct seat *seat; /* of a segment's; NULL: of another lease's */
    uint32_t count;    /* granted chunks that it has */
    uint8_t place;     /* among an arena's holders, its own as long as it is there */
    bool open;         /* it gets what is filled from now on */
    uint64_t has[];    /* a bit for each index; of a workspace it has all */
};

struct lease {
    struct slot slot;
    struct account *account;
    enum lease_state state;
    enum core_lease_kind kind;
    struct list holders; /* struct holder.lease_link; a PENDING lease has one, too */
    uint32_t holder_count;
    uint64_t chunk_bytes, since_ns;
    uint32_t count; /* granted chunks */
    uint32_t max;   /* indices, any of which may be empty; 0: a workspace, which has no holes */
    uint32_t room;
    struct chunk **chunks;  /* by index: granted ones, and those of requests that are CREATING */
    struct list requests;   /* struct request.lease_link, in flight for this lease … */
    uint32_t request_count; /* … at most one unless it is an arena */
    uint16_t changed;       /* holders' places that were taken or left, a bit each */
};

struct gang {
    struct list link; /* core.gangs_fit, while all parts of it seem to fit */
    uint64_t step;    /* what follows holds for this one of the core's steps */
    uint32_t fits;    /* parts that their devices have room for */
    bool ranked;
    uint64_t used, requested; /* what it is ranked by, the same on all devices */
    uint32_t count;
    struct request *parts[]; /* as asked for, each on another device */
};

struct request {
    struct slot slot;
    uint64_t id;             /* the client's */
    struct gang *gang;       /* that it is a part of; NULL: none */
    uint64_t reserved_bytes; /* by those before it, when it last seemed to fit: of a gang's part */
    struct client *client;
    struct lease *lease; /* PENDING for a new one */
    enum request_state state;
    uint64_t bytes;
    uint32_t first, count; /* indices in the lease */
    bool supplied;         /* chunks stand at these indices */
    bool urgent;           /* goes before those of its tenant that are not */
    uint64_t reclaim_ns;   /* no RECLAIM is asked for on its behalf before */
    uint64_t wished_bytes; /* by the last RECLAIM on its behalf */
    bool unheard;          /* … of which nothing came until the next was due */
    uint64_t arrival;
    uint64_t wait_ns;
    bool immediate;       /* may not wait for others, only for what the broker itself recovers */
    bool throttled;       /* has served its MemoryHigh pause */
    enum gmb_limit limit; /* that held it back last … */
    uint64_t available_bytes; /* … and what it had left */
    uint64_t not_before_ns;
    struct heap_node deadline; /* in core.deadlines while QUEUED */
    struct heap_node wake;     /* in core.wakes while not_before_ns lies ahead */
    struct list client_link;
    struct list lease_link;
    struct list queue_link;  /* account.waiting while QUEUED */
    struct list supply_link; /* account.supply while chunks are to be asked for */
    uint32_t next_issue;     /* index in the lease of the next chunk to ask for */
    uint32_t outstanding;    /* asked for and not answered */
    uint32_t missing;        /* not there yet */
};

struct core {
    struct core_options options;
    uint64_t now_ns;
    struct core_actions *actions; /* of the step that runs */
    bool more;                    /* work is left over for the next step */
    struct device *devices[LIMIT_DEVICES];
    uint32_t device_count;
    struct tenant *tenants[LIMIT_TENANTS];
    uint32_t tenant_high, tenant_count, dropped_tenants, changed_tenants;
    struct lease *changed_lease; /* whose holders are to be written */
    uint32_t stewards;           /* of all tenants: in `clients` */
    struct slots clients, leases, requests, chunks, seats;
    struct list pools[POOL_BUCKETS];
    struct heap deadlines, wakes;
    struct heap pressures, ladders; /* struct account.due, struct tenant.ladder_due */
    struct list gangs_fit;          /* struct gang.link, in the step that runs */
    uint64_t steps;
    uint64_t revision, arrivals;
    uint64_t granted, refused, timed_out;
    uint32_t active_leases, waiting;
    struct fairness_claim *claims; /* LIMIT_TENANTS of them, for one drain at a time */
};
