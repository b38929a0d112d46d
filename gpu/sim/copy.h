/* Copies: the piece of work that single and batched calls share, and what an operand may be. */
#pragma once

#include "gpu/sim/stream.h"

struct sim_copy {
    CUdeviceptr target;
    CUdeviceptr source;
    uint64_t bytes;
    void *staged; /* bytes taken from `source` at the time of the call, owned; NULL: none */
};

struct sim_copy_op {
    struct sim_op op;
    size_t count;
    struct sim_copy copies[];
};

/* Room for `count` copies, all zero; NULL without host memory. Owned by the op once submitted. */
struct sim_copy_op *sim_copy_op_new(size_t count);
void sim_copy_op_free(struct sim_copy_op *op);

/*
 * CUDA_SUCCESS when the device of `context` may access the range: it is mapped so, or page-locked
 * host memory. 1 otherwise.
 */
CUresult sim_operand_check(
    CUcontext context, CUdeviceptr address, uint64_t bytes, enum sim_access access) _must_check_;

/* True for host memory that the driver knows nothing of: copies with it may be synchronous. */
bool sim_operand_pageable(CUdeviceptr address, uint64_t bytes);

/* The context that work in the stream `handle` belongs to; errors as sim_stream_find_for_work. */
CUresult sim_work_context(CUcontext current, CUstream handle, CUcontext *ret) _must_check_;

/* Fills `copy->staged` now. 700, and the process is poisoned, if the source faults. */
CUresult sim_copy_stage(struct sim_copy *copy) _must_check_;
