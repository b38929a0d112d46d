/*
 * What the tests of the simulator's executing half share. Each test is a process of its own
 * (libcheck forks) that starts with rig_begin(); all tests of a program share one ledger in a
 * directory of the program's own.
 */
#pragma once

#include <semaphore.h>

#include "gpu/sim/sim.h"
#include "tests/unit/unit.h"

#define RIG_BYTES (2u * 1024 * 1024) /* granularity of the simulated device */
#define RIG_DEADLINE_SECONDS 20

#define assert_cuda(expected, call) ck_assert_int_eq((call), (expected))
#define assert_ok(call) assert_cuda(CUDA_SUCCESS, (call))

/* cuInit, and device 0's primary context current on this thread, which is returned. */
CUcontext rig_begin(void);

/* One mapping of RIG_BYTES in a reservation of its own. */
struct rig_memory {
    CUdeviceptr address;
    CUmemGenericAllocationHandle handle;
};

struct rig_memory rig_map(CUmemAccess_flags access);
void rig_set_access(const struct rig_memory *memory, CUmemAccess_flags access);
/* Unmaps and releases; the reservation stays, so that nothing else comes to lie there. */
void rig_unmap(const struct rig_memory *memory);

/* The bytes of device memory, read by cuMemcpyDtoH in the legacy stream. */
uint64_t rig_word(CUdeviceptr address);

CUstream rig_stream(unsigned flags);

/* A host function that stops its stream until the test lets it go on. */
struct rig_gate {
    sem_t entered;
    sem_t opened;
};

/* Puts the gate into the stream and returns once the stream stands before it. */
void rig_gate_close(struct rig_gate *gate, CUstream stream);
void rig_gate_open(struct rig_gate *gate);

/* sem_wait with the deadline: a test that hangs fails where it hangs. */
void rig_wait(sem_t *semaphore);

/* A host function that sets the `bool` at `data`, by an atomic store. */
void rig_set(void *data);
bool rig_is_set(const bool *flag);

int rig_main(const char *name, const TTest *const tests[], size_t count);

#define RIG_MAIN(name, ...)                                                                        \
    int main(void)                                                                                 \
    {                                                                                              \
        const TTest *const tests[] = {__VA_ARGS__};                                                \
                                                                                                   \
        return rig_main(name, tests, ARRAY_SIZE(tests));                                           \
    }
