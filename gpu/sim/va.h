/*
 * The device address space of this process: ranges (what is reserved) and the mappings in them.
 * The calls return what the driver call of the same purpose does. None takes a context; addresses
 * and sizes of mappings are multiples of the granularity, which va_init says.
 */
#pragma once

#include "gpu/sim/internal.h"

/* Once, before any other call here. */
void va_init(uint64_t granularity);

/* `kind` says who owns the range: cuMemAddressFree and cuMemMap take VMM ranges only. */
CUresult va_reserve(enum sim_memory_kind kind, uint64_t bytes, uint64_t alignment, CUdeviceptr hint,
    CUdeviceptr *ret_base) _must_check_;
/* Exactly one range, with nothing mapped in it. */
CUresult va_release(enum sim_memory_kind kind, CUdeviceptr base, uint64_t bytes) _must_check_;

/* What a mapping is of. */
struct va_memory {
    uint64_t handle; /* whose map reference (chunk_mapped) the mapping takes over; 0 for IPC */
    struct ledger_chunk_info chunk;
    CUcontext context; /* NULL for VMM */
};

/* Maps the whole file behind `fd` (borrowed) without access. On failure the reference stays. */
CUresult va_map(enum sim_memory_kind kind, CUdeviceptr base, uint64_t bytes, int fd,
    const struct va_memory *memory) _must_check_;
/* Whole mappings without a hole; gives their references up. */
CUresult va_unmap(enum sim_memory_kind kind, CUdeviceptr base, uint64_t bytes) _must_check_;

/* For one device (ledger index) over whole mappings without a hole. */
CUresult va_set_access(
    CUdeviceptr base, uint64_t bytes, unsigned device, enum sim_access access) _must_check_;
CUresult va_get_access(CUdeviceptr address, unsigned device, enum sim_access *ret) _must_check_;
/* Whether va_set_access would find the range right. */
CUresult va_check_whole(CUdeviceptr base, uint64_t bytes) _must_check_;

/* One more handle of what is mapped at the address. */
CUresult va_retain(CUdeviceptr address, uint64_t *ret_handle) _must_check_;
/* The range that holds the address, mapped there or not. */
bool va_range(CUdeviceptr address, CUdeviceptr *ret_base, uint64_t *ret_bytes);
