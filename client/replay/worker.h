/*
 * A worker: one process of one tenant, which plays its share of the trace against the broker.
 *
 * It is single-threaded and never blocks on the broker: the library's fd and timers of the requests
 * are one event loop. It speaks to the coordinator through the shared block alone.
 */
#pragma once

#include "client/replay/model.h"
#include "client/replay/stats.h"

struct worker_params {
    const struct trace *trace;
    const struct model *model;
    struct stats *stats;
    uint32_t index; /* plays the requests i with i mod worker_count = index */
    double speed;   /* trace time / real time */
    uint64_t wait_ns;
    uint64_t memory_min_bytes; /* of its tenant, for KV; 0: not known */
    uint64_t weights_bytes;    /* of its tenant's model; 0: none */
    uint64_t think_ns;         /* with an arena: from a request's end to its pages' next use */
    uint32_t batch;            /* with an arena: requests that may run at once */
    const uint32_t *request_priorities; /* borrowed: of its requests, in turn */
    size_t request_priority_count;      /* > 0 */
    const char *socket;
    int ready_fd; /* borrowed: gets one byte once this worker could begin */
    int start_fd; /* borrowed: at its end, stats->start_ns is set and the run begins */
};

/* The priority of request `index`, which is one of this worker's. */
static inline uint32_t worker_request_priority(const struct worker_params *params, uint64_t index)
{
    return params->request_priorities[(index / params->stats->worker_count) %
                                      params->request_priority_count];
}

/* Runs until every request is final, or SIGTERM. The state in the shared block says how it went.
 * Returns what the process is to exit with: 0 when everything was given back. */
int worker_run(const struct worker_params *params);
