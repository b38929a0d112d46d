/* The table of eviction policies. The default is the one that docs/policies.md has evidence for. */
#include "policies/eviction.h"

#include <string.h>

static const struct eviction_ops *const policies[] = {
    &eviction_lru,
    &eviction_sieve,
    &eviction_s3fifo,
    &eviction_gittins,
    &eviction_belady,
};

const struct eviction_ops *eviction_at(unsigned index)
{
    return index < ARRAY_SIZE(policies) ? policies[index] : NULL;
}

const struct eviction_ops *eviction_find(const char *name)
{
    if (strcmp(name, "default") == 0)
        return &eviction_gittins;
    for (unsigned i = 0; i < ARRAY_SIZE(policies); i++) {
        if (strcmp(policies[i]->name, name) == 0)
            return policies[i];
    }
    return NULL;
}
