/*
 * The stream calls, and which stream a handle means.
 *
 * The two special streams exist once per context (legacy) and once per context and thread
 * (per-thread default) and are made when first used. A per-thread stream is closed when its thread
 * ends.
 */
#include "gpu/sim/handle.h"
#include "gpu/sim/host_function.h"
#include "gpu/sim/stream_private.h"

/* ---- which stream ---- */

static pthread_once_t thread_once = PTHREAD_ONCE_INIT;
static pthread_key_t thread_key;
static bool thread_key_made;
/* Its address is the thread's identity. */
static _Thread_local char thread_mark;

static void thread_end(void *mark)
{
    sim_exec_lock();
    sim_streams_close_thread(mark);
    sim_exec_unlock();
}

static void thread_key_make(void)
{
    thread_key_made = pthread_key_create(&thread_key, thread_end) == 0;
}

static CUresult special_find(CUcontext context, enum sim_stream_kind kind, struct sim_stream **ret)
{
    const void *thread = kind == SIM_STREAM_PER_THREAD ? &thread_mark : NULL;
    struct sim_stream *stream;

    if (context == NULL)
        return CUDA_ERROR_INVALID_CONTEXT;
    stream = sim_stream_find_kind(context, kind, thread);
    if (stream == NULL) {
        if (thread != NULL) {
            (void) pthread_once(&thread_once, thread_key_make);
            if (!thread_key_made || pthread_setspecific(thread_key, thread) != 0)
                return CUDA_ERROR_OUT_OF_MEMORY;
        }
        stream = sim_stream_new(context, kind);
        if (stream == NULL)
            return CUDA_ERROR_OUT_OF_MEMORY;
        stream->thread = thread;
    }
    *ret = stream;
    return CUDA_SUCCESS;
}

CUresult sim_stream_find(CUcontext context, CUstream handle, struct sim_stream **ret)
{
    struct sim_stream *stream;

    if (handle == NULL || handle == CU_STREAM_LEGACY)
        return special_find(context, SIM_STREAM_LEGACY, ret);
    if (handle == CU_STREAM_PER_THREAD)
        return special_find(context, SIM_STREAM_PER_THREAD, ret);
    stream = sim_handle_get(SIM_HANDLE_STREAM, handle);
    if (stream == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    *ret = stream;
    return CUDA_SUCCESS;
}

CUresult sim_stream_find_for_work(CUcontext context, CUstream handle, struct sim_stream **ret)
{
    CUresult result = sim_stream_find(context, handle, ret);

    if (result == CUDA_SUCCESS && context != NULL && (*ret)->context != context)
        return CUDA_ERROR_INVALID_HANDLE;
    return result;
}

CUresult sim_stream_put(CUcontext context, CUstream handle, struct sim_op *op, bool wait)
{
    struct sim_ticket ticket;
    struct sim_stream *stream;
    CUresult result;

    sim_exec_lock();
    result = sim_stream_find_for_work(context, handle, &stream);
    if (result == CUDA_SUCCESS)
        result = sim_stream_submit(stream, op);
    else
        op->destroy(op);
    if (result == CUDA_SUCCESS && wait) {
        ticket = sim_stream_ticket(stream);
        sim_ticket_wait(&ticket);
        sim_ticket_drop(&ticket);
    }
    sim_exec_unlock();
    /* What ended the wait may be a fault. */
    return result == CUDA_SUCCESS && wait ? sim_poisoned() : result;
}

CUresult sim_enter_any(const char *call, CUcontext *ret_context)
{
    CUcontext context = NULL;
    CUresult result = sim_enter(call);

    if (result != CUDA_SUCCESS)
        return result;
    if (sim_context_current(&context) != CUDA_SUCCESS)
        context = NULL;
    *ret_context = context;
    return CUDA_SUCCESS;
}

/* ---- calls ---- */

CUresult cuStreamCreate(CUstream *stream, unsigned int flags)
{
    struct sim_stream *made;
    CUcontext context;
    CUresult result = sim_enter_context(__func__, &context);

    if (result != CUDA_SUCCESS)
        return result;
    if (stream == NULL || (flags & ~(unsigned) CU_STREAM_NON_BLOCKING) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    sim_exec_lock();
    made = sim_stream_new(
        context, flags & CU_STREAM_NON_BLOCKING ? SIM_STREAM_NON_BLOCKING : SIM_STREAM_BLOCKING);
    if (made != NULL)
        made->handle = sim_handle_add(SIM_HANDLE_STREAM, made);
    if (made == NULL || made->handle == NULL)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS)
        *stream = made->handle;
    else if (made != NULL)
        sim_stream_close(made);
    sim_exec_unlock();
    return result;
}

CUresult cuStreamQuery(CUstream stream)
{
    struct sim_stream *found;
    CUcontext context;
    CUresult result = sim_enter_any(__func__, &context);

    if (result != CUDA_SUCCESS)
        return result;
    sim_exec_lock();
    result = sim_stream_find(context, stream, &found);
    if (result == CUDA_SUCCESS && found->completed < found->submitted)
        result = CUDA_ERROR_NOT_READY;
    sim_exec_unlock();
    /* What ended the work may be a fault. */
    return result == CUDA_SUCCESS ? sim_poisoned() : result;
}

CUresult cuStreamSynchronize(CUstream stream)
{
    struct sim_stream *found;
    CUcontext context;
    CUresult result = sim_enter_any(__func__, &context);

    if (result != CUDA_SUCCESS)
        return result;
    sim_exec_lock();
    result = sim_stream_find(context, stream, &found);
    if (result == CUDA_SUCCESS) {
        struct sim_ticket ticket = sim_stream_ticket(found);

        sim_ticket_wait(&ticket);
        sim_ticket_drop(&ticket);
    }
    sim_exec_unlock();
    return result == CUDA_SUCCESS ? sim_poisoned() : result;
}

CUresult cuStreamDestroy_v2(CUstream stream)
{
    struct sim_stream *found;
    CUresult result = sim_enter(__func__);

    if (result != CUDA_SUCCESS)
        return result;
    sim_exec_lock();
    found = sim_handle_remove(SIM_HANDLE_STREAM, stream);
    if (found != NULL)
        sim_stream_close(found);
    sim_exec_unlock();
    return found == NULL ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}

/* ---- host functions ---- */

static _Thread_local bool in_host_function;

bool sim_in_host_function(void)
{
    return in_host_function;
}

struct host_function_op {
    struct sim_op op;
    CUhostFn function;
    void *data;
};

static CUresult host_function_run(struct sim_op *op)
{
    struct host_function_op *call = container_of(op, struct host_function_op, op);

    in_host_function = true;
    call->function(call->data);
    in_host_function = false;
    return CUDA_SUCCESS;
}

CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void *data)
{
    struct host_function_op *call;
    CUcontext context;
    CUresult result = sim_enter_any(__func__, &context);

    if (result != CUDA_SUCCESS)
        return result;
    if (function == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    call = calloc(1, sizeof(*call));
    if (call == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    call->op.run = host_function_run;
    call->op.destroy = sim_op_free;
    call->function = function;
    call->data = data;
    return sim_stream_put(context, stream, &call->op, false);
}
