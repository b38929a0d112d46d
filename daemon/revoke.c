/*
 * What is outstanding is read from the ledger each time, so that a lease that was shrunk, released
 * or lost with its process needs no word to this file.
 */
#include "daemon/revoke.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/size.h"
#include "daemon/broker.h"
#include "daemon/grant.h"
#include "daemon/last_resort.h"
#include "daemon/message.h"

/* Leases looked at in one turn: some hundred microseconds. */
#define TURN_LEASES 1024
#define ROWS_FIRST 256
/* The memory of a plan has an end: 3 MiB. What is beyond is asked another time. */
#define ROWS_MAX 65536
/* Workers asked by one plan: what is beyond is asked for again. */
#define STEPS_MAX 16

/* A workspace that was asked back. */
struct revocation {
    struct list link; /* revoker.asked */
    core_id lease, client;
    uint32_t tenant, beneficiary;
    uint32_t keep_chunks; /* what is beyond is asked for */
    uint64_t due_ns;
    bool overdue;
    bool needed; /* since it was last looked at, a plan for the beneficiary fell short again */
    enum reclaim_kill_verdict said; /* logged last; _MAX: none */
};

void revoke_init(struct revoker *revoker)
{
    list_init(&revoker->asked);
}

static void revocation_free(struct revoker *revoker, struct revocation *revocation)
{
    list_remove(&revocation->link);
    revoker->asked_count--;
    free(revocation);
}

static void leases_forget(struct revoker *revoker)
{
    free(TAKE_PTR(revoker->leases));
    free(TAKE_PTR(revoker->taken));
    revoker->count = revoker->room = 0;
    revoker->looking = false;
}

void revoke_clear(struct revoker *revoker)
{
    list_for_each_safe(revocation, &revoker->asked, struct revocation, link)
        revocation_free(revoker, revocation);
    leases_forget(revoker);
    revoker->wish_count = 0;
}

void revoke_note(struct hosting *hosting, uint32_t tenant, uint64_t bytes, uint64_t wanted)
{
    struct revoker *revoker = &hosting->revoker;
    size_t i = 0;

    if (!hosting->broker->config->revoke || bytes == 0)
        return;
    list_for_each(revocation, &revoker->asked, struct revocation, link)
    {
        if (revocation->beneficiary == tenant && revocation->overdue)
            revocation->needed = true;
    }
    while (i < revoker->wish_count && revoker->wishes[i].beneficiary != tenant)
        i++;
    if (i == REVOKE_WISHES)
        return;
    revoker->wishes[i] =
        (struct revoke_request){.bytes = bytes, .beneficiary = tenant, .wanted = wanted};
    revoker->wish_count = MAX(revoker->wish_count, i + 1);
    hosting_kick(hosting);
}

/* ------------------------------------------------------------------ what is outstanding */

static uint64_t outstanding(const struct hosting *hosting, const struct revocation *revocation)
{
    struct core_lease_view lease;

    if (!core_lease_get(hosting->broker->core, revocation->lease, &lease))
        return 0;
    return sub_saturate(lease.chunks, revocation->keep_chunks) * lease.chunk_bytes;
}

uint64_t revoke_coming(const struct hosting *hosting, uint32_t tenant)
{
    uint64_t bytes = 0;

    list_for_each(revocation, &hosting->revoker.asked, struct revocation, link)
    {
        if (revocation->beneficiary == tenant && !revocation->overdue)
            bytes += outstanding(hosting, revocation);
    }
    return bytes;
}

void revoke_count(const struct hosting *hosting, struct reclaim_tenant *rows)
{
    list_for_each(revocation, &hosting->revoker.asked, struct revocation, link)
    {
        struct reclaim_tenant *row = &rows[revocation->tenant];

        if (revocation->overdue)
            row->ignores_advice = true;
        else
            row->used = sub_saturate(row->used, outstanding(hosting, revocation));
    }
}

/* ------------------------------------------------------------------ candidates */

static bool is_asked(const struct revoker *revoker, core_id lease)
{
    list_for_each(revocation, &revoker->asked, struct revocation, link)
    {
        if (revocation->lease == lease)
            return true;
    }
    return false;
}

/* One that lives, and whose connection has ended: it is told when it is back. */
static bool is_away(const struct client *client)
{
    return client->session == NULL;
}

/* A worker that would be refused what it answers isn't asked, nor one that is just coming back. */
static const struct client *askable(
    const struct hosting *hosting, const struct core_lease_view *lease)
{
    const struct client *client = client_find(hosting->broker, lease->client);

    if (client == NULL || (!is_away(client) && (client_session(client) == NULL ||
                                                   grant_pending(client->session, lease->id))))
        return NULL;
    return client;
}

static bool leases_room(struct revoker *revoker)
{
    size_t room = revoker->room == 0 ? ROWS_FIRST : 2 * revoker->room;
    struct revoke_lease *leases;
    bool *taken;

    if (revoker->count < revoker->room)
        return true;
    if (room > ROWS_MAX)
        return false;
    leases = reallocarray(revoker->leases, room, sizeof(*leases));
    if (leases != NULL)
        revoker->leases = leases;
    taken = reallocarray(revoker->taken, room, sizeof(*taken));
    if (taken != NULL)
        revoker->taken = taken;
    if (leases == NULL || taken == NULL)
        return false;
    revoker->room = room;
    return true;
}

static void lease_look(struct hosting *hosting, const struct core_lease_view *lease)
{
    struct revoker *revoker = &hosting->revoker;
    const struct client *client;

    if (lease->device != hosting->device || lease->max_chunks != 0 || lease->chunks == 0 ||
        is_asked(revoker, lease->id) || (client = askable(hosting, lease)) == NULL ||
        !leases_room(revoker))
        return;
    revoker->leases[revoker->count++] = (struct revoke_lease){
        .tenant = lease->tenant,
        .bytes = lease->chunks * lease->chunk_bytes,
        .chunk_bytes = is_away(client) ? 0 : lease->chunk_bytes,
        .age_ns = sub_saturate(clock_now(hosting->broker->clock), lease->since_ns),
        .token = lease->id,
    };
}

/* Makes candidates of the leases of those that are away, or takes them out again; how many. */
static size_t away_offer(struct hosting *hosting, bool offered)
{
    struct revoker *revoker = &hosting->revoker;
    struct core_lease_view lease;
    size_t count = 0;

    for (size_t i = 0; i < revoker->count; i++) {
        const struct client *client;

        if (!core_lease_get(hosting->broker->core, revoker->leases[i].token, &lease) ||
            is_asked(revoker, lease.id) || (client = askable(hosting, &lease)) == NULL ||
            !is_away(client))
            continue;
        revoker->leases[i].chunk_bytes = offered ? lease.chunk_bytes : 0;
        count++;
    }
    return count;
}

/* Whether all of them have been looked at. */
static bool leases_turn(struct hosting *hosting)
{
    struct revoker *revoker = &hosting->revoker;
    struct core_lease_view lease;

    if (!revoker->looking) {
        leases_forget(revoker);
        revoker->looking = true;
        revoker->at = 0;
    }
    for (unsigned i = 0; i < TURN_LEASES; i++) {
        if (!core_lease_next(hosting->broker->core, revoker->at, &lease))
            return true;
        revoker->at = lease.id;
        lease_look(hosting, &lease);
    }
    return false;
}

/* ------------------------------------------------------------------ asking */

static void revoke_send(const struct client *client, core_id lease, uint64_t bytes, uint64_t ns)
{
    Gmb__BrokerMessage message = GMB__BROKER_MESSAGE__INIT;
    Gmb__LeaseRevoke body = GMB__LEASE_REVOKE__INIT;

    body.lease = lease;
    body.deadline_ns = ns;
    body.bytes = bytes;
    message.body_case = GMB__BROKER_MESSAGE__BODY_LEASE_REVOKE;
    message.lease_revoke = &body;
    message_send(client->session, &message);
}

/* The ledger may have changed since the lease was looked at: what is gone is not asked for. */
static void step_run(
    struct hosting *hosting, const struct revoke_request *request, const struct revoke_step *step)
{
    uint64_t timeout_ns = hosting->broker->config->revoke_timeout_ns;
    struct revoker *revoker = &hosting->revoker;
    char asked[SIZE_TEXT_MAX], whole[SIZE_TEXT_MAX];
    struct revocation *revocation;
    struct core_lease_view lease;
    const struct client *client;

    if (revoker->asked_count == LIMIT_REVOKED_LEASES ||
        !core_lease_get(hosting->broker->core, revoker->leases[step->lease].token, &lease) ||
        lease.chunks * lease.chunk_bytes < step->bytes ||
        (client = askable(hosting, &lease)) == NULL)
        return;
    revocation = malloc(sizeof(*revocation));
    if (revocation == NULL)
        return;
    *revocation = (struct revocation){
        .lease = lease.id,
        .client = client->id,
        .tenant = lease.tenant,
        .beneficiary = request->beneficiary,
        .keep_chunks = lease.chunks - (uint32_t) (step->bytes / lease.chunk_bytes),
        .due_ns = add_saturate(clock_now(hosting->broker->clock), timeout_ns),
        .said = RECLAIM_KILL_VERDICT_MAX,
    };
    list_init(&revocation->link);
    list_append(&revoker->asked, &revocation->link);
    revoker->asked_count++;
    log_info("  lease %llu of tenant %s (pid %d%s): %s of %s, %s", (unsigned long long) lease.id,
        client->tenant, (int) client->identity.pid, is_away(client) ? ", away" : "",
        size_format(asked, step->bytes), size_format(whole, lease.chunks * lease.chunk_bytes),
        reclaim_reason_name(step->reason));
    if (!is_away(client))
        revoke_send(client, lease.id, step->bytes, timeout_ns);
}

static void plan_log(
    struct hosting *hosting, const struct revoke_request *request, size_t count, uint64_t planned)
{
    struct revoker *revoker = &hosting->revoker;
    char bytes[SIZE_TEXT_MAX], plan[SIZE_TEXT_MAX];
    struct core_tenant_view view = {.name = ""};
    uint32_t nothing = request->beneficiary + 1;

    /* As a plan over arenas: one of nothing is made again and again, and said once. */
    if (count == 0 && revoker->told_nothing == nothing)
        return;
    revoker->told_nothing = count == 0 ? nothing : 0;
    (void) core_tenant_get(hosting->broker->core, request->beneficiary, &view);
    log_notice("device %u: tenant %s needs %s that no arena can give: %zu workspaces looked at, %s "
               "of %zu revoked",
        hosting->device, view.name, size_format(bytes, request->bytes), revoker->count,
        size_format(plan, planned), count);
}

static uint64_t plan_run(struct hosting *hosting, const struct revoke_request *request)
{
    struct revoker *revoker = &hosting->revoker;
    struct revoke_step steps[STEPS_MAX];
    uint64_t planned;
    size_t count = revoke_plan(request, reclaim_tenants_read(hosting), LIMIT_TENANTS,
        revoker->leases, revoker->count, revoker->taken, steps, STEPS_MAX, &planned);

    plan_log(hosting, request, count, planned);
    for (size_t i = 0; i < count; i++) {
        step_run(hosting, request, &steps[i]);
        /* No longer a candidate for the next wish. */
        revoker->leases[steps[i].lease].chunk_bytes = 0;
    }
    return planned;
}

/* Those that are away are asked for what the others can't give. */
static void wish_run(struct hosting *hosting, const struct revoke_request *request)
{
    struct revoke_request rest = *request;

    rest.bytes = sub_saturate(rest.bytes, plan_run(hosting, request));
    if (rest.bytes > 0 && away_offer(hosting, true) > 0) {
        (void) plan_run(hosting, &rest);
        (void) away_offer(hosting, false);
    }
}

void revoke_tell(struct hosting *hosting, const struct client *client)
{
    list_for_each(revocation, &hosting->revoker.asked, struct revocation, link)
    {
        uint64_t bytes = outstanding(hosting, revocation);

        if (revocation->client == client->id && bytes > 0)
            revoke_send(client, revocation->lease, bytes,
                sub_saturate(revocation->due_ns, clock_now(hosting->broker->clock)));
    }
}

/* ------------------------------------------------------------------ deadlines */

static void overdue_log(
    const struct hosting *hosting, const struct revocation *revocation, const char *what)
{
    const struct client *client = client_find(hosting->broker, revocation->client);

    log_warning("lease %llu (tenant %s, pid %d) was revoked and isn't given back: %s",
        (unsigned long long) revocation->lease, client != NULL ? client->tenant : "?",
        client != NULL ? (int) client->identity.pid : 0, what);
}

/* First it no longer counts as coming, so that others are asked; then the last resort is looked at,
 * as long as nobody else gives what is missing. */
static void revocation_overdue(struct hosting *hosting, struct revocation *revocation)
{
    bool needed = revocation->needed;
    enum reclaim_kill_verdict verdict;

    revocation->needed = false;
    if (!revocation->overdue) {
        revocation->overdue = true;
        overdue_log(hosting, revocation, "others are asked instead");
        return;
    }
    if (!needed)
        return;
    verdict = last_resort_try(hosting, client_find(hosting->broker, revocation->client),
        revocation->tenant, revocation->beneficiary, "revoked workspaces");
    if (verdict != RECLAIM_KILL_YES && verdict != revocation->said)
        overdue_log(hosting, revocation, reclaim_kill_verdict_name(verdict));
    revocation->said = verdict;
}

static void deadlines_turn(struct hosting *hosting)
{
    uint64_t now = clock_now(hosting->broker->clock);

    list_for_each_safe(revocation, &hosting->revoker.asked, struct revocation, link)
    {
        if (outstanding(hosting, revocation) == 0) {
            revocation_free(&hosting->revoker, revocation);
            continue;
        }
        if (revocation->due_ns <= now) {
            if (!last_resort_wanted(hosting, revocation->beneficiary)) {
                revocation_free(&hosting->revoker, revocation);
                continue;
            }
            revocation_overdue(hosting, revocation);
            revocation->due_ns = add_saturate(now, hosting->broker->config->revoke_timeout_ns);
        }
        hosting_at(hosting, revocation->due_ns);
    }
}

void revoke_turn(struct hosting *hosting)
{
    struct revoker *revoker = &hosting->revoker;

    if (!hosting->broker->config->revoke || hosting->broker->ending) {
        revoke_clear(revoker);
        return;
    }
    deadlines_turn(hosting);
    if (revoker->wish_count == 0)
        return;
    if (!leases_turn(hosting)) {
        hosting_kick(hosting);
        return;
    }
    for (size_t i = 0; i < revoker->wish_count; i++)
        wish_run(hosting, &revoker->wishes[i]);
    revoker->wish_count = 0;
    leases_forget(revoker);
    deadlines_turn(hosting);
}
