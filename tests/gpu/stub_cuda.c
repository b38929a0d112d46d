/*
 * Driver libraries that are none: every function of the list returns STUB_RESULT. STUB_VERSION is
 * what cuDriverGetVersion says; with STUB_WITHOUT_VMM the library is older than virtual memory,
 * with STUB_WITHOUT_OPTIONAL it has the required functions alone.
 */
#include "gpu/cuda_abi.h"

#define EXPORT __attribute__((visibility("default")))

#define STUB_REQUIRED(symbol, parameters) STUB_FUNCTION(symbol, parameters)
#ifdef STUB_WITHOUT_OPTIONAL
#define STUB_OPTIONAL(symbol, parameters)
#else
#define STUB_OPTIONAL(symbol, parameters) STUB_FUNCTION(symbol, parameters)
#endif

#define STUB_FUNCTION(symbol, parameters)                                                          \
    EXPORT CUresult symbol parameters                                                              \
    {                                                                                              \
        return STUB_RESULT;                                                                        \
    }
#define STUB(need, since, symbol, member, parameters) STUB_##need(symbol, parameters)

/* The version is the one answer that isn't a bare result. */
#define cuDriverGetVersion stub_unused_version
CUDA_FUNCTIONS_DEVICE(STUB)
#ifndef STUB_WITHOUT_VMM
CUDA_FUNCTIONS_VMM(STUB)
#endif
CUDA_FUNCTIONS_MEMORY(STUB)
CUDA_FUNCTIONS_COPY(STUB)
CUDA_FUNCTIONS_STREAM(STUB)
#undef cuDriverGetVersion

EXPORT CUresult cuDriverGetVersion(int *version)
{
    if (STUB_RESULT == CUDA_SUCCESS)
        *version = STUB_VERSION;
    return STUB_RESULT;
}
