/* The table of our header. */
#include "gpu/cuda_abi.h"

#define ABI_TABLE abi_ours
#include "tests/conformance/abi_table.h"
