/*
 * The table of CUDA's header, and its prototypes against our list of functions. With the macro
 * below cuda.h declares every version of a symbol under its own name and renames none.
 */
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>

#include "gpu/cuda_functions.h"

#define ABI_TABLE abi_cuda
#include "tests/conformance/abi_table.h"

const int abi_cuda_version = CUDA_VERSION;

#define ABI_FUNCTION(need, since, symbol, member, parameters)                                      \
    _Static_assert(                                                                                \
        __builtin_types_compatible_p(__typeof__(&symbol), CUresult(*) parameters), #symbol);
CUDA_FUNCTIONS(ABI_FUNCTION)
