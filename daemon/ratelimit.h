/* At most `burst` lines in each `interval_ns`; what is held back is counted. Pure. */
#pragma once

#include "base/macro.h"

struct ratelimit {
    uint64_t began_ns;
    uint32_t passed, held;
};

/*
 * Whether one more line may be written at `now_ns`. `ret_held` is how many were held back in the
 * interval before, to be said once; 0 otherwise.
 */
static inline bool ratelimit_pass(struct ratelimit *limit, uint64_t now_ns, uint64_t interval_ns,
    uint32_t burst, uint32_t *ret_held)
{
    *ret_held = 0;
    if (limit->passed == 0 || now_ns - limit->began_ns >= interval_ns) {
        *ret_held = limit->held;
        *limit = (struct ratelimit){.began_ns = now_ns};
    }
    if (limit->passed >= burst) {
        limit->held++;
        return false;
    }
    limit->passed++;
    return true;
}
