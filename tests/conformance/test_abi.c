/* Our ABI header says what CUDA's says. The prototypes are held when abi_cuda.c is compiled. */
#include <check.h>
#include <string.h>

#include "tests/conformance/abi.h"
#include "tests/unit/unit.h"

START_TEST(sizes_offsets_and_values_are_cudas)
{
    size_t count = 0;

    for (; abi_ours[count].name != NULL; count++) {
        ck_assert_str_eq(abi_ours[count].name, abi_cuda[count].name);
        ck_assert_msg(abi_ours[count].value == abi_cuda[count].value, "%s is %llu, in cuda.h %llu",
            abi_ours[count].name, abi_ours[count].value, abi_cuda[count].value);
    }
    ck_assert_ptr_null(abi_cuda[count].name);
    /* The table is made by a script: an empty one would compare equal as well. */
    ck_assert_uint_ge(count, 190);
}
END_TEST

static unsigned long long value_of(const char *name)
{
    for (const struct abi_entry *entry = abi_ours; entry->name != NULL; entry++) {
        if (strcmp(entry->name, name) == 0)
            return entry->value;
    }
    ck_abort_msg("%s isn't in the table", name);
}

START_TEST(table_holds_each_kind_of_entry)
{
    ck_assert_int_ge(abi_cuda_version, 13000);
    ck_assert_uint_eq(value_of("sizeof(CUdeviceptr)"), 8);
    ck_assert_uint_eq(value_of("sizeof(CUstream)"), 8);
    ck_assert_uint_eq(value_of("sizeof(CUmemAccess_flags)"), 4);
    ck_assert_uint_eq(value_of("sizeof(CUmemAllocationProp)"), 32);
    ck_assert_uint_eq(value_of("offsetof(CUmemAllocationProp, allocFlags.usage)"), 26);
    ck_assert_uint_eq(value_of("offsetof(CUmemcpyAttributes, flags)"), 20);
    ck_assert_uint_eq(value_of("CUDA_ERROR_INVALID_DEVICE"), 101);
    ck_assert_uint_eq(value_of("CU_IPC_HANDLE_SIZE"), 64);
    ck_assert_uint_eq(value_of("CU_STREAM_PER_THREAD"), 2);
}
END_TEST

UNIT_MAIN("abi", sizes_offsets_and_values_are_cudas, table_holds_each_kind_of_entry)
