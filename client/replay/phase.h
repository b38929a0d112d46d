/*
 * The life of one replayed request.
 *
 *   PENDING   not arrived
 *   ASKING    asked for memory, to be had at once or not
 *   WAITING   asked again, in the broker's queue
 *   PREFILL   has its memory; the prompt is being computed
 *   DECODE    tokens are generated into memory that it has
 *   GROWING   asked for one more chunk, to be had at once or not
 *   STALLED   asked again for it, in the broker's queue; no token is generated meanwhile
 *   COMPLETED gave everything back, checked
 *   REFUSED   a limit refused; nothing is held
 *   LOST      neither: the broker or the device failed, or the run was ended
 *
 * A stalled request that doesn't get its chunk in time gives back all it has and goes to WAITING,
 * as engines preempt: it will compute its tokens again. Without that, requests that all hold
 * something and all want more would wait for each other for ever.
 */
#pragma once

#include "base/macro.h"

enum phase {
    PHASE_PENDING,
    PHASE_ASKING,
    PHASE_WAITING,
    PHASE_PREFILL,
    PHASE_DECODE,
    PHASE_GROWING,
    PHASE_STALLED,
    PHASE_COMPLETED,
    PHASE_REFUSED,
    PHASE_LOST,
    PHASE_MAX
};

const char *phase_name(enum phase phase);

/* Whether a request may go from one to the other. False outside the enum. */
bool phase_may_follow(enum phase from, enum phase to);

/* Nothing comes after it. */
static inline bool phase_is_final(enum phase phase)
{
    return phase >= PHASE_COMPLETED;
}
