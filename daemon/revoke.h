/*
 * Workspaces are asked back where no arena can give what an entitled tenant waits for, if the
 * configuration allows it. A plan is made by policies/reclaim_revoke.h over the leases of the
 * device; workers are told by LeaseRevoke. One that lets the deadline pass is reminded by the log
 * and, as the last resort, killed; what it was asked for no longer counts as coming. So is one that
 * is away, as after a restart of the broker: it is asked for what no other can give, has as much
 * time, and is told if it comes back within it.
 */
#pragma once

#include "base/list.h"
#include "daemon/core/core.h"
#include "policies/reclaim_revoke.h"

struct client;
struct hosting;

/* Shortages that wait for the same look at the leases; those of more tenants come again. */
#define REVOKE_WISHES 16

/* Of one device. */
struct revoker {
    struct list asked; /* struct revocation.link */
    uint32_t asked_count;
    size_t wish_count;
    struct revoke_request wishes[REVOKE_WISHES];
    bool looking; /* at leases, one part of them in each turn … */
    core_id at;   /* … and the last one that was looked at */
    struct revoke_lease *leases;
    bool *taken; /* scratch of the policy */
    size_t count, room;
    uint32_t told_nothing; /* row + 1 of the tenant for whom a plan of nothing was logged last */
};

void revoke_init(struct revoker *revoker);
void revoke_clear(struct revoker *revoker);

/* A plan for the tenant fell short by so much. Nothing where the configuration forbids it. */
void revoke_note(struct hosting *hosting, uint32_t tenant, uint64_t bytes, uint64_t wanted);
/* Bytes that are asked back for the tenant, and may still come in time. */
uint64_t revoke_coming(const struct hosting *hosting, uint32_t tenant);
/* Takes what may still come off what the tenants use; who let a deadline pass doesn't listen. */
void revoke_count(const struct hosting *hosting, struct reclaim_tenant *rows);
/* The client is back: it is told what it was asked for before, with the time that is left. */
void revoke_tell(struct hosting *hosting, const struct client *client);
/* Looks at leases and deadlines as far as one turn goes. */
void revoke_turn(struct hosting *hosting);
