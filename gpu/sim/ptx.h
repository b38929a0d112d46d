/* Reads what a module's PTX declares: its entry points and their parameters. Bodies are skipped. */
#pragma once

#include "base/macro.h"
#include "gpu/cuda_abi.h"

/* A parameter in the parameter buffer of a launch. */
struct ptx_param {
    uint64_t offset;
    uint64_t bytes;
};

struct ptx_entry {
    char *name;
    struct ptx_param *params;
    size_t params_count;
    uint64_t params_bytes; /* size of the parameter buffer */
};

struct ptx {
    unsigned version; /* 10 × major + minor, as `.version` has it */
    struct ptx_entry *entries;
    size_t entries_count;
};

/*
 * Parses NUL-terminated text. 218 when it isn't PTX for 64-bit addresses, 222 when its version is
 * above `version_max`, 2 without host memory. The result goes back with ptx_clear.
 */
CUresult ptx_parse(const char *text, unsigned version_max, struct ptx *ret) _must_check_;
void ptx_clear(struct ptx *ptx);
