/*
 * A driver that only keeps books: what is reserved, mapped, accessible, imported, retained. It
 * stands in for gpu_open() and its kin in tests of libgmb alone. Device memory is never touched.
 */
#pragma once

#include "gpu/gpu.h"

enum fake_gpu_call {
    FAKE_GPU_OPEN,
    FAKE_GPU_IMPORT,
    FAKE_GPU_RELEASE,
    FAKE_GPU_RETAIN,
    FAKE_GPU_SYNCHRONIZE,
    FAKE_GPU_RESERVE,
    FAKE_GPU_MAP,
    FAKE_GPU_SET_ACCESS,
    FAKE_GPU_UNMAP,
    FAKE_GPU_CALL_MAX
};

#define FAKE_GPU_GRANULARITY (UINT64_C(2) << 20)
extern const unsigned char fake_gpu_uuid[16];

/* The `nth` call (from 1) of this kind from now on fails; 0: none. */
void fake_gpu_fail(enum fake_gpu_call call, unsigned nth);
/* How often it was called. */
unsigned fake_gpu_calls(enum fake_gpu_call call);
/* Bytes that are mapped, and those of them that are accessible. */
uint64_t fake_gpu_mapped(void);
uint64_t fake_gpu_accessible(void);
/* Whether nothing is reserved, mapped, imported or retained. */
bool fake_gpu_idle(void);

/* Two streams, 0 and 1, as CUstream; work in them stands still until it is let pass. */
#define FAKE_GPU_STREAMS 2u
void *fake_gpu_stream(unsigned stream);
/* Everything that was recorded in the stream so far has passed. */
void fake_gpu_stream_pass(unsigned stream);
/* Events that exist. */
unsigned fake_gpu_events(void);
