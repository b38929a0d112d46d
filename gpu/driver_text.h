/* What a driver's result means to us: errno and text. Pure; any thread. */
#pragma once

#include "gpu/cuda_abi.h"
#include "gpu/gpu.h"
#include "gpu/nvml_abi.h"

struct cuda_api;

/* Total. SUCCESS is 0; what poisons the process is -EIO. OUT_OF_MEMORY is -ENOMEM. */
int cuda_result_errno(CUresult result);
int nvml_result_errno(nvmlReturn_t result);

/* `error` may be NULL. Text that doesn't fit is cut. */
void gpu_error_set(struct gpu_error *error, int code, const char *format, ...) _printf_(3, 4);

/*
 * For the end of a call: 0 on success, else fills `error` with `call: NAME (code)` and returns the
 * errno. `api` gives the name.
 */
int cuda_result_check(
    const struct cuda_api *api, CUresult result, const char *call, struct gpu_error *error);
int nvml_result_check(nvmlReturn_t result, const char *call, struct gpu_error *error);
