/* The configuration of a broker of our own. */
#pragma once

#include "client/replay/sizing.h"
#include "client/replay/tenants.h"

/*
 * Writes a new file `path`: one section for each tenant, with the guarantee and the limit of
 * `sizing`, its priority, and the lines of `ladder`. -errno.
 */
int broker_config_write(const char *path, const struct sizing *sizing,
    const struct tenants *tenants, const char *ladder) _must_check_;

#define BROKER_LADDER_BYTES 4096

/*
 * The lines of `--ladder`: of a name or of the file of that name, whose lines are taken as they
 * are. "" for NULL and "none". -errno of reading the file, -E2BIG when it is too long.
 */
int broker_ladder_read(const char *name, char ret[BROKER_LADDER_BYTES]) _must_check_;
