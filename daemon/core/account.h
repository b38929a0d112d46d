/* Accounts, charges and suspects: the only code that changes a sum of the ledger. */
#pragma once

#include "daemon/core/types.h"

void account_init(struct account *account, struct tenant *tenant, struct device *device);
/* Asserts that nothing is charged any more. */
void account_done(struct account *account);
/* Replaces the limits and the guarantees that follow from them. */
void account_set_limits(struct account *account, const struct core_memory_limits *limits);

/* Charges `bytes`; the token must be charged to nothing. The caller has checked that they fit. */
void charge_take(
    struct charge *charge, struct account *account, enum chunk_state heading, uint64_t bytes);
/* The same bytes under another heading or to another account of the same device. */
void charge_move(struct charge *charge, struct account *account, enum chunk_state heading);
/* Idempotent. */
void charge_release(struct charge *charge);

/* Bytes that the driver took back and that aren't free stay charged, first as releasing. */
void suspect_add(struct account *account, uint64_t bytes, uint64_t now_ns, uint64_t grace_ns);
/* At most `bytes` of the account's suspects are none. */
void suspect_take(struct account *account, uint64_t bytes);
/* At most `bytes` of the device's suspects are back: the oldest first. */
void suspect_credit(struct device *device, uint64_t bytes);
/* Those past the grace time are called orphaned. Returns when to look again, or CLOCK_NEVER. */
uint64_t suspect_age(struct device *device, uint64_t now_ns, uint64_t grace_ns);
/* The part of an account's suspects that is within its grace time. */
uint64_t suspect_young(const struct account *account);

/* What others use beyond the reserve, as far as it takes from what could be granted. */
uint64_t device_unaccounted(const struct device *device);
/* Bytes that nobody owns and that may be created. */
uint64_t device_free(const struct device *device);
/* What is to be kept back and neither there nor on its way. */
uint64_t device_hold_lacking(const struct device *device);
/* What the driver holds for us: every answered create less every answered release. */
uint64_t device_held(const struct device *device);
/* Bytes of an account that its tenant could do without at once. */
uint64_t account_idle(const struct account *account);
/* Bytes on their way to being free. */
uint64_t account_returning(const struct account *account);
uint64_t account_unused_min(const struct account *account);
/* What of its CACHED bytes anybody may be given: the part above its MemoryMin. */
uint64_t account_spare(const struct account *account);
/* Its figures are looked at again at the end of the step. */
void account_touch(struct account *account);

/* Whether nothing is granted on the device; device_closed_limit() and _status() say by what. */
static inline bool device_closed(const struct device *device)
{
    return device->draining || device->failed;
}

static inline enum gmb_limit device_closed_limit(const struct device *device)
{
    return device->failed ? GMB_LIMIT_DEVICE : GMB_LIMIT_DRAINING;
}

static inline enum gmb_status device_closed_status(const struct device *device)
{
    return device->failed ? GMB_STATUS_GPU : GMB_STATUS_EXHAUSTED;
}
