/*
 * The engine behind streams.
 *
 * A stream counts what was submitted and what completed; a ticket names a count. All order between
 * streams (legacy stream, events, synchronisation) is tickets that a piece of work waits for, and
 * tickets name work that was submitted before, so that no cycle can arise.
 *
 * Each stream gets a detached thread with its first piece of work. The thread ends when the stream
 * was closed and its queue is empty. Threads take no signals but their own faults, and nobody joins
 * them: the process may exit at any time.
 */
#include "gpu/sim/stream.h"

#include "gpu/sim/handle.h"
#include "gpu/sim/stream_private.h"

#include <pthread.h>
#include <signal.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t progress = PTHREAD_COND_INITIALIZER; /* some stream completed something */
static struct list streams = {&streams, &streams};
static uint64_t serial; /* submissions to all streams so far */

void sim_exec_lock(void)
{
    (void) pthread_mutex_lock(&lock);
}

void sim_exec_unlock(void)
{
    (void) pthread_mutex_unlock(&lock);
}

void sim_op_free(struct sim_op *op)
{
    free(op);
}

/* ---- life of a stream ---- */

struct sim_stream *sim_stream_new(CUcontext context, enum sim_stream_kind kind)
{
    struct sim_stream *stream = calloc(1, sizeof(*stream));

    if (stream == NULL)
        return NULL;
    if (pthread_cond_init(&stream->work, NULL) != 0) {
        free(stream);
        return NULL;
    }
    stream->context = context;
    stream->kind = kind;
    stream->references = 1;
    list_init(&stream->ops);
    list_append(&streams, &stream->link);
    return stream;
}

static void stream_unref(struct sim_stream *stream)
{
    if (--stream->references > 0)
        return;
    list_remove(&stream->link);
    (void) pthread_cond_destroy(&stream->work);
    free(stream);
}

void sim_stream_close(struct sim_stream *stream)
{
    if (stream->closing)
        return;
    stream->closing = true;
    (void) pthread_cond_signal(&stream->work);
    stream_unref(stream);
}

struct sim_stream *sim_stream_find_kind(
    CUcontext context, enum sim_stream_kind kind, const void *thread)
{
    list_for_each(stream, &streams, struct sim_stream,
        link) if (stream->context == context && stream->kind == kind && stream->thread == thread &&
                  !stream->closing) return stream;
    return NULL;
}

void sim_streams_close_thread(const void *thread)
{
    list_for_each_safe(stream, &streams, struct sim_stream,
        link) if (stream->thread == thread && stream->kind == SIM_STREAM_PER_THREAD)
        sim_stream_close(stream);
}

CUcontext sim_stream_context(const struct sim_stream *stream)
{
    return stream->context;
}

/* ---- tickets ---- */

struct sim_ticket sim_stream_ticket(struct sim_stream *stream)
{
    stream->references++;
    return (struct sim_ticket){.stream = stream, .number = stream->submitted};
}

bool sim_ticket_done(const struct sim_ticket *ticket)
{
    return ticket->stream->completed >= ticket->number;
}

void sim_ticket_drop(struct sim_ticket *ticket)
{
    if (ticket->stream != NULL)
        stream_unref(ticket->stream);
    *ticket = (struct sim_ticket){0};
}

void sim_ticket_wait(const struct sim_ticket *ticket)
{
    while (!sim_ticket_done(ticket))
        (void) pthread_cond_wait(&progress, &lock);
}

CUresult sim_tickets_add_copy(struct sim_tickets *tickets, const struct sim_ticket *ticket)
{
    struct sim_ticket *items;

    if (sim_ticket_done(ticket))
        return CUDA_SUCCESS;
    items = realloc(tickets->items, (tickets->count + 1) * sizeof(*items));
    if (items == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    tickets->items = items;
    tickets->items[tickets->count++] = *ticket;
    ticket->stream->references++;
    return CUDA_SUCCESS;
}

CUresult sim_tickets_add(struct sim_tickets *tickets, struct sim_stream *stream)
{
    struct sim_ticket ticket = {.stream = stream, .number = stream->submitted};

    return sim_tickets_add_copy(tickets, &ticket);
}

void sim_tickets_wait(const struct sim_tickets *tickets)
{
    for (size_t i = 0; i < tickets->count; i++)
        sim_ticket_wait(&tickets->items[i]);
}

void sim_tickets_clear(struct sim_tickets *tickets)
{
    for (size_t i = 0; i < tickets->count; i++)
        sim_ticket_drop(&tickets->items[i]);
    free(TAKE_PTR(tickets->items));
    tickets->count = 0;
}

/* ---- the thread ---- */

static void op_destroy(struct sim_op *op)
{
    sim_tickets_clear(&op->waits);
    op->destroy(op);
}

static void *stream_main(void *argument)
{
    struct sim_stream *stream = argument;

    sim_exec_lock();
    while (!list_empty(&stream->ops) || !stream->closing) {
        struct sim_op *op = list_first(&stream->ops, struct sim_op, link);

        if (op == NULL) {
            (void) pthread_cond_wait(&stream->work, &lock);
            continue;
        }
        sim_tickets_wait(&op->waits);
        sim_exec_unlock();
        if (sim_poisoned() == CUDA_SUCCESS) {
            CUresult result = op->run(op);

            if (result != CUDA_SUCCESS)
                sim_poison(result);
        }
        sim_exec_lock();
        list_remove(&op->link);
        op_destroy(op);
        stream->completed++;
        (void) pthread_cond_broadcast(&progress);
    }
    stream_unref(stream);
    sim_exec_unlock();
    return NULL;
}

/* Asynchronous signals are the application's: they go to its own threads. */
static int thread_start(struct sim_stream *stream)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};
    pthread_attr_t attributes;
    sigset_t all, before;
    pthread_t thread;
    int error;

    error = pthread_attr_init(&attributes);
    if (error != 0)
        return -error;
    (void) sigfillset(&all);
    for (size_t i = 0; i < ARRAY_SIZE(faults); i++)
        (void) sigdelset(&all, faults[i]);
    (void) pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    (void) pthread_sigmask(SIG_BLOCK, &all, &before);
    error = pthread_create(&thread, &attributes, stream_main, stream);
    (void) pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void) pthread_attr_destroy(&attributes);
    return -error;
}

/* ---- submission ---- */

/* What the rule of the legacy stream makes `stream`'s next piece of work wait for. */
static CUresult legacy_rule(struct sim_stream *stream, struct sim_tickets *waits)
{
    CUresult result = CUDA_SUCCESS;

    if (stream->kind == SIM_STREAM_NON_BLOCKING)
        return CUDA_SUCCESS;
    list_for_each(other, &streams, struct sim_stream, link)
    {
        bool ordered = stream->kind == SIM_STREAM_LEGACY ? other->kind != SIM_STREAM_NON_BLOCKING
                                                         : other->kind == SIM_STREAM_LEGACY;

        if (other != stream && other->context == stream->context && ordered)
            result = sim_tickets_add(waits, other);
        if (result != CUDA_SUCCESS)
            return result;
    }
    return CUDA_SUCCESS;
}

static CUresult stream_start(struct sim_stream *stream)
{
    if (stream->started)
        return CUDA_SUCCESS;
    stream->references++;
    if (thread_start(stream) < 0) {
        stream_unref(stream);
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    stream->started = true;
    return CUDA_SUCCESS;
}

CUresult sim_stream_submit(struct sim_stream *stream, struct sim_op *op)
{
    CUresult result = legacy_rule(stream, &op->waits);

    if (result == CUDA_SUCCESS)
        result = stream_start(stream);
    if (result != CUDA_SUCCESS) {
        op_destroy(op);
        return result;
    }
    list_append(&stream->ops, &op->link);
    stream->submitted++;
    op->serial = ++serial;
    (void) pthread_cond_signal(&stream->work);
    return CUDA_SUCCESS;
}

/* ---- contexts ---- */

/* Whether the context's streams are past submission number `last`. */
static bool context_passed(CUcontext context, uint64_t last)
{
    list_for_each(stream, &streams, struct sim_stream, link)
    {
        const struct sim_op *op = list_first(&stream->ops, struct sim_op, link);

        if (stream->context == context && op != NULL && op->serial <= last)
            return false;
    }
    return true;
}

void sim_streams_drain(CUcontext context)
{
    uint64_t last;

    sim_exec_lock();
    last = serial;
    while (!context_passed(context, last))
        (void) pthread_cond_wait(&progress, &lock);
    sim_exec_unlock();
}

static CUresult context_synchronize(CUcontext context)
{
    sim_streams_drain(context);
    return sim_poisoned();
}

static void context_destroy(CUcontext context)
{
    sim_streams_drain(context);
    sim_exec_lock();
    list_for_each_safe(stream, &streams, struct sim_stream, link)
    {
        if (stream->context != context || stream->closing)
            continue;
        if (stream->handle != NULL)
            (void) sim_handle_remove(SIM_HANDLE_STREAM, stream->handle);
        sim_stream_close(stream);
    }
    sim_exec_unlock();
}

__attribute__((constructor)) static void register_hooks(void)
{
    static const struct sim_context_hooks hooks = {
        .destroy = context_destroy,
        .synchronize = context_synchronize,
    };

    sim_context_set_hooks(&hooks);
}
