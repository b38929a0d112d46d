/*
 * The process's state: initialised by which pid, poisoned by what. See sim.h.
 *
 * A forked child has no driver, as with the real one; it also holds nothing of its parent's (no
 * lock, no chunk, no mapping), so that the parent's memory goes with the parent.
 */
#include "gpu/sim/chunk.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>

#include "gpu/sim/host_function.h"
#include "gpu/sim/inject.h"
#include "gpu/sim/va.h"

static struct {
    pid_t pid; /* that ran cuInit, 0 before */
    CUresult sticky;
    struct sim_config config;
    struct ledger *ledger;
} process;

static pthread_mutex_t init_lock = PTHREAD_MUTEX_INITIALIZER;

CUresult sim_error(int error)
{
    switch (-error) {
    case ENOMEM:
    case ENOSPC:
    case EUSERS:
        return CUDA_ERROR_OUT_OF_MEMORY;
    case ENODEV:
        return CUDA_ERROR_INVALID_DEVICE;
    case ESTALE:
    case EINVAL:
        return CUDA_ERROR_INVALID_VALUE;
    default:
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
}

const struct sim_config *sim_config(void)
{
    return &process.config;
}

struct ledger *sim_ledger(void)
{
    return process.ledger;
}

void sim_poison(CUresult error)
{
    CUresult none = CUDA_SUCCESS;

    (void) __atomic_compare_exchange_n(
        &process.sticky, &none, error, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

CUresult sim_poisoned(void)
{
    return __atomic_load_n(&process.sticky, __ATOMIC_RELAXED);
}

CUresult sim_inject(const char *call)
{
    return inject(call);
}

CUresult sim_enter(const char *call)
{
    pid_t pid = __atomic_load_n(&process.pid, __ATOMIC_ACQUIRE);
    CUresult sticky;

    if (pid == 0 || pid != getpid())
        return CUDA_ERROR_NOT_INITIALIZED;
    if (sim_in_host_function())
        return CUDA_ERROR_NOT_PERMITTED;
    sticky = sim_poisoned();
    return sticky != CUDA_SUCCESS ? sticky : inject(call);
}

CUresult sim_enter_context(const char *call, CUcontext *ret_context)
{
    CUresult result = sim_enter(call);

    return result != CUDA_SUCCESS ? result : sim_context_current(ret_context);
}

static void fork_prepare(void)
{
    pthread_mutex_lock(&init_lock);
    chunks_fork_prepare();
    if (process.ledger != NULL)
        ledger_fork_prepare(process.ledger);
}

static void fork_parent(void)
{
    if (process.ledger != NULL)
        ledger_fork_parent(process.ledger);
    chunks_fork_parent();
    pthread_mutex_unlock(&init_lock);
}

static void fork_child(void)
{
    if (process.ledger != NULL)
        ledger_fork_child(process.ledger);
    chunks_fork_child();
    pthread_mutex_unlock(&init_lock);
}

/* The one place where the simulator speaks: a mistyped variable is hard to find otherwise. */
static CUresult init_refuse(const char *text, CUresult result)
{
    (void) fprintf(stderr, "libcuda-sim: %s\n", text);
    return result;
}

static CUresult permission_refuse(void)
{
    char text[SIM_DIR_BYTES + 96];

    (void) snprintf(text, sizeof(text),
        "no permission for the state directory %s: owner and mode say who may take part",
        process.config.dir);
    return init_refuse(text, CUDA_ERROR_NO_DEVICE);
}

static CUresult init_ledger(void)
{
    _cleanup_(ledger_closep) struct ledger *ledger = NULL;
    char error[SIM_TEXT_BYTES];
    int r;

    if (inject_load(error) < 0 || sim_config_read(&process.config, error) < 0)
        return init_refuse(error, CUDA_ERROR_UNKNOWN);
    r = ledger_open(&process.config, &ledger);
    if (r == 0)
        r = ledger_register(ledger, &process.config);
    if (r == -EUCLEAN)
        return init_refuse(
            "the state directory is another version's", CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
    if (r == -EACCES || r == -EPERM)
        return permission_refuse();
    if (r < 0)
        return sim_error(r);
    ledger_hardware(ledger, &process.config.hardware);
    sim_devices_init(&process.config.hardware);
    va_init(process.config.hardware.granularity);
    if (sim_device_count() == 0)
        return CUDA_ERROR_NO_DEVICE;
    process.ledger = TAKE_PTR(ledger);
    return CUDA_SUCCESS;
}

CUresult cuInit(unsigned int flags)
{
    static bool handlers; /* under init_lock */
    CUresult result;

    if (flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    result = sim_inject(__func__);
    if (result != CUDA_SUCCESS)
        return result;
    pthread_mutex_lock(&init_lock);
    if (process.pid != 0) {
        result = process.pid == getpid() ? sim_poisoned() : CUDA_ERROR_NOT_INITIALIZED;
    } else {
        if (!handlers)
            handlers = pthread_atfork(fork_prepare, fork_parent, fork_child) == 0;
        result = handlers ? init_ledger() : CUDA_ERROR_OUT_OF_MEMORY;
        if (result == CUDA_SUCCESS)
            __atomic_store_n(&process.pid, getpid(), __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&init_lock);
    return result;
}

CUresult cuDriverGetVersion(int *version)
{
    CUresult result = sim_inject(__func__);

    if (result != CUDA_SUCCESS)
        return result;
    if (version == NULL)
        return CUDA_ERROR_INVALID_VALUE;
    *version = SIM_DRIVER_VERSION;
    return CUDA_SUCCESS;
}
