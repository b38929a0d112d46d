/*
 * What the parts of the simulated driver share within one process.
 *
 * A device pointer is the host address of the bytes: a reservation is a PROT_NONE mmap, a mapping
 * puts the chunk's file there, cuMemSetAccess is mprotect. So a copy or a kernel that has checked
 * its range (sim_va_begin) works on the pointer itself.
 *
 * Locks, in the order in which they may be taken: context, address space, chunk table, ledger.
 * None is held over a callback of the application or over an injected latency.
 */
#pragma once

#include "base/macro.h"
#include "gpu/cuda_abi.h"
#include "gpu/sim/config.h"
#include "gpu/sim/ledger.h"

#define SIM_DRIVER_VERSION 12080

/* Every exported function; a definition in this library needs no prototype of its own. */
#define SIM_DECLARE(need, since, symbol, member, parameters) _public_ CUresult symbol parameters;
CUDA_FUNCTIONS(SIM_DECLARE)
#undef SIM_DECLARE

/* ---- process.c: entry guard, errors ---- */

/*
 * First statement of each call that needs cuInit:
 *
 *     CUresult result = sim_enter(__func__);
 *     if (result != CUDA_SUCCESS)
 *         return result;
 *
 * 3 before cuInit and in a forked child, 800 in a function of cuLaunchHostFunc, the sticky error
 * once there is one, what GMB_SIM_FAULTS says for this call, and the sleep that GMB_SIM_LATENCY
 * says. Any thread; no lock held.
 */
CUresult sim_enter(const char *call) _must_check_;
/* As sim_enter, and 201 without a current context, 709 when it is destroyed. */
CUresult sim_enter_context(const char *call, CUcontext *ret_context) _must_check_;
/* Injected fault and latency alone, for the calls that work before cuInit. */
CUresult sim_inject(const char *call) _must_check_;

/* Poisons the process (700, 719): each later call returns `error`. The first one stays. */
void sim_poison(CUresult error);
/* The sticky error or CUDA_SUCCESS. */
CUresult sim_poisoned(void);

/* Configuration and ledger of this process; valid from a successful cuInit on, until exit. */
const struct sim_config *sim_config(void);
struct ledger *sim_ledger(void);

/* ---- device.c: ordinals of this process and devices of the ledger ---- */

/* Number of devices that CUDA_VISIBLE_DEVICES leaves. */
unsigned sim_device_count(void);
/* The ledger's index of a CUdevice, or -1 when there is no such ordinal. */
int sim_device_index(CUdevice device);
/* The CUdevice of a ledger index, or -1 when it is hidden from this process. */
CUdevice sim_device_ordinal(unsigned index);

/* ---- context.c ---- */

/* CUDA_SUCCESS and the calling thread's context; 201 when it has none, 709 when destroyed. */
CUresult sim_context_current(CUcontext *ret_context) _must_check_;
/* True for a live context of this process (NULL is none). */
bool sim_context_valid(CUcontext context);
/* Ordinal of the context's device in this process. */
CUdevice sim_context_device(CUcontext context);
/* True while some context of this process lives on the device. */
bool sim_context_on_device(CUdevice device);

/*
 * Called, with no lock held and in the destroying thread, for each context that is about to die
 * (destroy, last primary release, reset), before its memory goes, and by cuCtxSynchronize: the
 * streams register here. One hook each; NULL does nothing.
 */
struct sim_context_hooks {
    void (*destroy)(CUcontext context);
    CUresult (*synchronize)(CUcontext context);
};
void sim_context_set_hooks(const struct sim_context_hooks *hooks);

/* ---- va.c: the device address space ---- */

enum sim_access { SIM_ACCESS_NONE = 0, SIM_ACCESS_READ = 1, SIM_ACCESS_WRITE = 3 };

enum sim_memory_kind { SIM_MEMORY_VMM, SIM_MEMORY_LEGACY, SIM_MEMORY_IPC };

/* One mapping, as it stood at the time of the look-up. */
struct sim_va_info {
    enum sim_memory_kind kind;
    CUdeviceptr range_base, base; /* the reservation, the mapping */
    uint64_t range_bytes, bytes;
    CUdevice device;   /* ordinal; -1 when hidden */
    CUcontext context; /* legacy memory's; NULL for VMM */
    uint32_t slot;
    uint8_t handle_types, flags; /* of the chunk, as struct ledger_chunk_info has them */
    uint64_t handle;             /* the allocation handle that is mapped, 0 for legacy memory */
};

/* Looks up the mapping that holds `address`. False when nothing is mapped there. */
bool sim_va_find(CUdeviceptr address, struct sim_va_info *ret);

/*
 * Checks that [address, address + bytes) is mapped without a hole and that `device` (an ordinal)
 * may access it so: CUDA_SUCCESS, or 1. `bytes` 0 is CUDA_SUCCESS. What is true now may be
 * false when this returns: whoever touches the bytes uses sim_va_begin.
 */
CUresult sim_va_check(
    CUdeviceptr address, uint64_t bytes, enum sim_access access, CUdevice device) _must_check_;

/*
 * A shared hold on the whole address space: between sim_va_begin and sim_va_end ranges that pass
 * sim_va_check_held can be read and written through their address, since no map, unmap or change of
 * access happens. Keep it short (some megabytes of copying, one block of a kernel): it makes unmap
 * wait, and waiting unmaps go first. Not recursive.
 */
void sim_va_begin(void);
void sim_va_end(void);
CUresult sim_va_check_held(
    CUdeviceptr address, uint64_t bytes, enum sim_access access, CUdevice device) _must_check_;
