/*
 * Streams: in-order queues of work, one thread each, that wait for one another by tickets.
 *
 * One lock guards everything of the executing half (streams, events, modules, host memory). It is
 * never held while device memory is touched, while an application's function runs, or over a call
 * into the other half of the simulator.
 */
#pragma once

#include "base/list.h"
#include "gpu/sim/sim.h"

struct sim_stream;

/* "The first `number` pieces of work of this stream are done." Holds a reference on the stream. */
struct sim_ticket {
    struct sim_stream *stream;
    uint64_t number;
};

struct sim_tickets {
    struct sim_ticket *items;
    size_t count;
};

/*
 * A piece of work; the first member of a struct that holds what it works on.
 *
 * `run` is called on the stream's thread, with no lock, once everything before it in the stream and
 * all of `waits` are done; it isn't called in a poisoned process. A result other than success
 * poisons the process. `destroy` is called in any case, with the lock held, and frees the struct.
 */
struct sim_op {
    struct list link;
    uint64_t serial; /* place among all submissions */
    struct sim_tickets waits;
    CUresult (*run)(struct sim_op *op);
    void (*destroy)(struct sim_op *op);
};

void sim_exec_lock(void);
void sim_exec_unlock(void);

/* For ops that own nothing beyond their struct, allocated by malloc. */
void sim_op_free(struct sim_op *op);

/* ---- with the lock held ---- */

/*
 * The stream that a call means. NULL and CU_STREAM_LEGACY are the context's legacy stream,
 * CU_STREAM_PER_THREAD the calling thread's (both made on first use; 201 without a context). 400
 * for what isn't a stream. `context` is the current one, NULL when there is none. The stream is
 * borrowed: it is valid until the lock is given up.
 */
CUresult sim_stream_find(CUcontext context, CUstream handle, struct sim_stream **ret) _must_check_;
/* As find, for calls that put work in: 400 when another context than the stream's is current. */
CUresult sim_stream_find_for_work(
    CUcontext context, CUstream handle, struct sim_stream **ret) _must_check_;
CUcontext sim_stream_context(const struct sim_stream *stream);

/* Appends a ticket for everything submitted to `stream` so far, unless it is done. */
CUresult sim_tickets_add(struct sim_tickets *tickets, struct sim_stream *stream) _must_check_;
/* As sim_tickets_add for a ticket that exists already: a reference of its own is taken. */
CUresult sim_tickets_add_copy(
    struct sim_tickets *tickets, const struct sim_ticket *ticket) _must_check_;
void sim_tickets_clear(struct sim_tickets *tickets);

/* The ticket for everything submitted so far; give its reference back with sim_ticket_drop. */
struct sim_ticket sim_stream_ticket(struct sim_stream *stream);
bool sim_ticket_done(const struct sim_ticket *ticket);
void sim_ticket_drop(struct sim_ticket *ticket);
/* Gives up the lock while it waits. Blocks without bound: that is what synchronising means. */
void sim_ticket_wait(const struct sim_ticket *ticket);
void sim_tickets_wait(const struct sim_tickets *tickets);

/*
 * Queues `op` (consumed in any case) behind what the stream holds and, by the rule of the legacy
 * stream, behind other streams: work in the legacy stream waits for all blocking streams of its
 * context, work in a blocking stream for the legacy stream. 304 when no thread can be made, 2
 * without host memory.
 */
CUresult sim_stream_submit(struct sim_stream *stream, struct sim_op *op) _must_check_;

/* ---- without the lock ---- */

/* As sim_enter; `ret_context` is the current context or NULL. */
CUresult sim_enter_any(const char *call, CUcontext *ret_context) _must_check_;

/*
 * Finds the stream for work and submits `op` (consumed in any case). With `wait` it returns once
 * the work is done, and with the sticky error if that is what ended it.
 */
CUresult sim_stream_put(
    CUcontext context, CUstream handle, struct sim_op *op, bool wait) _must_check_;

/* Waits for all work of a context, whatever stream it is in. */
void sim_streams_drain(CUcontext context);
