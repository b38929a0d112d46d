/* One request in a worker. See phase.h for its life and worker.h for its surroundings. */
#pragma once

#include <event2/event.h>

#include "base/list.h"
#include "client/gmb.h"
#include "client/replay/device.h"
#include "client/replay/weights.h"
#include "client/replay/worker.h"

/* What the requests of a worker share. */
struct worker {
    const struct worker_params *params;
    struct event_base *base;
    gmb_session *session;
    struct device *device;
    struct weights weights;
    struct stats_worker *stats;
    const char *tenant;
    const char *device_uuid;
    struct list live;    /* requests that have begun; final ones until they are pruned */
    size_t unfinished;   /* of those, the ones that aren't final */
    uint64_t next_index; /* of the request that begins next */
    bool stopping;       /* by SIGTERM or after a failure: what comes is given back at once */
    bool failed;
};

/* Sets the worker's failure, of which the first counts, and begins to stop. Never re-enters a
 * request. */
void worker_fail(struct worker *worker, const char *format, ...) _printf_(2, 3);
/* No request is left to wait for: the loop may end. */
void worker_idle(struct worker *worker);

/* Starts the life of request `index`, whose time has come: asks for its memory. -ENOMEM. */
int request_begin(struct worker *worker, uint64_t index) _must_check_;
/* Frees those that are final. Not from within a callback of one. */
void requests_prune(struct worker *worker);
/* Withdraws what waits and gives back what is held, checked unless the worker failed: all that have
 * begun become LOST, some of them once the library has answered. The worker must be stopping. */
void requests_stop(struct worker *worker);
/* Frees all. The session must be gone: nothing may call back any more. */
void requests_free(struct worker *worker);
