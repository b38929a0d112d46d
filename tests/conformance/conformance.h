/*
 * Harness of the conformance suite: one set of tests for the real and the simulated driver.
 *
 * GMB_GPU=cuda|sim (default sim) says which. Each test runs in a process of its own that has not
 * touched the driver: it begins with setup_driver() or setup_context(). What the specification
 * leaves open is held on the simulator and only recorded on the real driver: see cu_observe.
 *
 * All simulated tests of one executable share a node of their own, so that free memory is exact
 * and must be back at its baseline after each of them, killed processes included.
 */
#pragma once

#include <check.h>

#include "base/macro.h"
#include "gpu/loader.h"

extern const struct cuda_api *cu;
extern const struct nvml_api *nvml; /* loaded, not initialised; NULL where there is none */
extern bool on_simulator;

/* Set by setup_driver(): ordinal 0 and its granularity. */
extern CUdevice device;
extern size_t granule;
/* Set by setup_context(): the primary context, current. */
extern CUcontext context;

void setup_driver(void);
void setup_context(void);

/* The call must give exactly `expected`. */
#define cu_expect(expected, call)                                                                  \
    do {                                                                                           \
        CUresult got_ = (call);                                                                    \
        ck_assert_msg(                                                                             \
            got_ == (expected), "%s gives %d, must give %d", #call, (int) got_, (int) (expected)); \
    } while (0)
#define cu_ok(call) cu_expect(CUDA_SUCCESS, call)

/*
 * The specification only infers what the call gives: the simulator must give `expected`, the real
 * driver's answer is written down with the name of the question.
 */
#define cu_observe(question, expected, call)                                                       \
    do {                                                                                           \
        CUresult seen_ = (call);                                                                   \
        if (on_simulator)                                                                          \
            ck_assert_msg(seen_ == (expected), "%s gives %d, must give %d", #call, (int) seen_,    \
                (int) (expected));                                                                 \
        else                                                                                       \
            observation_write(                                                                     \
                question, "%s (expected: %d) gives %d", #call, (int) (expected), (int) seen_);     \
    } while (0)

/* Appends a line to $GMB_OBSERVATIONS, or to standard error. */
void observation_write(const char *question, const char *format, ...) _printf_(2, 3);

/* Free bytes of device 0 as NVML sees them: no context needed. */
uint64_t device_free_bytes(void);

/*
 * Waits, at most five seconds, until free memory has come to `bytes`: exactly on the simulator.
 * On a real GPU, where others breathe too, to within FREE_SLACK_BYTES; `at_least` memory may be
 * freer than that.
 */
#define FREE_SLACK_BYTES (UINT64_C(16) << 20)
void expect_free(uint64_t bytes);

/* Properties of an exportable device chunk on `device`. */
CUmemAllocationProp chunk_properties(void);
/* A chunk of `bytes` that must be created; an fd for it. */
CUmemGenericAllocationHandle chunk_new(size_t bytes);
int chunk_fd(CUmemGenericAllocationHandle handle);
/* Reserves, maps and opens read-write; and undoes exactly that. */
CUdeviceptr chunk_map_new(CUmemGenericAllocationHandle handle, size_t bytes);
void chunk_unmap(CUdeviceptr address, size_t bytes);
void access_set(CUdeviceptr address, size_t bytes, CUmemAccess_flags flags);

/* Sets and reads one byte by copy. */
void byte_write(CUdeviceptr address, unsigned char value);
unsigned char byte_read(CUdeviceptr address);

/* Polls `condition` for at most `seconds`; the value it had last. */
#define poll_until(seconds, condition)                                                             \
    ({                                                                                             \
        uint64_t deadline_ = poll_deadline(seconds);                                               \
        bool met_;                                                                                 \
        while (!(met_ = (condition)) && poll_wait(deadline_)) {                                    \
        }                                                                                          \
        met_;                                                                                      \
    })
uint64_t poll_deadline(unsigned seconds);
/* Waits a millisecond; false when the deadline has passed. */
bool poll_wait(uint64_t deadline);

int conformance_main(const char *name, const TTest *const tests[], size_t count);

#define CONFORMANCE_MAIN(name, ...)                                                                \
    int main(void)                                                                                 \
    {                                                                                              \
        const TTest *const tests[] = {__VA_ARGS__};                                                \
                                                                                                   \
        return conformance_main(name, tests, ARRAY_SIZE(tests));                                   \
    }
