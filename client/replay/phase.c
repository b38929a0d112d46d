/* The legal transitions, as one bit for each successor. */
#include "client/replay/phase.h"

#include <assert.h>

#define TO(phase) (1u << PHASE_##phase)

static const char *const names[] = {
    [PHASE_PENDING] = "pending",
    [PHASE_ASKING] = "asking",
    [PHASE_WAITING] = "waiting",
    [PHASE_PREFILL] = "prefill",
    [PHASE_DECODE] = "decode",
    [PHASE_GROWING] = "growing",
    [PHASE_STALLED] = "stalled",
    [PHASE_COMPLETED] = "completed",
    [PHASE_REFUSED] = "refused",
    [PHASE_LOST] = "lost",
};
static_assert(ARRAY_SIZE(names) == PHASE_MAX, "a phase without a name");

static const unsigned successors[PHASE_MAX] = {
    [PHASE_PENDING] = TO(ASKING) | TO(LOST),
    [PHASE_ASKING] = TO(WAITING) | TO(PREFILL) | TO(REFUSED) | TO(LOST),
    [PHASE_WAITING] = TO(PREFILL) | TO(REFUSED) | TO(LOST),
    [PHASE_PREFILL] = TO(DECODE) | TO(LOST),
    [PHASE_DECODE] = TO(GROWING) | TO(COMPLETED) | TO(LOST),
    [PHASE_GROWING] = TO(DECODE) | TO(STALLED) | TO(REFUSED) | TO(LOST),
    [PHASE_STALLED] = TO(DECODE) | TO(WAITING) | TO(REFUSED) | TO(LOST),
};

const char *phase_name(enum phase phase)
{
    return (unsigned) phase < PHASE_MAX ? names[phase] : "unknown";
}

bool phase_may_follow(enum phase from, enum phase to)
{
    if ((unsigned) from >= PHASE_MAX || (unsigned) to >= PHASE_MAX)
        return false;
    return (successors[from] >> to) & 1;
}
