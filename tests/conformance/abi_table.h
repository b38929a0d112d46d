/*
 * The body of a table of numbers, compiled once against our header and once against CUDA's: the
 * includer defines ABI_TABLE, the table's name, after it has included the types.
 */
#include "tests/conformance/abi.h"

#define ABI_SIZE(type) {"sizeof(" #type ")", sizeof(type)},
#define ABI_OFFSET(type, member) {"offsetof(" #type ", " #member ")", offsetof(type, member)},
#define ABI_VALUE(name) {#name, (unsigned long long) (name)},

const struct abi_entry ABI_TABLE[] = {
#include "abi_entries.h"
    {NULL, 0},
};
