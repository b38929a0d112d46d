/*
 * Lines about what peers did wrong: a peer that connects, errs and connects again must not fill the
 * log, nor use up what the journal takes from the daemon. So they are rationed by who causes them.
 * Pure.
 */
#pragma once

#include "daemon/ratelimit.h"

/* Lines of one source in each interval. */
#define COMPLAINT_LINES 20
#define COMPLAINT_INTERVAL_NS (5 * NSEC_PER_SEC)
/* Sources that share one ration, should there be more of them, lose lines, never add any. */
#define COMPLAINT_SOURCES 64

struct complaints {
    struct ratelimit sources[COMPLAINT_SOURCES];
};

/*
 * Whether a line about `tenant` ("": not known yet) or, without one, about user `uid` may be
 * written. `ret_held` as ratelimit_pass().
 */
static inline bool complaint_pass(struct complaints *complaints, const char *tenant, uint32_t uid,
    uint64_t now_ns, uint32_t *ret_held)
{
    uint32_t hash = tenant[0] == '\0' ? uid : 0;

    for (; *tenant != '\0'; tenant++)
        hash = hash * 31 + (unsigned char) *tenant;
    return ratelimit_pass(&complaints->sources[hash % COMPLAINT_SOURCES], now_ns,
        COMPLAINT_INTERVAL_NS, COMPLAINT_LINES, ret_held);
}
