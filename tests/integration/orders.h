/* Operators' orders, and other processes that need memory: what tests of moving memory share. */
#pragma once

#include "tests/integration/raw.h"

/* Takes `bytes` from the tenant; the plan's bytes. */
uint64_t order_evict(const struct harness *harness, const char *tenant, uint64_t bytes);
/* The same on the device of that UUID. */
uint64_t order_evict_on(
    const struct harness *harness, const char *uuid, const char *tenant, uint64_t bytes);
/* Only asks what would be taken for the tenant, or from it. */
uint64_t order_dry_run(
    const struct harness *harness, const char *tenant, uint64_t bytes, bool from_tenant);
/* Drains the device or takes it back; what is left there. */
uint64_t order_drain(const struct harness *harness, bool undo);

/*
 * A process of another user (65534: needs root) that leases `bytes` and waits for them at most
 * `wait_ms`; it keeps them until it is told to end. The fd is readable when it is answered.
 */
struct claimant {
    pid_t pid;
    int answer, go;
};
void claimant_start(
    struct claimant *claimant, const struct harness *harness, uint64_t bytes, uint64_t wait_ms);
/* Waits for its answer: an enum gmb_status. */
enum gmb_status claimant_answer(struct claimant *claimant);
/* Ends it; what it has goes with it. */
void claimant_end(struct claimant *claimant);
