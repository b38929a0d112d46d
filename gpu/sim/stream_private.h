/* Between stream.c (the engine) and stream_api.c (the calls). All of it needs the lock. */
#pragma once

#include "gpu/sim/stream.h"

#include <pthread.h>

enum sim_stream_kind {
    SIM_STREAM_LEGACY,
    SIM_STREAM_PER_THREAD,
    SIM_STREAM_BLOCKING,
    SIM_STREAM_NON_BLOCKING,
    SIM_STREAM_KIND_MAX
};

struct sim_stream {
    struct list link; /* of all streams that anyone holds */
    CUcontext context;
    enum sim_stream_kind kind;
    CUstream handle;     /* NULL for the two special kinds */
    const void *thread;  /* SIM_STREAM_PER_THREAD: whose */
    uint64_t references; /* one of its maker until closed, one of its thread, one per ticket */
    uint64_t submitted;  /* pieces of work put in since the beginning */
    uint64_t completed;  /* of those, done or skipped */
    struct list ops;     /* struct sim_op, oldest first; the one that runs included */
    pthread_cond_t work; /* something was put in, or the stream was closed */
    bool started;        /* it has a thread */
    bool closing;        /* no handle leads here any more */
};

/* A stream with one reference, which sim_stream_close gives back; NULL without host memory. */
struct sim_stream *sim_stream_new(CUcontext context, enum sim_stream_kind kind);
/* Returns at once; work that is queued gets done. Idempotent as long as the stream is held. */
void sim_stream_close(struct sim_stream *stream);
/* The open stream of that kind, borrowed, or NULL; `thread` is NULL but for SIM_STREAM_PER_THREAD.
 */
struct sim_stream *sim_stream_find_kind(
    CUcontext context, enum sim_stream_kind kind, const void *thread);
/* Closes the per-thread streams of a thread that ends. */
void sim_streams_close_thread(const void *thread);
