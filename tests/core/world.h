/*
 * A world around a core for its tests: devices whose free memory is modelled, a shell that answers
 * each job in order, a clock that moves when the test says so. After each step core_check() must
 * hold and the model must not have less than nothing free; otherwise the test ends there.
 */
#pragma once

#include "daemon/core/core.h"

#define WORLD_DEVICES 4
#define WORLD_TENANTS 8
#define WORLD_JOBS 8192
#define WORLD_ANSWERS 4096
#define WORLD_RECLAIMS 64
#define WORLD_RECORDS 8192
#define WORLD_LEVELS 64
#define WORLD_ADVICES 32

#define KIB (UINT64_C(1) << 10)
#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)
#define MS UINT64_C(1000000)
#define SEC UINT64_C(1000000000)

struct world_device {
    uint64_t total, others;
    uint64_t held;   /* the driver has it for us */
    uint64_t leaked; /* released, and kept by somebody */
};

/* A wish for memory out of arenas, and when it was uttered. */
struct world_reclaim {
    uint64_t at_ns, bytes, wanted;
    uint32_t device, tenant;
    bool own;
};

/* Another level of a tenant or of the device, as the shell was told. */
struct world_level {
    uint64_t at_ns;
    uint32_t device, tenant;
    enum pressure_level level, device_level;
};

struct world_advice {
    uint64_t at_ns;
    uint32_t tenant;
    struct core_advice_view view;
};

struct world {
    struct core *core;
    uint64_t now_ns;
    struct world_device devices[WORLD_DEVICES];
    struct core_tenant_config tenants[WORLD_TENANTS];
    size_t tenant_count;
    uint64_t next_request;

    bool held_up;         /* jobs wait until world_work() */
    unsigned leak_next;   /* so many releases to come don't bring memory back */
    unsigned refuse_next; /* so many creates to come find no memory */
    unsigned break_next;  /* so many creates to come fail for good */

    struct core_action jobs[WORLD_JOBS];
    size_t job_first, job_count;
    struct core_action answers[WORLD_ANSWERS]; /* to events */
    size_t answer_count;
    struct world_reclaim reclaims[WORLD_RECLAIMS]; /* the first ones; the shell does nothing */
    size_t reclaim_count;
    struct core_record records[WORLD_RECORDS]; /* all that was to be written, in order */
    size_t record_count;
    struct world_level levels[WORLD_LEVELS]; /* the first ones */
    struct world_advice advices[WORLD_ADVICES];
    size_t level_count, advice_count;
    size_t figures;                  /* PRESSURE actions in all */
    size_t creates, releases, looks; /* jobs seen */
    struct core_actions actions;     /* of the last step */
};

/* One device of `total` bytes; granularity 2 MiB. */
void world_init(struct world *world, const struct core_options *options, uint64_t total_bytes,
    uint64_t reserve_bytes);
void world_device_add(struct world *world, uint64_t total_bytes, uint64_t reserve_bytes);
/* One where a lease is one chunk. */
void world_device_add_whole(struct world *world, uint64_t total_bytes);
void world_done(struct world *world);

void world_step(struct world *world, const struct core_event *event);
/* Lets the shell do what waits, and what follows from it. */
void world_work(struct world *world);
/* Moves the clock, with every tick that falls due on the way. */
void world_pass(struct world *world, uint64_t ns);

/* A tenant with no limits, in the list that world_configure() sends; its values may be changed. */
struct core_tenant_config *world_tenant(struct world *world, const char *name);
/* The answer: CONFIGURED or REFUSED. */
const struct core_action *world_configure(struct world *world);
const struct core_action *world_set(
    struct world *world, const struct core_tenant_config *tenant, uint64_t expected_revision);
/* 0 when refused. */
core_id world_client(struct world *world, const char *tenant);
/* The shell's own, of the tenant. */
core_id world_steward(struct world *world, const char *tenant);
void world_detach(struct world *world, core_id client);
void world_kill(struct world *world, core_id client);

/* Each returns the number of the request. */
uint64_t world_request(struct world *world, core_id client, uint32_t device, uint64_t bytes,
    uint64_t chunk_bytes, uint64_t wait_ns);
uint64_t world_segment(struct world *world, core_id client, uint32_t device, uint64_t bytes,
    uint64_t chunk_bytes, uint64_t wait_ns);
uint64_t world_gang(struct world *world, core_id client, const struct core_gang_part *parts,
    uint32_t count, uint64_t wait_ns);
uint64_t world_grow(
    struct world *world, core_id client, core_id lease, uint64_t bytes, uint64_t wait_ns);
uint64_t world_shrink(struct world *world, core_id client, core_id lease, uint32_t keep_chunks);
uint64_t world_release(struct world *world, core_id client, core_id lease);
uint64_t world_cancel(struct world *world, core_id client, uint64_t request);
uint64_t world_arena(struct world *world, core_id client, uint32_t device, uint64_t chunk_bytes,
    uint32_t max_chunks);
uint64_t world_fill(struct world *world, core_id client, core_id lease, uint32_t first,
    uint32_t count, uint64_t wait_ns);
uint64_t world_fill_urgent(struct world *world, core_id client, core_id lease, uint32_t first,
    uint32_t count, uint64_t wait_ns);
uint64_t world_return(
    struct world *world, core_id client, core_id lease, uint32_t first, uint32_t count);
uint64_t world_attach(struct world *world, core_id client, core_id lease);
uint64_t world_share(
    struct world *world, core_id client, core_id lease, uint32_t first, uint32_t count);
void world_drain(struct world *world, uint32_t device, bool undo);
void world_restore_wait(struct world *world, core_id client, uint32_t device, bool waits);
struct core_pressure_view world_pressure(
    const struct world *world, const char *tenant, uint32_t device);
struct core_advice_view world_advice(const struct world *world, const char *tenant);
void world_fail(struct world *world, uint32_t device);
void world_hold(struct world *world, uint32_t device, uint64_t bytes);
void world_stale(struct world *world, uint32_t device);

/* The one answer to a request so far; NULL when there is none. Two end the test. Of a gang that was
 * granted the first part's; an incomplete one ends the test. */
const struct core_action *world_answer(const struct world *world, core_id client, uint64_t request);
/* The grant of one part of a gang; for a refusal, part 0. */
const struct core_action *world_part(
    const struct world *world, core_id client, uint64_t request, uint32_t part);
/* The lease that was granted at once; the test ends when it wasn't. */
core_id world_lease(struct world *world, core_id client, uint64_t bytes);

struct core_device_view world_device(const struct world *world, uint32_t device);
struct core_tenant_device_view world_use(
    const struct world *world, const char *tenant, uint32_t device);
uint64_t world_free(const struct world *world, uint32_t device);
