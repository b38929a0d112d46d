/*
 * What the mover does for segments: sums them up, compares the sums, copies them to the host tier
 * and back. A segment is walked through piece by piece, a few jobs at a time; what comes of it is
 * acted on when the last of them is answered.
 */
#pragma once

#include "daemon/segment.h"

struct hosting;

/* Begins one; none may be under way. False where the device has no mover. */
bool segment_walk_start(struct segment *segment, enum segment_walk_kind kind);
/* It ends without a result once its jobs are answered; at once if there are none. */
void segment_walk_stop(struct segment *segment);
/* The device's turn: jobs that had no room before. */
void segment_walk_turn(struct hosting *hosting);

/*
 * Begins to move a sealed one that nobody has to the host tier, for a tenant (the core's index) or
 * an operator (UINT32_MAX): 0. -EBUSY: somebody has it, waits
 * for it, or the mover is at it; -EOPNOTSUPP: it has no checksums to tell it by when it comes back;
 * -ENOSPC, -EDQUOT: there is no room for it in the host tier, or in its tenant's part of that;
 * -ENOMEM.
 */
int segment_demote(struct segment *segment, uint32_t beneficiary) _must_check_;
/* Gives it back; no job may be under way. */
void segment_store_give(struct segment *segment);
