/* See restart.h. */
#include "daemon/keeper/restart.h"

void restart_started(struct restart *restart, uint64_t now_ns)
{
    restart->started_ns = now_ns;
}

uint64_t restart_at(struct restart *restart, uint64_t now_ns)
{
    uint64_t pause_ns;

    if (sub_saturate(now_ns, restart->started_ns) >= RESTART_STEADY_NS)
        restart->pause_ns = 0;
    pause_ns = restart->pause_ns;
    restart->pause_ns = pause_ns == 0 ? RESTART_FIRST_NS : MIN(pause_ns * 2, RESTART_MAX_NS);
    return add_saturate(now_ns, pause_ns);
}
