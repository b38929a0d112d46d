/* A request's hold on device memory; request.c has its life. */
#pragma once

#include "client/replay/request.h"

struct request {
    struct list link; /* worker->live */
    struct worker *worker;
    const struct trace_request *trace;
    struct stats_request *stats;
    enum phase phase;
    struct event *timer;
    gmb_lease *lease;
    struct pattern_owner owner;
    uint64_t chunks;      /* held: received, written */
    uint64_t wanted;      /* chunks asked for in all */
    uint64_t final;       /* chunks in the end */
    uint64_t generated;   /* tokens whose KV exists; kept over a preemption */
    uint64_t decode_ns;   /* real time at which … */
    uint64_t decode_from; /* … that many had been generated */
    uint64_t asked_ns;    /* start of the current wait; 0: none */
    uint64_t ask_id;      /* the library's name of what was asked; 0: nothing is under way */
};

/* Each is false after a failure of the device or the broker, which it has noted for the worker. */

/* Takes over what the lease got since the last time: looks for others' bytes and writes ours. */
bool request_receive(struct request *request);
/* Compares everything that the request holds with what it wrote. */
bool request_check(struct request *request);
/* Ends the lease. */
bool request_give_back(struct request *request);
