/*
 * Module images: a refused text leaves the output alone, an accepted one has names, and parameters
 * that lie in their buffer in order, none over another.
 */
#include "gpu/sim/ptx.h"

#include <string.h>

#include "tests/fuzz/fuzz.h"

#define VERSION_MAX 87
#define UNTOUCHED 12345u

static void entry_check(const struct ptx_entry *entry)
{
    uint64_t end = 0;

    FUZZ_CHECK(entry->name != NULL && entry->name[0] != '\0');
    for (size_t i = 0; i < entry->params_count; i++) {
        FUZZ_CHECK(entry->params[i].offset >= end);
        end = entry->params[i].offset + entry->params[i].bytes;
        FUZZ_CHECK(end >= entry->params[i].offset);
    }
    FUZZ_CHECK(end == entry->params_bytes);
    FUZZ_CHECK(end <= 32764);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    _cleanup_free_ char *text = malloc(size + 1);
    struct ptx ptx = {.version = UNTOUCHED};
    CUresult result;

    if (text == NULL)
        return 0;
    if (size > 0)
        memcpy(text, data, size);
    text[size] = '\0';
    result = ptx_parse(text, VERSION_MAX, &ptx);
    if (result != CUDA_SUCCESS) {
        FUZZ_CHECK(
            result == CUDA_ERROR_INVALID_PTX || result == CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
        FUZZ_CHECK(ptx.version == UNTOUCHED && ptx.entries == NULL);
        return 0;
    }
    FUZZ_CHECK(ptx.version <= VERSION_MAX);
    for (size_t i = 0; i < ptx.entries_count; i++)
        entry_check(&ptx.entries[i]);
    ptx_clear(&ptx);
    return 0;
}
