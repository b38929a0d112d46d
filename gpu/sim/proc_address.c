/*
 * cuGetProcAddress_v2: a base name and a version to the newest ABI of that name which the version
 * knows. The table is the list of functions; `_vN` at its end is not part of a base name.
 */
#include "gpu/sim/sim.h"

#include <string.h>

struct entry {
    const char *symbol;
    int since;
    void *function;
};

/* A function pointer as the API hands it out. */
#define ENTRY(need, since, symbol, member, parameters) {#symbol, since, (void *) symbol},
static const struct entry entries[] = {CUDA_FUNCTIONS(ENTRY)};
#undef ENTRY

/* Length of the name without `_vN`. */
static size_t base_length(const char *symbol)
{
    size_t length = strlen(symbol);

    if (length > 3 && symbol[length - 3] == '_' && symbol[length - 2] == 'v')
        return length - 3;
    return length;
}

static bool names(const struct entry *entry, const char *symbol)
{
    size_t length = base_length(entry->symbol);

    return strlen(symbol) == length && memcmp(entry->symbol, symbol, length) == 0;
}

CUresult cuGetProcAddress_v2(const char *symbol, void **function, int version, cuuint64_t flags,
    CUdriverProcAddressQueryResult *status)
{
    CUresult result = sim_inject(__func__);
    CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    const struct entry *best = NULL;

    if (result != CUDA_SUCCESS)
        return result;
    /* Of the flags, legacy and per-thread default stream: 1 and 2; there is one ABI for both. */
    if (symbol == NULL || function == NULL || version > SIM_DRIVER_VERSION || flags > 2)
        return CUDA_ERROR_INVALID_VALUE;
    for (size_t i = 0; i < ARRAY_SIZE(entries); i++) {
        if (!names(&entries[i], symbol) || entries[i].since > SIM_DRIVER_VERSION)
            continue;
        if (entries[i].since > version) {
            if (best == NULL)
                found = CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
        } else if (best == NULL || entries[i].since > best->since) {
            best = &entries[i];
            found = CU_GET_PROC_ADDRESS_SUCCESS;
        }
    }
    *function = best != NULL ? best->function : NULL;
    if (status != NULL)
        *status = found;
    return CUDA_SUCCESS;
}
