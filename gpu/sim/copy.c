/*
 * Copies between host and device. A range is checked when the call is made (1); when the work runs,
 * the memory may have been unmapped meanwhile, which is a fault (700).
 *
 * Page-locked host memory and device memory are copied when the stream gets there. Pageable memory
 * makes the call wait for that: the application may reuse or free it as soon as the call returns.
 * As on the real driver, a copy within the device is never waited for, whatever the call is called.
 */
#include "gpu/sim/copy.h"

#include "gpu/sim/guard.h"
#include "gpu/sim/host.h"

#include <string.h>

/* ---- the work ---- */

static void copies_run(void *argument)
{
    const struct sim_copy_op *work = argument;

    for (size_t i = 0; i < work->count; i++) {
        const struct sim_copy *copy = &work->copies[i];
        const void *source =
            copy->staged != NULL ? copy->staged : (const void *) (uintptr_t) copy->source;

        memmove((void *) (uintptr_t) copy->target, source, copy->bytes);
    }
}

static CUresult copy_op_run(struct sim_op *op)
{
    struct sim_copy_op *work = container_of(op, struct sim_copy_op, op);

    return sim_guard(copies_run, work) ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
}

static void copy_op_destroy(struct sim_op *op)
{
    sim_copy_op_free(container_of(op, struct sim_copy_op, op));
}

struct sim_copy_op *sim_copy_op_new(size_t count)
{
    struct sim_copy_op *work;
    uint64_t bytes;

    if (__builtin_mul_overflow(count, sizeof(work->copies[0]), &bytes) ||
        __builtin_add_overflow(bytes, sizeof(*work), &bytes))
        return NULL;
    work = calloc(1, bytes);
    if (work == NULL)
        return NULL;
    work->op.run = copy_op_run;
    work->op.destroy = copy_op_destroy;
    work->count = count;
    return work;
}

void sim_copy_op_free(struct sim_copy_op *work)
{
    if (work == NULL)
        return;
    for (size_t i = 0; i < work->count; i++)
        free(work->copies[i].staged);
    free(work);
}

static void stage_run(void *argument)
{
    struct sim_copy *copy = argument;

    memcpy(copy->staged, (const void *) (uintptr_t) copy->source, copy->bytes);
}

CUresult sim_copy_stage(struct sim_copy *copy)
{
    copy->staged = malloc(copy->bytes);
    if (copy->staged == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (sim_guard(stage_run, copy))
        return CUDA_SUCCESS;
    sim_poison(CUDA_ERROR_ILLEGAL_ADDRESS);
    return CUDA_ERROR_ILLEGAL_ADDRESS;
}

/* ---- operands ---- */

CUresult sim_operand_check(
    CUcontext context, CUdeviceptr address, uint64_t bytes, enum sim_access access)
{
    if (sim_host_covers((const void *) (uintptr_t) address, bytes))
        return CUDA_SUCCESS;
    return sim_va_check(address, bytes, access, sim_context_device(context));
}

bool sim_operand_pageable(CUdeviceptr address, uint64_t bytes)
{
    struct sim_va_info info;

    return !sim_host_covers((const void *) (uintptr_t) address, bytes) &&
           !sim_va_find(address, &info);
}

CUresult sim_work_context(CUcontext current, CUstream handle, CUcontext *ret)
{
    struct sim_stream *stream;
    CUresult result;

    sim_exec_lock();
    result = sim_stream_find_for_work(current, handle, &stream);
    if (result == CUDA_SUCCESS)
        *ret = sim_stream_context(stream);
    sim_exec_unlock();
    return result;
}

/* ---- calls ---- */

enum direction { HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE };

/* One operand of a copy: the host side may be any memory, the device side may not. */
static CUresult side_check(
    CUcontext context, CUdeviceptr address, uint64_t bytes, enum sim_access access, bool host)
{
    if (host && address == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (host && sim_operand_pageable(address, bytes))
        return CUDA_SUCCESS;
    return sim_operand_check(context, address, bytes, access);
}

static CUresult copy_put(CUcontext current, CUstream stream, const struct sim_copy *copy,
    enum direction direction, bool wait)
{
    struct sim_copy_op *work;
    CUcontext context;
    CUresult result = sim_work_context(current, stream, &context);

    if (result != CUDA_SUCCESS || copy->bytes == 0)
        return result;
    result = side_check(
        context, copy->source, copy->bytes, SIM_ACCESS_READ, direction == HOST_TO_DEVICE);
    if (result == CUDA_SUCCESS)
        result = side_check(
            context, copy->target, copy->bytes, SIM_ACCESS_WRITE, direction == DEVICE_TO_HOST);
    if (result != CUDA_SUCCESS)
        return result;
    if (direction == HOST_TO_DEVICE)
        wait = wait || sim_operand_pageable(copy->source, copy->bytes);
    else if (direction == DEVICE_TO_HOST)
        wait = wait || sim_operand_pageable(copy->target, copy->bytes);
    work = sim_copy_op_new(1);
    if (work == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    work->copies[0] = *copy;
    return sim_stream_put(current, stream, &work->op, wait);
}

static CUresult copy_now(const char *call, const struct sim_copy *copy, enum direction direction)
{
    CUcontext context;
    CUresult result = sim_enter_context(call, &context);

    if (result != CUDA_SUCCESS)
        return result;
    return copy_put(context, NULL, copy, direction, direction != DEVICE_TO_DEVICE);
}

static CUresult copy_later(
    const char *call, const struct sim_copy *copy, enum direction direction, CUstream stream)
{
    CUcontext context;
    CUresult result = sim_enter_any(call, &context);

    if (result != CUDA_SUCCESS)
        return result;
    return copy_put(context, stream, copy, direction, false);
}

CUresult cuMemcpyHtoD_v2(CUdeviceptr target, const void *source, size_t size)
{
    struct sim_copy copy = {.target = target, .source = (uintptr_t) source, .bytes = size};

    return copy_now(__func__, &copy, HOST_TO_DEVICE);
}

CUresult cuMemcpyDtoH_v2(void *target, CUdeviceptr source, size_t size)
{
    struct sim_copy copy = {.target = (uintptr_t) target, .source = source, .bytes = size};

    return copy_now(__func__, &copy, DEVICE_TO_HOST);
}

CUresult cuMemcpyDtoD_v2(CUdeviceptr target, CUdeviceptr source, size_t size)
{
    struct sim_copy copy = {.target = target, .source = source, .bytes = size};

    return copy_now(__func__, &copy, DEVICE_TO_DEVICE);
}

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr target, const void *source, size_t size, CUstream stream)
{
    struct sim_copy copy = {.target = target, .source = (uintptr_t) source, .bytes = size};

    return copy_later(__func__, &copy, HOST_TO_DEVICE, stream);
}

CUresult cuMemcpyDtoHAsync_v2(void *target, CUdeviceptr source, size_t size, CUstream stream)
{
    struct sim_copy copy = {.target = (uintptr_t) target, .source = source, .bytes = size};

    return copy_later(__func__, &copy, DEVICE_TO_HOST, stream);
}

CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr target, CUdeviceptr source, size_t size, CUstream stream)
{
    struct sim_copy copy = {.target = target, .source = source, .bytes = size};

    return copy_later(__func__, &copy, DEVICE_TO_DEVICE, stream);
}
