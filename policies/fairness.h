/*
 * Fairness: whose turn is it in a device's wait queue?
 *
 * Weighted max-min: of the tenants with the highest priority, the one whose use after the grant is
 * the smallest for its weight goes first, so that what is free goes to whoever has least. Equal
 * claims go by arrival. Within a tenant the queue is first in, first out, so only the first request
 * of each tenant is a candidate.
 */
#pragma once

#include "base/macro.h"

struct fairness_claim {
    uint32_t priority; /* higher goes first */
    uint32_t weight;   /* > 0 */
    uint64_t used;     /* bytes of the tenant on the device */
    uint64_t requested;
    uint64_t arrival; /* smaller came first; unique */
    void *owner;      /* the caller's */
};

/* A total order: true when `a` goes before `b`. */
bool fairness_before(const struct fairness_claim *a, const struct fairness_claim *b);

/*
 * The claims as a priority queue in the caller's array: build once, then take the first and put in
 * the same tenant's next as often as needed. O(n), O(log n), O(log n). The array must have room.
 */
void fairness_build(struct fairness_claim *claims, size_t count);
/* count > 0; decrements it. */
struct fairness_claim fairness_take(struct fairness_claim *claims, size_t *count);
void fairness_put(struct fairness_claim *claims, size_t *count, const struct fairness_claim *claim);
