/*
 * Memsets: `count` elements of one or four bytes. They are asynchronous for the host, the ones
 * without `Async` too, except on page-locked host memory.
 */
#include "gpu/sim/copy.h"
#include "gpu/sim/guard.h"
#include "gpu/sim/host.h"

#include <string.h>
#include <sys/mman.h>

#define PAGE_BYTES 4096u
/* From here on it is faster than writing. */
#define DROP_BYTES (UINT64_C(1) << 20)

struct memset_op {
    struct sim_op op;
    CUdeviceptr target;
    uint64_t count;
    unsigned width; /* bytes of an element: 1 or 4 */
    uint32_t value;
};

/*
 * Zeros need no memory: the whole pages of a large range are taken out of their file, which makes
 * zeros of them. Returns how many bytes in front of them are left to be written, and in
 * `*ret_behind` those behind. Where it can't be done (the file system, memory of the host, a fault
 * to come) all of them are in front.
 */
static uint64_t zeros_drop(CUdeviceptr target, uint64_t bytes, uint64_t *ret_behind)
{
    uint64_t before = -target % PAGE_BYTES, whole;

    *ret_behind = 0;
    if (bytes < DROP_BYTES)
        return bytes;
    whole = (bytes - before) / PAGE_BYTES * PAGE_BYTES;
    if (madvise((void *) (uintptr_t) (target + before), whole, MADV_REMOVE) < 0)
        return bytes;
    *ret_behind = bytes - before - whole;
    return before;
}

static void memset_run(void *argument)
{
    const struct memset_op *work = argument;

    if (work->value == 0) {
        uint64_t bytes = work->count * work->width, behind;
        uint64_t front = zeros_drop(work->target, bytes, &behind);

        memset((void *) (uintptr_t) work->target, 0, front);
        memset((void *) (uintptr_t) (work->target + bytes - behind), 0, behind);
    } else if (work->width == 1) {
        memset((void *) (uintptr_t) work->target, (int) work->value, work->count);
    } else {
        uint32_t *words = (uint32_t *) (uintptr_t) work->target;

        for (uint64_t i = 0; i < work->count; i++)
            words[i] = work->value;
    }
}

static CUresult memset_op_run(struct sim_op *op)
{
    struct memset_op *work = container_of(op, struct memset_op, op);

    return sim_guard(memset_run, work) ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
}

static CUresult memset_put(
    CUcontext current, CUstream stream, const struct memset_op *request, bool may_wait)
{
    struct memset_op *work;
    CUcontext context;
    uint64_t bytes;
    CUresult result = sim_work_context(current, stream, &context);

    if (result != CUDA_SUCCESS)
        return result;
    if (__builtin_mul_overflow(request->count, request->width, &bytes) ||
        request->target % request->width != 0)
        return CUDA_ERROR_INVALID_VALUE;
    result = sim_operand_check(context, request->target, bytes, SIM_ACCESS_WRITE);
    if (result != CUDA_SUCCESS || bytes == 0)
        return result;
    work = malloc(sizeof(*work));
    if (work == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *work = *request;
    work->op.run = memset_op_run;
    work->op.destroy = sim_op_free;
    return sim_stream_put(current, stream, &work->op,
        may_wait && sim_host_covers((const void *) (uintptr_t) request->target, bytes));
}

static CUresult memset_now(const char *call, const struct memset_op *request)
{
    CUcontext context;
    CUresult result = sim_enter_context(call, &context);

    return result == CUDA_SUCCESS ? memset_put(context, NULL, request, true) : result;
}

static CUresult memset_later(const char *call, const struct memset_op *request, CUstream stream)
{
    CUcontext context;
    CUresult result = sim_enter_any(call, &context);

    return result == CUDA_SUCCESS ? memset_put(context, stream, request, false) : result;
}

CUresult cuMemsetD8_v2(CUdeviceptr target, unsigned char value, size_t count)
{
    struct memset_op request = {.target = target, .count = count, .width = 1, .value = value};

    return memset_now(__func__, &request);
}

CUresult cuMemsetD32_v2(CUdeviceptr target, unsigned int value, size_t count)
{
    struct memset_op request = {.target = target, .count = count, .width = 4, .value = value};

    return memset_now(__func__, &request);
}

CUresult cuMemsetD8Async(CUdeviceptr target, unsigned char value, size_t count, CUstream stream)
{
    struct memset_op request = {.target = target, .count = count, .width = 1, .value = value};

    return memset_later(__func__, &request, stream);
}

CUresult cuMemsetD32Async(CUdeviceptr target, unsigned int value, size_t count, CUstream stream)
{
    struct memset_op request = {.target = target, .count = count, .width = 4, .value = value};

    return memset_later(__func__, &request, stream);
}
