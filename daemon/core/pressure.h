/*
 * Levels of tenants and devices, and the rungs of ladders: brought up to date at the end of each
 * step, for what the step touched. What a device has for everybody concerns all its tenants: these
 * are looked at in sweeps, a bounded number in each step.
 */
#pragma once

#include "daemon/core/types.h"

void pressure_work(struct core *core);
/* When that has something to do without any event. */
uint64_t pressure_next(const struct core *core);

/* Room for the timers of one tenant more. -ENOMEM. */
int pressure_reserve(struct core *core) _must_check_;
/* Its timers end. */
void pressure_forget(struct core *core, struct tenant *tenant);
/* Its ladder, or whether anybody listens, is another. */
void pressure_ladder_changed(struct core *core, struct tenant *tenant);
/* Its first client has come, or its last one is gone. */
void pressure_clients_changed(struct core *core, struct tenant *tenant);

/* Other thresholds: everything is looked at anew. */
void pressure_configure(struct core *core, const struct core_pressure_options *options);

/* What the figures of an account are now. */
struct pressure_view pressure_account_view(const struct account *account);
struct pressure_figures pressure_account_figures(const struct account *account);
/* A device's use: leases, what is missing, what others use; not what lies ready or comes back. */
uint64_t pressure_device_used(const struct device *device);
/* Whether the account's level waits for a sweep, or for room in a step. */
bool pressure_pending(const struct account *account);
