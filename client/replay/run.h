/*
 * One run: workers are started, watched and ended, and what is left on the device is looked at.
 */
#pragma once

#include "client/replay/broker.h"
#include "client/replay/options.h"
#include "client/replay/sizing.h"
#include "client/replay/stats.h"
#include "client/replay/tenants.h"

struct run {
    const struct options *options;
    const struct trace *trace;
    const struct sizing *sizing;
    const struct tenants *tenants;
    uint32_t workers; /* in all; a multiple of the tenants */
    const char *client_socket, *control_socket;
    struct stats *stats;

    /* Filled in by run_trace(). */
    bool interrupted;    /* by SIGINT or SIGTERM */
    uint32_t crashed;    /* workers that ended by themselves before their work was done */
    uint32_t killed;     /* of those, by SIGKILL: by the broker, or by somebody else */
    uint64_t seconds_ns; /* from the start of the trace to the last worker's end */
    bool orphaned_known; /* the control socket answered */
    uint64_t orphaned_bytes;
};

/* Of a worker's requests, in turn; at least one. */
const struct priorities *run_request_priorities(const struct run *run);

/*
 * Plays the trace. 0 when it came to an end, whatever that was: the report tells. -errno when it
 * couldn't be started. No worker is left in any case. Prints the live line to standard error.
 */
int run_trace(struct run *run) _must_check_;
