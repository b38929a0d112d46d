/* The configuration of a broker of our own. */
#pragma once

#include "client/replay/sizing.h"
#include "client/replay/tenants.h"

/*
 * Writes a new file `path`: one section for each tenant, with the guarantee and the limit of
 * `sizing` and priorities 500, 400, 300, 200, 100, 100 … from the first to the last. -errno.
 */
int broker_config_write(
    const char *path, const struct sizing *sizing, const struct tenants *tenants) _must_check_;
