/*
 * cuLaunchKernel. The parameters are copied when the call is made; the kernel runs on its stream's
 * thread, all its threads in turn, under the guard: a fault is 700 for the whole process.
 *
 * A kernel is given addresses, not checked ranges, as on a GPU. What it can't reach here is what
 * the host process can't reach: a wild pointer into the host's own heap isn't noticed.
 */
#include "gpu/sim/guard.h"
#include "gpu/sim/module.h"

#include <string.h>

/* CUDA C++ Programming Guide, technical specifications: the same for all GPUs since sm_30. */
#define GRID_X_MAX 2147483647u
#define GRID_YZ_MAX 65535u
#define BLOCK_XY_MAX 1024u
#define BLOCK_Z_MAX 64u
#define BLOCK_THREADS_MAX 1024u
#define SHARED_BYTES_MAX (48u * 1024u) /* without opting in to more */

/* Keys of the `extra` array. */
#define EXTRA_END 0
#define EXTRA_BUFFER_POINTER 1
#define EXTRA_BUFFER_SIZE 2

struct launch_op {
    struct sim_op op;
    const struct kernel_info *kernel;
    struct kernel_dim grid;
    struct kernel_dim block;
    _Alignas(16) unsigned char params[];
};

static void launch_run(void *argument)
{
    const struct launch_op *launch = argument;

    kernel_run(launch->kernel, &launch->grid, &launch->block, launch->params);
}

static CUresult launch_op_run(struct sim_op *op)
{
    struct launch_op *launch = container_of(op, struct launch_op, op);

    return sim_guard(launch_run, launch) ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
}

static bool dims_valid(const struct kernel_dim *grid, const struct kernel_dim *block)
{
    return grid->x > 0 && grid->x <= GRID_X_MAX && grid->y > 0 && grid->y <= GRID_YZ_MAX &&
           grid->z > 0 && grid->z <= GRID_YZ_MAX && block->x > 0 && block->x <= BLOCK_XY_MAX &&
           block->y > 0 && block->y <= BLOCK_XY_MAX && block->z > 0 && block->z <= BLOCK_Z_MAX &&
           kernel_volume(block) <= BLOCK_THREADS_MAX;
}

/* Copies the parameters that one of the two arrays gives; 1 when neither does or both do. */
static CUresult params_copy(
    const struct ptx_entry *entry, void **parameters, void **extra, unsigned char *target)
{
    const void *buffer = NULL;
    const size_t *size = NULL;

    if (parameters != NULL && extra != NULL)
        return CUDA_ERROR_INVALID_VALUE;
    if (parameters != NULL) {
        for (size_t i = 0; i < entry->params_count; i++) {
            if (parameters[i] == NULL)
                return CUDA_ERROR_INVALID_VALUE;
            memcpy(target + entry->params[i].offset, parameters[i], entry->params[i].bytes);
        }
        return CUDA_SUCCESS;
    }
    for (; extra != NULL && *extra != (void *) EXTRA_END; extra += 2) {
        if (*extra == (void *) EXTRA_BUFFER_POINTER)
            buffer = extra[1];
        else if (*extra == (void *) EXTRA_BUFFER_SIZE)
            size = extra[1];
        else
            return CUDA_ERROR_INVALID_VALUE;
    }
    if (entry->params_bytes == 0)
        return CUDA_SUCCESS;
    if (buffer == NULL || size == NULL || *size < entry->params_bytes)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(target, buffer, entry->params_bytes);
    return CUDA_SUCCESS;
}

/* Under the lock, which keeps the function's module loaded. */
static CUresult launch_submit(CUcontext context, CUfunction handle, CUstream stream,
    const struct launch_op *shape, void **parameters, void **extra)
{
    const struct sim_function *function = sim_function_find(handle);
    struct sim_stream *target;
    struct launch_op *launch;
    CUresult result;

    if (function == NULL)
        return CUDA_ERROR_INVALID_HANDLE;
    result = sim_stream_find_for_work(context, stream, &target);
    if (result != CUDA_SUCCESS)
        return result;
    if (sim_stream_context(target) != function->context)
        return CUDA_ERROR_INVALID_HANDLE;
    launch = calloc(1, sizeof(*launch) + function->entry->params_bytes);
    if (launch == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    result = params_copy(function->entry, parameters, extra, launch->params);
    if (result != CUDA_SUCCESS) {
        free(launch);
        return result;
    }
    launch->op.run = launch_op_run;
    launch->op.destroy = sim_op_free;
    launch->kernel = function->kernel;
    launch->grid = shape->grid;
    launch->block = shape->block;
    return sim_stream_submit(target, &launch->op);
}

CUresult cuLaunchKernel(CUfunction function, unsigned int grid_x, unsigned int grid_y,
    unsigned int grid_z, unsigned int block_x, unsigned int block_y, unsigned int block_z,
    unsigned int shared_bytes, CUstream stream, void **parameters, void **extra)
{
    const struct launch_op shape = {
        .grid = {grid_x, grid_y, grid_z}, .block = {block_x, block_y, block_z}};
    CUcontext context;
    CUresult result = sim_enter_any(__func__, &context);

    if (result != CUDA_SUCCESS)
        return result;
    if (!dims_valid(&shape.grid, &shape.block) || shared_bytes > SHARED_BYTES_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    sim_exec_lock();
    result = launch_submit(context, function, stream, &shape, parameters, extra);
    sim_exec_unlock();
    return result;
}
