/*
 * Fixed point as in the kernel: the overage as a fraction of 2^20 (MEMCG_DELAY_PRECISION_SHIFT),
 * squared and scaled down by 2^14 (MEMCG_DELAY_SCALING_SHIFT): 2^40 / 2^34 = 64 seconds at 100 %.
 */
#include "policies/throttle.h"

#define PRECISION_SHIFT 20
#define SCALING_SHIFT 14
#define SECOND_NS UINT64_C(1000000000)

uint64_t throttle_delay_ns(uint64_t used_bytes, uint64_t growth_bytes, uint64_t high_bytes)
{
    unsigned __int128 over = sub_saturate(add_saturate(used_bytes, growth_bytes), high_bytes);
    unsigned __int128 fraction, delay;

    if (over == 0)
        return 0;
    if (high_bytes == 0)
        return THROTTLE_MAX_NS;
    fraction = (over << PRECISION_SHIFT) / high_bytes;
    if (fraction >= UINT64_C(1) << PRECISION_SHIFT)
        return THROTTLE_MAX_NS;
    delay = (fraction * fraction * SECOND_NS) >> (PRECISION_SHIFT + SCALING_SHIFT);
    return delay > THROTTLE_MAX_NS ? THROTTLE_MAX_NS : (uint64_t) delay;
}
