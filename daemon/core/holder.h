/*
 * Holders: the clients that have a lease, and which of its chunks each of them has.
 *
 * A chunk belongs to its lease as long as any holder has it. A holder lets go of it by returning it
 * (its process has unmapped it), by letting go of the lease, or by being dead by pidfd; only when
 * the last one has, the chunk is the broker's again. What a dead holder had is never given to
 * another process, whoever returned it after that.
 */
#pragma once

#include "daemon/core/types.h"

/* The lease's first or next holder, which has nothing. NULL without host memory. */
struct holder *holder_new(struct core *core, struct lease *lease, struct client *client);
/* The same in a place that no other of the lease has, below LIMIT_LEASE_HOLDERS: no segment's. */
struct holder *holder_new_at(
    struct core *core, struct lease *lease, struct client *client, uint8_t place);
/* The same of a segment, in a seat that no other has, and that goes with it. */
struct holder *holder_new_seated(
    struct core *core, struct lease *lease, struct client *client, struct seat *seat);
/* One that has nothing; it leaves the lease's and the client's lists. */
void holder_free(struct core *core, struct holder *holder);
/* The lease is ACTIVE: its client counts it. */
void holder_enter(struct holder *holder);
/* How many the lease may have. */
uint32_t holders_max(const struct lease *lease);
/* NULL when the client holds no part of the lease. */
struct holder *holder_find(const struct lease *lease, const struct client *client);

#define HOLDER_WORD_BITS 64u

static inline bool holder_has(const struct holder *holder, uint32_t index)
{
    const struct lease *lease = holder->lease;

    if (lease->max == 0)
        return index < holder->count;
    return index < lease->max &&
           (holder->has[index / HOLDER_WORD_BITS] >> index % HOLDER_WORD_BITS & 1) != 0;
}

/* It has a granted chunk from now on, which it hadn't. */
void holder_give(struct holder *holder, uint32_t index);
/* It has the chunk no longer, which it had. True when that was the last one. */
bool holder_take(struct holder *holder, uint32_t index);

void holder_attach_event(struct core *core, struct client *client, const struct core_event *event);
void holder_share_event(struct core *core, struct client *client, const struct core_event *event);
