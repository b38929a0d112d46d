/* Numbers of one header, by name; the last entry's name is NULL. */
#pragma once

#include <stddef.h>

struct abi_entry {
    const char *name;
    unsigned long long value;
};

extern const struct abi_entry abi_ours[];
extern const struct abi_entry abi_cuda[];
/* The version of cuda.h. */
extern const int abi_cuda_version;
