/* XXH64 of the name, and of the four numbers, each cut to its bits. */
#include "client/replay/pattern.h"

#include <string.h>
#include <xxhash.h>

#define KIN (UINT64_C(0x6b6) << 52)

uint64_t pattern_owner_seed(const struct pattern_owner *owner, uint64_t chunk)
{
    const uint64_t place[] = {owner->worker, owner->request, owner->attempt, chunk};
    uint64_t tenant = XXH64(owner->tenant, strlen(owner->tenant), 0);

    return KIN | ((tenant << 32) & PATTERN_OWNER_MASK) |
           (XXH64(place, sizeof(place), 0) & UINT32_MAX);
}
