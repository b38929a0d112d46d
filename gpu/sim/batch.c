/*
 * cuMemcpyBatchAsync in its two ABIs: 12.8's tells which copy was wrong (failIdx, before the
 * stream), 13.0's doesn't. The batch is one piece of work; each operand may be host or device
 * memory.
 *
 * The order of access to a source: STREAM when the stream gets there, DURING_API_CALL before the
 * call returns whatever the stream holds, ANY we take as STREAM without waiting for pageable
 * memory.
 */
#include "gpu/sim/copy.h"

#define FAILED_NONE SIZE_MAX /* failIdx when no single copy is to blame */

struct batch {
    const CUdeviceptr *targets;
    const CUdeviceptr *sources;
    const size_t *sizes;
    size_t count;
    const CUmemcpyAttributes *attributes;
    const size_t *attribute_starts;
    size_t attribute_count;
};

static bool batch_valid(const struct batch *batch)
{
    if (batch->targets == NULL || batch->sources == NULL || batch->sizes == NULL ||
        batch->attributes == NULL || batch->attribute_starts == NULL)
        return false;
    if (batch->count == 0 || batch->attribute_count == 0 || batch->attribute_count > batch->count)
        return false;
    if (batch->attribute_starts[0] != 0 ||
        batch->attribute_starts[batch->attribute_count - 1] >= batch->count)
        return false;
    for (size_t i = 0; i < batch->attribute_count; i++) {
        unsigned order = batch->attributes[i].srcAccessOrder;

        if (i > 0 && batch->attribute_starts[i] <= batch->attribute_starts[i - 1])
            return false;
        if (order == CU_MEMCPY_SRC_ACCESS_ORDER_INVALID || order > CU_MEMCPY_SRC_ACCESS_ORDER_ANY ||
            (batch->attributes[i].flags & ~(unsigned) CU_MEMCPY_FLAG_PREFER_OVERLAP_WITH_COMPUTE))
            return false;
    }
    return true;
}

static CUresult operand_check(
    CUcontext context, CUdeviceptr address, uint64_t bytes, enum sim_access access)
{
    if (address == 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (sim_operand_pageable(address, bytes))
        return CUDA_SUCCESS;
    return sim_operand_check(context, address, bytes, access);
}

/* Fills in one copy; sets `wait` when the call has to wait for it. */
static CUresult copy_prepare(
    CUcontext context, struct sim_copy *copy, CUmemcpySrcAccessOrder order, bool *wait)
{
    CUresult result = operand_check(context, copy->source, copy->bytes, SIM_ACCESS_READ);

    if (result == CUDA_SUCCESS)
        result = operand_check(context, copy->target, copy->bytes, SIM_ACCESS_WRITE);
    if (result != CUDA_SUCCESS || copy->bytes == 0)
        return result;
    if (sim_operand_pageable(copy->target, copy->bytes))
        *wait = true;
    if (order == CU_MEMCPY_SRC_ACCESS_ORDER_DURING_API_CALL)
        return sim_copy_stage(copy);
    if (order == CU_MEMCPY_SRC_ACCESS_ORDER_STREAM &&
        sim_operand_pageable(copy->source, copy->bytes))
        *wait = true;
    return CUDA_SUCCESS;
}

static CUresult batch_prepare(CUcontext context, const struct batch *batch,
    struct sim_copy_op *work, bool *wait, size_t *failed)
{
    size_t attribute = 0;

    for (size_t i = 0; i < batch->count; i++) {
        struct sim_copy *copy = &work->copies[i];
        CUresult result;

        if (attribute + 1 < batch->attribute_count && batch->attribute_starts[attribute + 1] == i)
            attribute++;
        copy->target = batch->targets[i];
        copy->source = batch->sources[i];
        copy->bytes = batch->sizes[i];
        result = copy_prepare(context, copy, batch->attributes[attribute].srcAccessOrder, wait);
        if (result != CUDA_SUCCESS) {
            *failed = i;
            return result;
        }
    }
    return CUDA_SUCCESS;
}

static CUresult batch_put(
    const char *call, const struct batch *batch, CUstream stream, size_t *failed)
{
    struct sim_copy_op *work;
    CUcontext current, context;
    bool wait = false;
    CUresult result = sim_enter_any(call, &current);

    *failed = FAILED_NONE;
    if (result != CUDA_SUCCESS)
        return result;
    if (stream == NULL || stream == CU_STREAM_LEGACY || !batch_valid(batch))
        return CUDA_ERROR_INVALID_VALUE;
    result = sim_work_context(current, stream, &context);
    if (result != CUDA_SUCCESS)
        return result;
    work = sim_copy_op_new(batch->count);
    if (work == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = batch_prepare(context, batch, work, &wait, failed);
    if (result != CUDA_SUCCESS) {
        sim_copy_op_free(work);
        return result;
    }
    return sim_stream_put(current, stream, &work->op, wait);
}

CUresult cuMemcpyBatchAsync(CUdeviceptr *targets, CUdeviceptr *sources, size_t *sizes, size_t count,
    CUmemcpyAttributes *attributes, size_t *attribute_starts, size_t attribute_count,
    size_t *failed, CUstream stream)
{
    const struct batch batch = {
        targets, sources, sizes, count, attributes, attribute_starts, attribute_count};
    size_t index;
    CUresult result = batch_put(__func__, &batch, stream, &index);

    if (result != CUDA_SUCCESS && failed != NULL)
        *failed = index;
    return result;
}

CUresult cuMemcpyBatchAsync_v2(CUdeviceptr *targets, CUdeviceptr *sources, size_t *sizes,
    size_t count, CUmemcpyAttributes *attributes, size_t *attribute_starts, size_t attribute_count,
    CUstream stream)
{
    const struct batch batch = {
        targets, sources, sizes, count, attributes, attribute_starts, attribute_count};
    size_t index;

    return batch_put(__func__, &batch, stream, &index);
}
