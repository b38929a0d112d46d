/*
 * Events. Recording gives an event a new record: the ticket of the recording's place in its stream,
 * and the time at which the stream got there. Who waits for an event waits for the ticket that it
 * has at that moment; recording it anew or destroying it changes nothing for them.
 */
#include "base/clock.h"
#include "gpu/sim/handle.h"
#include "gpu/sim/stream.h"

struct record {
    uint64_t references; /* one of the event, one of the piece of work that takes the time */
    struct sim_ticket ticket;
    uint64_t time_ns; /* written by the stream before the ticket is done */
};

struct event {
    CUcontext context;
    unsigned flags;
    struct record *record; /* NULL: never recorded */
};

/* Under the lock. */
static void record_unref(struct record *record)
{
    if (record == NULL || --record->references > 0)
        return;
    sim_ticket_drop(&record->ticket);
    free(record);
}

struct record_op {
    struct sim_op op;
    struct record *record;
};

static CUresult record_run(struct sim_op *op)
{
    container_of(op, struct record_op, op)->record->time_ns = clock_now(&clock_monotonic);
    return CUDA_SUCCESS;
}

static void record_destroy(struct sim_op *op)
{
    struct record_op *recording = container_of(op, struct record_op, op);

    record_unref(recording->record);
    free(recording);
}

/* The record's two references go to the op and to `ret`. Under the lock. */
static CUresult record_submit(struct sim_stream *stream, struct record **ret)
{
    struct record_op *recording = calloc(1, sizeof(*recording));
    struct record *record = calloc(1, sizeof(*record));
    CUresult result;

    if (recording == NULL || record == NULL) {
        free(recording);
        free(record);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    record->references = 2;
    recording->op.run = record_run;
    recording->op.destroy = record_destroy;
    recording->record = record;
    result = sim_stream_submit(stream, &recording->op);
    if (result != CUDA_SUCCESS) {
        record_unref(record);
        return result;
    }
    record->ticket = sim_stream_ticket(stream);
    *ret = record;
    return CUDA_SUCCESS;
}

CUresult cuEventCreate(CUevent *event, unsigned int flags)
{
    const unsigned known = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
    struct event *made;
    CUevent handle;
    CUcontext context;
    CUresult result = sim_enter_context(__func__, &context);

    if (result != CUDA_SUCCESS)
        return result;
    if (event == NULL || (flags & ~known) != 0 ||
        ((flags & CU_EVENT_INTERPROCESS) != 0 && (flags & CU_EVENT_DISABLE_TIMING) == 0))
        return CUDA_ERROR_INVALID_VALUE;
    made = calloc(1, sizeof(*made));
    if (made == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    made->context = context;
    made->flags = flags;
    sim_exec_lock();
    handle = sim_handle_add(SIM_HANDLE_EVENT, made);
    sim_exec_unlock();
    if (handle == NULL) {
        free(made);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *event = handle;
    return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
    struct record *record;
    struct sim_stream *target;
    struct event *found;
    CUcontext context;
    CUresult result = sim_enter_any(__func__, &context);

    if (result != CUDA_SUCCESS)
        return result;
    sim_exec_lock();
    found = sim_handle_get(SIM_HANDLE_EVENT, event);
    result = found == NULL ? CUDA_ERROR_INVALID_HANDLE : sim_stream_find(context, stream, &target);
    if (result == CUDA_SUCCESS && sim_stream_context(target) != found->context)
        result = CUDA_ERROR_INVALID_HANDLE;
    if (result == CUDA_SUCCESS)
        result = record_submit(target, &record);
    if (result == CUDA_SUCCESS) {
        record_unref(found->record);
        found->record = record;
    }
    sim_exec_unlock();
    return result;
}

CUresult cuEventQuery(CUevent event)
{
    struct event *found;
    CUresult result = sim_enter(__func__);

    if (result != CUDA_SUCCESS)
        return result;
    sim_exec_lock();
    found = sim_handle_get(SIM_HANDLE_EVENT, event);
    if (found == NULL)
        result = CUDA_ERROR_INVALID_HANDLE;
    else if (found->record != NULL && !sim_ticket_done(&found->record->ticket))
        result = CUDA_ERROR_NOT_READY;
    sim_exec_unlock();
    return result == CUDA_SUCCESS ? sim_poisoned() : result;
}

CUresult cuEventSynchronize(CUevent event)
{
    struct event *found;
    CUresult result = sim_enter(__func__);

    if (result != CUDA_SUCCESS)
        return result;
    sim_exec_lock();
    found = sim_handle_get(SIM_HANDLE_EVENT, event);
    if (found == NULL) {
        result = CUDA_ERROR_INVALID_HANDLE;
    } else if (found->record != NULL) {
        struct record *record = found->record;

        record->references++;
        sim_ticket_wait(&record->ticket);
        record_unref(record);
    }
    sim_exec_unlock();
    return result == CUDA_SUCCESS ? sim_poisoned() : result;
}

/* Under the lock. */
static CUresult elapsed(float *milliseconds, const struct event *start, const struct event *end)
{
    if (start == NULL || end == NULL || start->record == NULL || end->record == NULL ||
        ((start->flags | end->flags) & CU_EVENT_DISABLE_TIMING) != 0)
        return CUDA_ERROR_INVALID_HANDLE;
    if (!sim_ticket_done(&start->record->ticket) || !sim_ticket_done(&end->record->ticket))
        return CUDA_ERROR_NOT_READY;
    *milliseconds = (float) ((double) (int64_t) (end->record->time_ns - start->record->time_ns) /
                             (double) NSEC_PER_MSEC);
    return CUDA_SUCCESS;
}

CUresult cuEventElapsedTime_v2(float *milliseconds, CUevent start, CUevent end)
{
    CUresult result = sim_enter(__func__);

    if (result != CUDA_SUCCESS)
        return result;
    if (milliseconds == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    sim_exec_lock();
    result = elapsed(milliseconds, sim_handle_get(SIM_HANDLE_EVENT, start),
        sim_handle_get(SIM_HANDLE_EVENT, end));
    sim_exec_unlock();
    return result;
}

CUresult cuEventDestroy_v2(CUevent event)
{
    struct event *found;
    CUresult result = sim_enter(__func__);

    if (result != CUDA_SUCCESS)
        return result;
    sim_exec_lock();
    found = sim_handle_remove(SIM_HANDLE_EVENT, event);
    if (found != NULL)
        record_unref(found->record);
    sim_exec_unlock();
    free(found);
    return found == NULL ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

static CUresult wait_run(struct sim_op *op)
{
    return CUDA_SUCCESS; /* the waiting is done by the op's tickets */
}

/* Under the lock. */
static CUresult wait_submit(struct sim_stream *stream, const struct sim_ticket *ticket)
{
    struct sim_op *op = calloc(1, sizeof(*op));
    CUresult result;

    if (op == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    op->run = wait_run;
    op->destroy = sim_op_free;
    result = sim_tickets_add_copy(&op->waits, ticket);
    if (result != CUDA_SUCCESS) {
        free(op);
        return result;
    }
    return sim_stream_submit(stream, op);
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned int flags)
{
    struct sim_stream *target;
    struct event *found;
    CUcontext context;
    CUresult result = sim_enter_any(__func__, &context);

    if (result != CUDA_SUCCESS)
        return result;
    if (flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    sim_exec_lock();
    found = sim_handle_get(SIM_HANDLE_EVENT, event);
    result = found == NULL ? CUDA_ERROR_INVALID_HANDLE : sim_stream_find(context, stream, &target);
    if (result == CUDA_SUCCESS && found->record != NULL && !sim_ticket_done(&found->record->ticket))
        result = wait_submit(target, &found->record->ticket);
    sim_exec_unlock();
    return result;
}
