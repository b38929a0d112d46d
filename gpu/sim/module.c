/*
 * Modules. An image is PTX text: its entry points are bound by name to the kernels that are
 * compiled into the simulator. Machine code for a GPU (cubin, fatbin) can't run here and is refused
 * with 209, and so is an entry point that no compiled kernel answers to or that has other
 * parameters.
 */
#include "gpu/sim/module.h"

#include "gpu/sim/handle.h"

#include <ctype.h>
#include <string.h>

/* CUDA 12.8, SIM_DRIVER_VERSION, reads PTX up to 8.7. */
#define PTX_VERSION_MAX 87

struct module {
    CUcontext context;
    struct ptx ptx;
    struct sim_function *functions; /* one for each entry; its handle is NULL until asked for */
};

static void module_free(struct module *module)
{
    if (module == NULL)
        return;
    ptx_clear(&module->ptx);
    free(module->functions);
    free(module);
}

/* What kind of image it is, by its first bytes. */
static CUresult image_check(const void *image)
{
    static const unsigned char elf[] = {0x7f, 'E', 'L', 'F'};
    static const unsigned char fatbin[] = {0x50, 0xed, 0x55, 0xba};
    const unsigned char *bytes = image;

    /* Read byte by byte: text may end anywhere. */
    if (bytes[0] == elf[0])
        return strncmp(image, (const char *) elf, sizeof(elf)) == 0 ? CUDA_ERROR_NO_BINARY_FOR_GPU
                                                                    : CUDA_ERROR_INVALID_IMAGE;
    if (bytes[0] == fatbin[0] && bytes[1] == fatbin[1])
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    return isprint(bytes[0]) || isspace(bytes[0]) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_IMAGE;
}

static CUresult module_new(CUcontext context, const void *image, struct module **ret)
{
    struct module *module;
    CUresult result = image_check(image);

    if (result != CUDA_SUCCESS)
        return result;
    module = calloc(1, sizeof(*module));
    if (module == NULL)
        return CUDA_ERROR_OUT_OF_MEMORY;
    module->context = context;
    result = ptx_parse(image, PTX_VERSION_MAX, &module->ptx);
    if (result == CUDA_SUCCESS) {
        module->functions = calloc(module->ptx.entries_count + 1, sizeof(*module->functions));
        if (module->functions == NULL)
            result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result != CUDA_SUCCESS) {
        module_free(module);
        return result;
    }
    for (size_t i = 0; i < module->ptx.entries_count; i++)
        module->functions[i] = (struct sim_function){
            .context = context,
            .entry = &module->ptx.entries[i],
            .kernel = kernel_find(module->ptx.entries[i].name),
        };
    *ret = module;
    return CUDA_SUCCESS;
}

/* Under the lock. */
static CUresult function_get(const struct module *module, const char *name, CUfunction *ret)
{
    for (size_t i = 0; i < module->ptx.entries_count; i++) {
        struct sim_function *function = &module->functions[i];

        if (strcmp(function->entry->name, name) != 0)
            continue;
        if (function->kernel == NULL ||
            function->kernel->params_bytes != function->entry->params_bytes)
            return CUDA_ERROR_NO_BINARY_FOR_GPU;
        if (function->handle == NULL)
            function->handle = sim_handle_add(SIM_HANDLE_FUNCTION, function);
        if (function->handle == NULL)
            return CUDA_ERROR_OUT_OF_MEMORY;
        *ret = function->handle;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_NOT_FOUND;
}

const struct sim_function *sim_function_find(CUfunction handle)
{
    return sim_handle_get(SIM_HANDLE_FUNCTION, handle);
}

CUresult cuModuleLoadData(CUmodule *module, const void *image)
{
    struct module *made;
    CUmodule handle;
    CUcontext context;
    CUresult result = sim_enter_context(__func__, &context);

    if (result != CUDA_SUCCESS)
        return result;
    if (module == NULL || image == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    result = module_new(context, image, &made);
    if (result != CUDA_SUCCESS)
        return result;
    sim_exec_lock();
    handle = sim_handle_add(SIM_HANDLE_MODULE, made);
    sim_exec_unlock();
    if (handle == NULL) {
        module_free(made);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *module = handle;
    return CUDA_SUCCESS;
}

CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name)
{
    struct module *found;
    CUcontext context;
    CUresult result = sim_enter_context(__func__, &context);

    if (result != CUDA_SUCCESS)
        return result;
    if (function == NULL || name == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    sim_exec_lock();
    found = sim_handle_get(SIM_HANDLE_MODULE, module);
    result = found == NULL ? CUDA_ERROR_INVALID_HANDLE : function_get(found, name, function);
    sim_exec_unlock();
    return result;
}

/* Launches that are queued hold what they need of the module themselves. */
CUresult cuModuleUnload(CUmodule module)
{
    struct module *found;
    CUcontext context;
    CUresult result = sim_enter_context(__func__, &context);

    if (result != CUDA_SUCCESS)
        return result;
    sim_exec_lock();
    found = sim_handle_remove(SIM_HANDLE_MODULE, module);
    for (size_t i = 0; found != NULL && i < found->ptx.entries_count; i++)
        if (found->functions[i].handle != NULL)
            (void) sim_handle_remove(SIM_HANDLE_FUNCTION, found->functions[i].handle);
    sim_exec_unlock();
    module_free(found);
    return found == NULL ? CUDA_ERROR_INVALID_HANDLE : CUDA_SUCCESS;
}
