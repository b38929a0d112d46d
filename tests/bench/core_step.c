/*
 * The core alone, with a shell that does every job at once. All sizes run in turns, round after
 * round, and the best round of each counts: what disturbs the machine disturbs all of them.
 *
 * The lease that is released is the one just granted, so this measures how much the core does, not
 * how far its objects are from the processor's caches: releasing one of 10^5 leases at random takes
 * about three times as long as one of 10^2 for that reason alone.
 */
#include <errno.h>

#include "base/clock.h"
#include "base/macro.h"
#include "daemon/core/core.h"
#include "tests/bench/bench.h"

#define CHUNK_BYTES (UINT64_C(2) << 20)
#define CLIENTS 100
#define ROUNDS 30
#define PAIRS 2000 /* in one round */

static const unsigned sizes[] = {100, 1000, 10000, 100000};

struct bed {
    struct core *core;
    core_id clients[CLIENTS];
    uint64_t now_ns, requests, held_bytes, total_bytes;
    core_id granted;
    unsigned turn;
    double best_ns;
};

static struct core_actions actions;

static void bed_step(struct bed *bed, const struct core_event *event);

/* What the shell does about an action. */
static void bed_job(struct bed *bed, const struct core_action *job)
{
    struct core_event event = {0};

    if (job->type == CORE_ACTION_MEMORY_OBSERVE) {
        event.type = CORE_EVENT_MEMORY_OBSERVED;
        event.observed.free_bytes = bed->total_bytes - bed->held_bytes;
    } else if (job->type == CORE_ACTION_CHUNK_CREATE) {
        event.type = CORE_EVENT_CHUNK_CREATED;
        event.chunk.chunk = job->chunk.chunk;
        event.chunk.generation = job->chunk.generation;
        bed->held_bytes += job->chunk.bytes;
    } else {
        if (job->type == CORE_ACTION_GRANT)
            bed->granted = job->grant.lease;
        else if (job->type == CORE_ACTION_CLIENT_ADDED)
            bed->granted = job->client;
        return;
    }
    bed_step(bed, &event);
}

static void bed_step(struct bed *bed, const struct core_event *event)
{
    struct core_action jobs[4]; /* a copy: answers are steps too, and few at a time here */
    size_t count;

    bed->now_ns += 1000;
    core_step(bed->core, event, bed->now_ns, &actions);
    count = MIN(actions.count, ARRAY_SIZE(jobs));
    for (size_t i = 0; i < count; i++)
        jobs[i] = actions.items[i];
    for (size_t i = 0; i < count; i++)
        bed_job(bed, &jobs[i]);
}

static core_id bed_request(struct bed *bed, core_id client)
{
    struct core_event event = {.type = CORE_EVENT_LEASE_REQUEST, .client = client};

    event.request = ++bed->requests;
    event.lease_request.bytes = event.lease_request.chunk_bytes = CHUNK_BYTES;
    bed->granted = 0;
    bed_step(bed, &event);
    return bed->granted;
}

static int bed_make(struct bed *bed, unsigned leases)
{
    static struct core_tenant_config tenant = {.name = "bench",
        .weight = 1,
        .clients_max = UINT32_MAX,
        .leases_max = UINT32_MAX,
        .memory[0] = {0, 0, UINT64_MAX, UINT64_MAX}};
    struct core_event event = {.type = CORE_EVENT_DEVICE_ADD};
    int r = core_new(&core_options_default, &bed->core);

    if (r < 0)
        return r;
    bed->now_ns = 1;
    bed->best_ns = 1e9;
    bed->total_bytes = UINT64_C(1) << 40;
    event.device_add.total_bytes = bed->total_bytes;
    event.device_add.granularity_bytes = CHUNK_BYTES;
    bed_step(bed, &event);
    event = (struct core_event){.type = CORE_EVENT_CONFIGURE};
    event.configure.tenants = &tenant;
    event.configure.count = 1;
    bed_step(bed, &event);
    for (unsigned i = 0; i < CLIENTS; i++) {
        event = (struct core_event){.type = CORE_EVENT_CLIENT_ADD};
        event.client_add.tenant = tenant.name;
        bed_step(bed, &event);
        bed->clients[i] = bed->granted;
    }
    for (unsigned i = 0; i < leases; i++) {
        if (bed_request(bed, bed->clients[i % CLIENTS]) == 0)
            return -EIO;
    }
    return 0;
}

static int bed_round(struct bed *bed)
{
    uint64_t start_ns = clock_now(&clock_monotonic);
    double each_ns;

    for (unsigned i = 0; i < PAIRS; i++) {
        core_id client = bed->clients[bed->turn++ % CLIENTS];
        struct core_event event = {.type = CORE_EVENT_LEASE_RELEASE, .client = client};

        event.lease_release.lease = bed_request(bed, client);
        if (event.lease_release.lease == 0)
            return -EIO;
        event.request = ++bed->requests;
        bed_step(bed, &event);
    }
    each_ns = (double) (clock_now(&clock_monotonic) - start_ns) / PAIRS;
    bed->best_ns = MIN(bed->best_ns, each_ns);
    return 0;
}

int bench_core_step_scaling(struct bench_row *rows, size_t max)
{
    static struct bed beds[ARRAY_SIZE(sizes)];
    double slowest_ns = 0, fastest_ns = 1e9;
    int r = 0;

    if (max < 1)
        return -ENOSPC;
    for (size_t i = 0; r == 0 && i < ARRAY_SIZE(sizes); i++)
        r = bed_make(&beds[i], sizes[i]);
    for (unsigned round = 0; r == 0 && round < ROUNDS; round++) {
        for (size_t i = 0; r == 0 && i < ARRAY_SIZE(sizes); i++)
            r = bed_round(&beds[i]);
    }
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        slowest_ns = MAX(slowest_ns, beds[i].best_ns);
        fastest_ns = MIN(fastest_ns, beds[i].best_ns);
        beds[i].core = core_free(beds[i].core);
        beds[i] = (struct bed){0};
    }
    if (r < 0)
        return r;
    rows[0] = (struct bench_row){.name = "core_step_scaling",
        .value = slowest_ns,
        .unit = "ns",
        .floor = fastest_ns,
        .ratio = slowest_ns / fastest_ns,
        .budget = 1.3,
        .met = slowest_ns <= 1.3 * fastest_ns};
    return 1;
}
