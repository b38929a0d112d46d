/* One request of an arena worker, and what it leaves behind. */
#pragma once

#include "client/replay/arena_pages.h"

struct arena_request {
    struct list link;    /* worker->ended, then worker->cached */
    struct list waiting; /* worker->gate, ->swapped or ->waiting; in the last two it waits on … */
    pthread_cond_t turn;
    struct arena_worker *worker;
    const struct trace_request *trace;
    struct stats_request *stats;
    uint64_t arrived_ns;
    struct pages pages;
    uint32_t priority;
    bool delayed[LADDER_STEPS]; /* it waited at the gate for that step */
    unsigned density;           /* tokens in the place of one, of those that come next */
    uint64_t context_tokens;    /* of the prompt, as far as it is read */
    uint64_t generated;         /* tokens whose KV exists */
    uint64_t stored;            /* bytes of all its tokens, before scaling */
    uint64_t reread_ns;         /* when its pages are read again, once it is cached */
};

/* It arrives: one of the worker's threads takes it up when it may run. -errno: it isn't there. */
int arena_request_begin(struct arena_worker *worker, uint64_t index) _must_check_;
/* Its life behind the gate, in the calling thread, which has entered the device. It ends it. */
void arena_request_run(struct arena_request *request);
/* It is over: the worker looks at it before long, and may free it at once. REFUSED as
 * arena_end_refused() has noted, FAILED or OK. */
void arena_request_end(struct arena_request *request, enum pages_outcome outcome);
/* Accepts NULL; returns NULL. It has ended, the pages are gone. */
struct arena_request *arena_request_free(struct arena_request *request);

/* Pages for the KV of so many tokens, with `density` tokens in the place of one. */
size_t arena_request_pages(const struct arena_worker *worker, uint64_t tokens, unsigned density);
/* Bytes of such tokens on the device, at density 1. */
uint64_t arena_request_bytes(const struct arena_worker *worker, uint64_t tokens);
/* Tokens more are in its pages, at the request's density. */
void arena_request_store(struct arena_request *request, uint64_t tokens);

/* The thread that reads finished requests' pages again when their time has come. Takes the worker;
 * returns NULL, once no request is cached and none comes any more. */
void *arena_cache_main(void *worker);
