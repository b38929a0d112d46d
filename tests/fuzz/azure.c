/* Azure's CSV. See trace.h. */
#include "tests/fuzz/trace.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_trace(data, size, trace_azure_new_consume);
}
