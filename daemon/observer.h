/*
 * Who wants to hear what becomes of the broker, besides its clients: the service manager, the bus.
 * An observer tells others, later: it changes nothing, and calls nothing that steps the core.
 */
#pragma once

#include "base/list.h"

struct broker_observer {
    struct list link; /* broker.observers */
    /* Something may have changed; at the end of every callback of the loop: it is to be cheap. */
    void (*settled)(struct broker_observer *observer);
};
