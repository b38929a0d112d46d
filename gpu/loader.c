/*
 * A library is a file that dlopen accepts and that has every required symbol under its versioned
 * name. Symbols are looked up from a table made of the function list, so that nobody can add a
 * member and forget to load it.
 */
#include "gpu/loader.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "gpu/driver_text.h"

enum symbol_need { REQUIRED, OPTIONAL };

struct symbol {
    enum symbol_need need;
    int since;
    const char *name;
    size_t offset; /* of the member in the table */
};

#define SYMBOL_CUDA(need, since, symbol, member, parameters)                                       \
    {need, since, #symbol, offsetof(struct cuda_api, member)},
#define SYMBOL_NVML(need, since, symbol, member, parameters)                                       \
    {need, since, #symbol, offsetof(struct nvml_api, member)},

static const struct symbol cuda_symbols[] = {CUDA_FUNCTIONS(SYMBOL_CUDA)};
static const struct symbol nvml_symbols[] = {NVML_FUNCTIONS(SYMBOL_NVML)};

struct library_names {
    const char *cuda;
    const char *nvml;
};

static const struct library_names library_names[] = {
    [GPU_DRIVER_CUDA] = {"libcuda.so.1", "libnvidia-ml.so.1"},
    [GPU_DRIVER_SIM] = {"libcuda-sim.so.1", "libnvidia-ml-sim.so.1"},
};
_Static_assert(ARRAY_SIZE(library_names) == GPU_DRIVER_MAX, "a name for each driver");

static int library_open_in(const char *directory, const char *name, void **ret)
{
    char path[PATH_MAX];
    int length = snprintf(path, sizeof(path), "%s/%s", directory, name);

    if (length < 0 || (size_t) length >= sizeof(path))
        return -ENAMETOOLONG;
    *ret = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    return *ret != NULL ? 0 : -ENOENT;
}

static int library_open_sim(const char *name, void **ret)
{
    const char *directories[] = {secure_getenv("GMB_SIM_LIBDIR"), GPU_SIM_BUILDDIR, GPU_LIBDIR};

    /* A directory that somebody names is the whole answer: no other library instead. */
    if (directories[0] != NULL)
        return library_open_in(directories[0], name, ret);
    for (size_t i = 1; i < ARRAY_SIZE(directories); i++) {
        if (library_open_in(directories[i], name, ret) == 0)
            return 0;
    }
    *ret = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    return *ret != NULL ? 0 : -ENOENT;
}

static int library_open(
    enum gpu_driver driver, const char *name, void **ret, struct gpu_error *error)
{
    const char *why;

    if (driver == GPU_DRIVER_SIM) {
        if (library_open_sim(name, ret) == 0)
            return 0;
    } else {
        *ret = dlopen(name, RTLD_NOW | RTLD_LOCAL);
        if (*ret != NULL)
            return 0;
    }
    why = dlerror();
    gpu_error_set(error, 0, "%s cannot be loaded (%s): %s", name, why != NULL ? why : "no reason",
        driver == GPU_DRIVER_SIM
            ? "the simulated driver is neither built nor installed here"
            : "no NVIDIA driver on this machine, or not visible in this container");
    return -ENODEV;
}

/* `version` 0: not known. */
static void symbol_missing_describe(
    const char *name, const struct symbol *symbol, int version, struct gpu_error *error)
{
    char installed[48] = "";

    if (version != 0)
        (void) snprintf(installed, sizeof(installed), ", this one is for %d.%d", version / 1000,
            version % 1000 / 10);
    gpu_error_set(error, 0, "%s lacks %s: a driver for CUDA %d.%d or later is needed%s", name,
        symbol->name, symbol->since / 1000, symbol->since % 1000 / 10, installed);
}

/* Fills `table`; a missing required symbol is described with the version that brought it. */
static int symbols_resolve(void *library, const char *name, const struct symbol *symbols,
    size_t count, void *table, int version, struct gpu_error *error)
{
    for (size_t i = 0; i < count; i++) {
        void *address = dlsym(library, symbols[i].name);

        if (address == NULL && symbols[i].need == REQUIRED) {
            symbol_missing_describe(name, &symbols[i], version, error);
            return -ENOSYS;
        }
        memcpy((char *) table + symbols[i].offset, &address, sizeof(address));
    }
    return 0;
}

/* The stub answers 34 to everything, even to this call that needs no driver. */
static int version_read(void *library, const char *name, int *ret_version, struct gpu_error *error)
{
    CUresult (*driver_get_version)(int *) = NULL;
    void *address = dlsym(library, "cuDriverGetVersion");
    CUresult result;

    memcpy(&driver_get_version, &address, sizeof(address));
    if (driver_get_version == NULL) {
        gpu_error_set(error, 0, "%s lacks cuDriverGetVersion: it is no CUDA driver", name);
        return -ENOSYS;
    }
    result = driver_get_version(ret_version);
    if (result == CUDA_ERROR_STUB_LIBRARY) {
        gpu_error_set(error, result,
            "%s is the CUDA toolkit's stub library, not a driver (error 34): take its directory "
            "out of LD_LIBRARY_PATH",
            name);
        return -ENODEV;
    }
    if (result != CUDA_SUCCESS) {
        gpu_error_set(error, result, "%s: cuDriverGetVersion failed with %d", name, (int) result);
        return -ENODEV;
    }
    return 0;
}

/* Consumes `library`. */
static int cuda_fill(void *library, const char *name, struct cuda_api *ret, struct gpu_error *error)
{
    struct cuda_api api = {.handle = library};
    int r = version_read(library, name, &api.version, error);

    if (r == 0)
        r = symbols_resolve(
            library, name, cuda_symbols, ARRAY_SIZE(cuda_symbols), &api, api.version, error);
    if (r < 0) {
        cuda_unload(&api);
        return r;
    }
    *ret = api;
    return 0;
}

int cuda_load(enum gpu_driver driver, struct cuda_api *ret, struct gpu_error *error)
{
    const char *name = library_names[driver].cuda;
    void *library;
    int r = library_open(driver, name, &library, error);

    return r < 0 ? r : cuda_fill(library, name, ret, error);
}

int cuda_load_path(const char *path, struct cuda_api *ret, struct gpu_error *error)
{
    void *library;
    int r = library_open(GPU_DRIVER_CUDA, path, &library, error);

    return r < 0 ? r : cuda_fill(library, path, ret, error);
}

int nvml_load(enum gpu_driver driver, struct nvml_api *ret, struct gpu_error *error)
{
    const char *name = library_names[driver].nvml;
    struct nvml_api api = {0};
    int r = library_open(driver, name, &api.handle, error);

    if (r < 0)
        return r;
    r = symbols_resolve(api.handle, name, nvml_symbols, ARRAY_SIZE(nvml_symbols), &api, 0, error);
    if (r < 0) {
        nvml_unload(&api);
        return r;
    }
    *ret = api;
    return 0;
}

static void library_close(void **library)
{
    if (*library != NULL)
        (void) dlclose(*library);
    *library = NULL;
}

void cuda_unload(struct cuda_api *api)
{
    library_close(&api->handle);
}

void nvml_unload(struct nvml_api *api)
{
    library_close(&api->handle);
}
