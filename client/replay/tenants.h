/*
 * The tenants of a run, and how a worker becomes a process of one. The broker goes by what the
 * kernel says of a process; what a process that isn't root can change of that is nothing, and what
 * root can is the group. So each tenant is a group, and where groups can't be taken on, all workers
 * are one tenant's.
 */
#pragma once

#include <sys/types.h>

#include "base/limits.h"
#include "base/macro.h"
#include "client/replay/options.h"

struct tenant {
    char name[LIMIT_NAME_BYTES + 1];
    bool has_group;
    gid_t group;
    uint32_t priority; /* of a made-up one */
};

struct tenants {
    uint32_t count;
    struct tenant *items; /* owned */
};

#define TENANTS_ERROR_BYTES 256

/*
 * Those of the options: a number of them, names, or those of the configuration file. Where this
 * process can't take on groups, one tenant `replay`, with a line in `notice`. -EINVAL, -ENOENT …
 * with a sentence in `text` (the same buffer serves).
 */
int tenants_choose(const struct options *options, struct tenants *ret,
    char text[TENANTS_ERROR_BYTES]) _must_check_;
void tenants_free(struct tenants *tenants);

/* Becomes a process of the tenant, for good. -errno. */
int tenant_enter(const struct tenant *tenant) _must_check_;
