/* The reader of PTX declarations: layouts worked out by hand, and text that isn't PTX. */
#include "gpu/sim/ptx.h"
#include "tests/unit/unit.h"

#include <string.h>

#define HEAD ".version 6.0\n.target sm_70\n.address_size 64\n"

static struct ptx parse(const char *text)
{
    struct ptx ptx;

    ck_assert_int_eq(ptx_parse(text, 87, &ptx), CUDA_SUCCESS);
    return ptx;
}

static void assert_refused(CUresult result, const char *text)
{
    struct ptx untouched = {.version = 12345};

    ck_assert_msg(ptx_parse(text, 87, &untouched) == result, "%s", text);
    ck_assert_uint_eq(untouched.version, 12345);
}

START_TEST(test_parameters_lie_like_members_of_a_struct)
{
    /* uint8_t, uint16_t, uint64_t, float, 12 bytes aligned to 16, double */
    struct ptx ptx = parse(HEAD ".visible .entry f(\n"
                                "  .param .u8 a, .param .b16 b,\n"
                                "  .param .u64 .ptr .global .align 16 c, .param .f32 d,\n"
                                "  .param .align 16 .b8 e[12], .param .f64 g)\n{ ret; }");
    static const struct ptx_param want[] = {{0, 1}, {2, 2}, {8, 8}, {16, 4}, {32, 12}, {48, 8}};

    ck_assert_uint_eq(ptx.version, 60);
    ck_assert_uint_eq(ptx.entries_count, 1);
    ck_assert_str_eq(ptx.entries[0].name, "f");
    ck_assert_uint_eq(ptx.entries[0].params_count, ARRAY_SIZE(want));
    for (size_t i = 0; i < ARRAY_SIZE(want); i++) {
        ck_assert_uint_eq(ptx.entries[0].params[i].offset, want[i].offset);
        ck_assert_uint_eq(ptx.entries[0].params[i].bytes, want[i].bytes);
    }
    ck_assert_uint_eq(ptx.entries[0].params_bytes, 56);
    ptx_clear(&ptx);
}
END_TEST

START_TEST(test_bodies_comments_and_directives_are_skipped)
{
    struct ptx ptx = parse("// .entry no(\n/* .version 1.0 */ .version 8.7\n.target sm_90a, debug\n"
                           ".func (.reg .u32 r) helper(.reg .u32 x) { { ret; } }\n"
                           ".entry first { bra L; }\n"
                           ".visible .entry second()\n.maxntid 256, 1, 1\n{ // }\n"
                           "  .file 1 \"a } b.c\"\n  ret; }\n");

    ck_assert_uint_eq(ptx.version, 87);
    ck_assert_uint_eq(ptx.entries_count, 2);
    ck_assert_str_eq(ptx.entries[0].name, "first");
    ck_assert_str_eq(ptx.entries[1].name, "second");
    ck_assert_uint_eq(ptx.entries[1].params_count, 0);
    ck_assert_uint_eq(ptx.entries[1].params_bytes, 0);
    ptx_clear(&ptx);
}
END_TEST

START_TEST(test_module_without_entries_is_a_module)
{
    struct ptx ptx = parse(HEAD);

    ck_assert_uint_eq(ptx.entries_count, 0);
    ptx_clear(&ptx);
}
END_TEST

START_TEST(test_newer_ptx_is_told_from_bad_ptx)
{
    assert_refused(CUDA_ERROR_UNSUPPORTED_PTX_VERSION, ".version 8.8\n.target sm_70");
    assert_refused(CUDA_ERROR_UNSUPPORTED_PTX_VERSION, ".version 99.9\n.target sm_70");
    assert_refused(CUDA_ERROR_INVALID_PTX, ".version 100.0\n.target sm_70");
}
END_TEST

START_TEST(test_what_is_not_ptx_is_refused)
{
    static const char *const texts[] = {
        "",
        "hello",
        ".target sm_70",
        ".version",
        ".version 6\n.target sm_70",
        ".version 6.\n.target sm_70",
        ".version 6.0",
        ".version 6.0\n.target",
        ".version 6.0\n.target compute",
        ".version 6.0\n.target sm_70\n.address_size 32",
        ".version 6.0\n.entry f() {}\n.target sm_70",
        HEAD "}",
        HEAD ".entry f() {",
        HEAD ".entry f() { .entry g() {} }",
        HEAD ".entry (.param .u32 a) {}",
        HEAD ".entry f(.param .u32 a {}",
        HEAD ".entry f(.param .u32) {}",
        HEAD ".entry f(.param a) {}",
        HEAD ".entry f(.param .u24 a) {}",
        HEAD ".entry f(.reg .u32 a) {}",
        HEAD ".entry f(.param .align 3 .b8 a[4]) {}",
        HEAD ".entry f(.param .align 256 .b8 a[4]) {}",
        HEAD ".entry f(.param .b8 a[x]) {}",
        HEAD ".entry f(.param .b8 a[4) {}",
        HEAD ".entry f(.param .b8 a b) {}",
        HEAD ".entry f(.param .b8 a[4294967296]) {}",
        HEAD ".entry f();",
        HEAD ".entry f",
    };

    for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
        assert_refused(CUDA_ERROR_INVALID_PTX, texts[i]);
}
END_TEST

START_TEST(test_parameter_buffer_has_a_limit)
{
    struct ptx ptx = parse(HEAD ".entry f(.param .b8 a[32764]) {}");

    ck_assert_uint_eq(ptx.entries[0].params_bytes, 32764);
    ptx_clear(&ptx);
    assert_refused(CUDA_ERROR_INVALID_PTX, HEAD ".entry f(.param .b8 a[32765]) {}");
    assert_refused(CUDA_ERROR_INVALID_PTX, HEAD ".entry f(.param .b8 a[32764], .param .b8 b) {}");
}
END_TEST

UNIT_MAIN("simexec-ptx", test_parameters_lie_like_members_of_a_struct,
    test_bodies_comments_and_directives_are_skipped, test_module_without_entries_is_a_module,
    test_newer_ptx_is_told_from_bad_ptx, test_what_is_not_ptx_is_refused,
    test_parameter_buffer_has_a_limit)
