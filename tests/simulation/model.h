/*
 * What the simulation knows by itself, to hold against the core: devices with their real free
 * memory and the jobs that the shell has for them, every chunk with the tenant it once belonged to,
 * every client with the leases and requests it knows of.
 *
 * Everything follows from the seed. model_fail() prints how to replay and ends the process.
 */
#pragma once

#include <assert.h>
#include <stdio.h>

#include "base/macro.h"
#include "daemon/core/core.h"

#define MIB (UINT64_C(1) << 20)
#define MS UINT64_C(1000000)
#define SEC UINT64_C(1000000000)

#define MODEL_DEVICES 3
#define MODEL_TENANTS 6
#define MODEL_PROCESSES 48
#define MODEL_CLIENTS (MODEL_PROCESSES + MODEL_TENANTS) /* behind them each tenant's steward */
#define MODEL_LEASES 6                                  /* of one client */
#define MODEL_REQUESTS 6                                /* of one client in flight */
#define MODEL_JOBS 4096                                 /* of one device */
#define MODEL_CHUNKS 16384
#define MODEL_LEAKS 512 /* a device has no more chunks at a time, given back or not */

struct model_leak {
    uint64_t bytes, until_ns;
    uint64_t mapped; /* by clients, a bit each: as long as they live */
};

struct model_device {
    uint64_t total, reserve;
    uint64_t others, held, leaked;
    struct core_action jobs[MODEL_JOBS];
    size_t job_first, job_count;
    struct model_leak leaks[MODEL_LEAKS];
    size_t leak_count;
    bool draining, failed;
    uint64_t wished_bytes; /* by RECLAIM, not answered yet */
    int wished_of;         /* tenant; -1: of anybody */
};

struct model_chunk {
    bool created;
    uint32_t generation, device;
    uint64_t bytes;
    int tenant;            /* it was granted to; -1: to none yet */
    uint64_t holders;      /* clients that have it, a bit each */
    uint64_t mapped;       /* those that hold it no longer, and go on to map it */
    bool forsaken;         /* one of them died with it or goes on to map it, or the shell lost it:
                              nobody gets it */
    bool segment;          /* it was granted for one: it is nobody's cache */
    bool leaky;            /* somebody keeps an fd: its bytes come back late */
    bool asked;            /* create or release is with the shell */
    uint64_t changed_step; /* when somebody got it last, or the shell lost it */
};

struct model_lease {
    core_id id;
    uint32_t chunks, device;
    uint32_t max;    /* indices of an arena, at most 64; 0: no arena */
    uint64_t filled; /* its indices whose chunks the client has, a bit each */
    bool open;       /* an arena: what is filled comes to this client, too */
    bool segment;
};

struct model_request {
    uint64_t id, deadline_ns;
    core_id lease; /* that grows or is filled; 0: a new one */
    uint32_t device, max;
    uint32_t first, count; /* indices that are filled */
    bool attach, share;    /* to the arena of another client; what is there already */
    bool segment;          /* a new one, or one that is attached to */
    uint32_t parts;        /* of a gang; 0: none */
    uint32_t devices[MODEL_DEVICES];
    uint32_t seen; /* parts that were granted: all in one step */
};

struct model_client {
    core_id id; /* 0: none */
    int tenant;
    bool detached;
    struct model_lease leases[MODEL_LEASES];
    struct model_request requests[MODEL_REQUESTS];
    uint64_t sync_request; /* one that is answered at once; 0: none */
    bool sync_done;        /* and how the last of these was */
};

/* What was written down, by type and number. */
#define MODEL_RECORDS 4096
struct model_ledger {
    struct core_record tenants[MODEL_TENANTS + 2];
    struct core_record accounts[MODEL_DEVICES][MODEL_TENANTS + 3]; /* the last: nobody */
    struct core_record clients[MODEL_RECORDS], leases[MODEL_RECORDS];
    struct core_record holders[MODEL_RECORDS * LIMIT_LEASE_HOLDERS], seats[MODEL_RECORDS];
    struct core_record chunks[MODEL_CHUNKS];
};

/* What the shell was told last of a tenant's pressure on a device, by the core's index … */
#define MODEL_SHOWN 64
struct model_shown {
    char name[LIMIT_NAME_BYTES + 1];
    uint64_t at_ns;
};
/* … and what it was asked last. */
struct model_asked {
    char name[LIMIT_NAME_BYTES + 1];
    uint64_t id;
};

struct model {
    uint64_t seed, random;
    uint64_t events, steps, now_ns, hash;
    uint64_t grants, refusals, timeouts, ooms, leaks, deaths, changes, orphaned_seen;
    uint64_t fills, returns, attached, shared, outlived, reclaims, own_reclaims, drains, gangs,
        holds, stales;
    uint64_t kept, seals, demotions, restores, removals, lost; /* of segments but the first */
    uint64_t core_ns; /* the core's time: that of a clock which went back is the latest before */
    uint64_t levels, advices, level_seen[PRESSURE_LEVEL_MAX];
    struct model_shown shown[MODEL_SHOWN][MODEL_DEVICES];
    struct model_asked asked[MODEL_SHOWN];
    struct core *core;
    struct core_actions actions;
    struct model_device devices[MODEL_DEVICES];
    struct model_chunk chunks[MODEL_CHUNKS];
    struct model_client clients[MODEL_CLIENTS];
    char names[MODEL_TENANTS][8];
    bool lowered[MODEL_TENANTS]; /* a limit was set below use, and use isn't below it yet */
    uint64_t next_request;
    uint64_t idle_ticks; /* in a row, that yielded nothing */
    bool still;          /* what others use never changes: then the ledger must be exact */
    bool calm;           /* no faults any more: the end of the run */
    uint64_t cuts, crashes;
    struct model_ledger ledger;
};

void model_fail(const struct model *model, const char *format, ...) _printf_(2, 3)
    __attribute__((noreturn));

/* Next random number, and one below `bound`; true once in `n`. */
uint64_t model_random(struct model *model);
uint64_t model_below(struct model *model, uint64_t bound);
bool model_chance(struct model *model, uint64_t n);

uint64_t model_bytes(struct model *model);
uint64_t model_chunk_bytes(struct model *model);
uint64_t model_wait(struct model *model);

void model_init(struct model *model, uint64_t seed);
uint64_t model_free(const struct model *model, unsigned device);

/* One step of the core, and everything that must hold after it. */
void model_step(struct model *model, const struct core_event *event);
/* Ticks that are due. */
void model_tick(struct model *model);
/* The shell's next answer for a device, if it has a job. */
bool model_answer(struct model *model, unsigned device);
/* Leaked memory whose time has come goes back; what others use changes. */
void model_drift(struct model *model);

/* Indices [first, first + count) as bits; count > 0, all below 64. */
static inline uint64_t model_run(uint32_t first, uint32_t count)
{
    return (UINT64_MAX >> (64 - count)) << first;
}

/* Parts of random events that several kinds have in common. */
/* One that the core takes has its id, another none. */
void model_client_add(
    struct model *model, struct model_client *client, unsigned tenant, bool steward);
/* Its process is dead. */
void model_client_die(struct model *model, struct model_client *client);
/* The client's next request, for a lease that it has or (0) `leases` new ones; its place is taken.
 * NULL when it has too many. */
struct model_request *model_ask(struct model *model, struct model_client *client, core_id lease,
    unsigned leases, uint64_t wait_ns, struct core_event *event);
bool model_grows(const struct model_client *client, core_id lease);
/* What the client lets go of at an index, before the step, which may hand it on. */
void model_let_go(struct model *model, const struct model_client *client,
    const struct model_lease *lease, uint32_t index);
/* The client gives a lease back, and goes on to map it if it is `held`. */
void model_release(
    struct model *model, struct model_client *client, struct model_lease *lease, bool held);
/* A request of its own is withdrawn, or one that there isn't. */
void model_cancel(struct model *model, struct model_client *client);
/* An event that is answered at once. True when it was done. */
bool model_sync(struct model *model, struct model_client *client, struct core_event *event);

static inline uint64_t model_bit(const struct model *model, const struct model_client *client)
{
    return UINT64_C(1) << (client - model->clients);
}
static_assert(MODEL_CLIENTS <= 64, "a bit for each client");

static inline bool model_steward(const struct model *model, const struct model_client *client)
{
    return client - model->clients >= MODEL_PROCESSES;
}

/* What the client knows of a lease; NULL when it holds no part of it. */
struct model_lease *model_lease_of(struct model_client *client, core_id lease);
/* Leases on several devices at once. */
void model_gang_request(struct model *model, struct model_client *client);

/* Random events of arenas. */
void model_arena_request(struct model *model, struct model_client *client);
void model_arena_fill(struct model *model, struct model_client *client);
void model_arena_return(struct model *model, struct model_client *client);
/* Of a certain run, whether it makes sense or not. */
void model_fill_run(struct model *model, struct model_client *client,
    const struct model_lease *lease, uint32_t first, uint32_t count);
void model_return_run(struct model *model, struct model_client *client, struct model_lease *lease,
    uint32_t first, uint32_t count);
/* What the core has of an arena is what was granted to its holders and not returned by all. */
void model_arena_compare(struct model *model, core_id lease);
/* A client attaches to an arena of another one, or is given what is there. */
void model_arena_attach(struct model *model, struct model_client *client);
void model_arena_share(struct model *model, struct model_client *client);
/* To a certain one; NULL when it isn't allowed, or the client has too many. */
struct model_lease *model_attach(
    struct model *model, struct model_client *client, const struct model_lease *arena);
void model_share_run(struct model *model, struct model_client *client, struct model_lease *lease,
    uint32_t first, uint32_t count);
/* What the shell does about wishes for memory: some chunks of arenas come back. */
void model_arena_reclaim(struct model *model);
void model_device_drain(struct model *model);
/* Seldom: a device is out of service until the run ends. */
void model_device_fail(struct model *model);
void model_device_hold(struct model *model);
void model_device_stale(struct model *model);

/* Random events of segments. */
void model_segment_request(struct model *model, struct model_client *client);
/* One that the client has becomes its tenant's steward's, too. */
void model_segment_seal(struct model *model, struct model_client *client);
/* Some steward empties a segment, fills it, lets go of it, or goes. */
void model_steward_event(struct model *model);
/* The shell can't go on with any: stewards let go of them, and readers, which go on to map them. */
void model_segments_lose(struct model *model);

/* Random changes of the configuration: of all tenants, of one. */
void model_configure(struct model *model);
void model_tenant_set(struct model *model);
/* From here on a tenant may be above its limit, if a change was taken. */
void model_lowered(struct model *model);

void model_ladder(struct model *model, struct ladder *ladder);
void model_restore_wait(struct model *model, struct model_client *client);
void model_watch_pressure(struct model *model, const struct core_action *action);
/* After a step: whoever is the first client of a tenant again is shown everything anew. */
void model_watch_quiet(struct model *model);
void model_watch_advice(struct model *model, const struct core_action *action);

/*
 * Takes down what the step has changed. At times the writes are cut off anywhere, and a core is
 * made of what is there: it must add up, and everybody must have what they had before the step.
 */
void model_ledger_step(struct model *model);
/* The core is thrown away, with the jobs that the shell had, and made again; clients come back. */
void model_crash(struct model *model);

/* A random event of a random kind. */
void model_event(struct model *model);
/* Everything ends: kills all clients, stops all faults; every account must come to zero. */
void model_end(struct model *model);
