/*
 * What a device has for memory that moves: its host tier, its mover, the arenas on it, what each
 * tenant may take of the tier, and what is being done to make room.
 */
#pragma once

#include "base/limits.h"
#include "base/list.h"
#include "daemon/mover_control.h"
#include "daemon/tier.h"

struct arena;
struct broker;

struct hosting {
    struct broker *broker;
    uint32_t device;
    struct tier *tier;                           /* NULL: HostTier=0 */
    struct list arenas;                          /* struct arena.device_link */
    struct tier_account accounts[LIMIT_TENANTS]; /* by the core's index */
};

/* `tier_bytes` 0: none. -ENOMEM, -errno. */
int hosting_new(
    struct broker *broker, uint32_t device, uint64_t tier_bytes, struct hosting **ret) _must_check_;
/* Frees every arena on the device. Accepts NULL, returns NULL. */
struct hosting *hosting_free(struct hosting *hosting);

/* Gives an arena that is being bound its place in the tier, if there is a tier. -ENOMEM. */
int hosting_space_new(struct hosting *hosting, struct arena *arena) _must_check_;
