/*
 * libnvidia-ml-sim: NVML on the same ledger. It creates no context and registers no process, so
 * that asking doesn't change the answer; ordinals are the node's and ignore CUDA_VISIBLE_DEVICES.
 */
#include "gpu/nvml_abi.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "gpu/sim/inject.h"
#include "gpu/sim/ledger.h"

#define NVML_DECLARE(need, since, symbol, member, parameters)                                      \
    _public_ nvmlReturn_t symbol parameters;
NVML_FUNCTIONS(NVML_DECLARE)
#undef NVML_DECLARE

struct nvmlDevice_st {
    unsigned index;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static unsigned users;
static pid_t owner; /* a forked child has no NVML */
static struct ledger *ledger;
static struct nvmlDevice_st devices[SIM_DEVICES_MAX];

static void fork_prepare(void)
{
    pthread_mutex_lock(&lock);
    if (ledger != NULL)
        ledger_fork_prepare(ledger);
}

static void fork_parent(void)
{
    if (ledger != NULL)
        ledger_fork_parent(ledger);
    pthread_mutex_unlock(&lock);
}

static void fork_child(void)
{
    if (ledger != NULL)
        ledger_fork_child(ledger);
    pthread_mutex_unlock(&lock);
}

static nvmlReturn_t init_locked(void)
{
    static bool handlers;
    struct sim_config config;
    char error[SIM_TEXT_BYTES];

    if (!handlers && pthread_atfork(fork_prepare, fork_parent, fork_child) != 0)
        return NVML_ERROR_UNKNOWN;
    handlers = true;

    if (sim_config_read(&config, error) < 0 || inject_load(error) < 0) {
        (void) fprintf(stderr, "libnvidia-ml-sim: %s\n", error);
        return NVML_ERROR_UNKNOWN;
    }
    if (ledger_open(&config, &ledger) < 0)
        return NVML_ERROR_DRIVER_NOT_LOADED;
    for (unsigned i = 0; i < SIM_DEVICES_MAX; i++)
        devices[i].index = i;
    owner = getpid();
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlInit_v2(void)
{
    nvmlReturn_t result = NVML_SUCCESS;

    pthread_mutex_lock(&lock);
    if (users > 0 && owner != getpid())
        result = NVML_ERROR_UNINITIALIZED;
    else if (users == 0)
        result = init_locked();
    if (result == NVML_SUCCESS)
        users++;
    pthread_mutex_unlock(&lock);
    return result;
}

nvmlReturn_t nvmlShutdown(void)
{
    nvmlReturn_t result = NVML_SUCCESS;

    pthread_mutex_lock(&lock);
    if (users == 0 || owner != getpid())
        result = NVML_ERROR_UNINITIALIZED;
    else if (--users == 0)
        ledger = ledger_close(ledger);
    pthread_mutex_unlock(&lock);
    return result;
}

/* Takes the lock and holds it on success: the ledger stays open for the call. */
static nvmlReturn_t enter(void)
{
    pthread_mutex_lock(&lock);
    if (users > 0 && owner == getpid())
        return NVML_SUCCESS;
    pthread_mutex_unlock(&lock);
    return NVML_ERROR_UNINITIALIZED;
}

static nvmlReturn_t leave(nvmlReturn_t result)
{
    pthread_mutex_unlock(&lock);
    return result;
}

static struct sim_hardware node(void)
{
    struct sim_hardware hardware;

    ledger_hardware(ledger, &hardware);
    return hardware;
}

static unsigned device_count(void)
{
    return node().devices;
}

static bool device_valid(nvmlDevice_t device)
{
    for (unsigned i = 0; i < device_count(); i++) {
        if (device == &devices[i])
            return true;
    }
    return false;
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count)
{
    nvmlReturn_t result = enter();

    if (result != NVML_SUCCESS)
        return result;
    if (count == NULL)
        return leave(NVML_ERROR_INVALID_ARGUMENT);
    *count = device_count();
    return leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
    nvmlReturn_t result = enter();

    if (result != NVML_SUCCESS)
        return result;
    if (device == NULL || index >= device_count())
        return leave(NVML_ERROR_INVALID_ARGUMENT);
    *device = &devices[index];
    return leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
    nvmlReturn_t result = enter();
    struct sim_hardware hardware;

    if (result != NVML_SUCCESS)
        return result;
    if (uuid == NULL || device == NULL)
        return leave(NVML_ERROR_INVALID_ARGUMENT);
    hardware = node();
    for (unsigned i = 0; i < hardware.devices; i++) {
        char text[UUID_TEXT_MAX];

        if (strcasecmp(uuid, ledger_uuid_text(&hardware, i, text)) == 0) {
            *device = &devices[i];
            return leave(NVML_SUCCESS);
        }
    }
    return leave(NVML_ERROR_NOT_FOUND);
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)
{
    nvmlReturn_t result = enter();
    struct sim_hardware hardware;
    char text[UUID_TEXT_MAX];

    if (result != NVML_SUCCESS)
        return result;
    if (uuid == NULL || !device_valid(device))
        return leave(NVML_ERROR_INVALID_ARGUMENT);
    if (length < sizeof(text))
        return leave(NVML_ERROR_INSUFFICIENT_SIZE);
    hardware = node();
    memcpy(uuid, ledger_uuid_text(&hardware, device->index, text), sizeof(text));
    return leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
    nvmlReturn_t result = enter();
    struct ledger_memory found;
    int fault;

    if (result != NVML_SUCCESS)
        return result;
    if (memory == NULL || !device_valid(device))
        return leave(NVML_ERROR_INVALID_ARGUMENT);
    fault = (int) inject(__func__);
    if (fault == 0)
        fault = (int) inject_device(__func__, device->index);
    if (fault != 0)
        return leave((nvmlReturn_t) fault);
    if (ledger_memory(ledger, device->index, &found) < 0)
        return leave(NVML_ERROR_UNKNOWN);
    *memory = (nvmlMemory_t){.total = found.total, .free = found.free, .used = found.used};
    return leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
    nvmlMemory_t plain;
    nvmlReturn_t result;

    if (memory == NULL)
        return NVML_ERROR_INVALID_ARGUMENT;
    if (memory->version != NVML_MEMORY_V2)
        return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
    result = nvmlDeviceGetMemoryInfo(device, &plain);
    if (result != NVML_SUCCESS)
        return result;
    memory->total = plain.total;
    memory->reserved = 0;
    memory->free = plain.free;
    memory->used = plain.used;
    return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(
    nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *processes)
{
    nvmlReturn_t result = enter();
    struct ledger_process *found = NULL;
    unsigned size;
    int n;

    if (result != NVML_SUCCESS)
        return result;
    if (count == NULL || !device_valid(device) || (*count > 0 && processes == NULL))
        return leave(NVML_ERROR_INVALID_ARGUMENT);
    size = MIN(*count, LEDGER_PROCS_MAX);
    found = calloc(size + 1, sizeof(*found));
    n = found != NULL ? ledger_processes(ledger, device->index, found, size) : -1;
    if (n < 0) {
        result = NVML_ERROR_UNKNOWN;
    } else {
        *count = (unsigned) n;
        result = (unsigned) n > size ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
        for (unsigned i = 0; i < MIN((unsigned) n, size); i++)
            processes[i] = (nvmlProcessInfo_t){.pid = (unsigned) found[i].pid,
                .usedGpuMemory = found[i].used,
                .gpuInstanceId = NVML_INSTANCE_NONE,
                .computeInstanceId = NVML_INSTANCE_NONE};
    }
    free(found);
    return leave(result);
}

nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, nvmlEnableState_t *mode)
{
    nvmlReturn_t result = enter();

    if (result != NVML_SUCCESS)
        return result;
    if (mode == NULL || !device_valid(device))
        return leave(NVML_ERROR_INVALID_ARGUMENT);
    /* Nothing is lost when the last user leaves: the state directory stays. */
    *mode = NVML_FEATURE_ENABLED;
    return leave(NVML_SUCCESS);
}

/* No simulated device can be split. */
nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending)
{
    nvmlReturn_t result = enter();

    if (result != NVML_SUCCESS)
        return result;
    return leave(current == NULL || pending == NULL || !device_valid(device)
                     ? NVML_ERROR_INVALID_ARGUMENT
                     : NVML_ERROR_NOT_SUPPORTED);
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count)
{
    nvmlReturn_t result = enter();

    if (result != NVML_SUCCESS)
        return result;
    if (count == NULL || !device_valid(device))
        return leave(NVML_ERROR_INVALID_ARGUMENT);
    *count = 0;
    return leave(NVML_SUCCESS);
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(
    nvmlDevice_t device, unsigned int index, nvmlDevice_t *mig)
{
    nvmlReturn_t result = enter();

    if (result != NVML_SUCCESS)
        return result;
    return leave(
        mig == NULL || !device_valid(device) ? NVML_ERROR_INVALID_ARGUMENT : NVML_ERROR_NOT_FOUND);
}
