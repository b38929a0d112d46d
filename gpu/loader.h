/*
 * Finds a driver library and fills a table of its functions. Loads nothing by itself otherwise:
 * no initialisation, no global state beyond the library that dlopen keeps.
 *
 * Where: the real driver by its plain name. The simulator in $GMB_SIM_LIBDIR (ignored in a setuid
 * program), then where this build put it, then where it is installed, then by its plain name.
 */
#pragma once

#include "gpu/cuda_abi.h"
#include "gpu/gpu.h"
#include "gpu/nvml_abi.h"

#define LOADER_MEMBER_CUDA(need, since, symbol, member, parameters) CUresult(*member) parameters;
#define LOADER_MEMBER_NVML(need, since, symbol, member, parameters)                                \
    nvmlReturn_t(*member) parameters;

/* A member that the list calls OPTIONAL may be NULL. */
struct cuda_api {
    void *handle; /* of dlopen(3), owned; cuda_unload closes it */
    int version;  /* of the driver: 1000 × major + 10 × minor */
    CUDA_FUNCTIONS(LOADER_MEMBER_CUDA)
};

struct nvml_api {
    void *handle; /* of dlopen(3), owned; nvml_unload closes it */
    NVML_FUNCTIONS(LOADER_MEMBER_NVML)
};

/*
 * -ENODEV: there is no such library, or it is the toolkit's stub, whose every function returns 34.
 * -ENOSYS: it lacks a required function, which the text names with the driver version that has it.
 */
int cuda_load(enum gpu_driver driver, struct cuda_api *ret, struct gpu_error *error) _must_check_;
int nvml_load(enum gpu_driver driver, struct nvml_api *ret, struct gpu_error *error) _must_check_;

/* As cuda_load, from the library at `path`: what dlopen takes. */
int cuda_load_path(const char *path, struct cuda_api *ret, struct gpu_error *error) _must_check_;

/* Idempotent. No function of the table may be running or called afterwards. */
void cuda_unload(struct cuda_api *api);
void nvml_unload(struct nvml_api *api);
