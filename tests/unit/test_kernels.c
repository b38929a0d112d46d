/*
 * The CPU's version of each kernel against a scalar reference that shares no code with it, over
 * lengths and launch shapes that don't divide each other; and what the embedded PTX promises.
 */
#include "kernels/kernels.h"
#include "kernels/pattern.h"
#include "tests/unit/unit.h"

#include <string.h>

#define WORDS 4096
#define GUARD UINT64_C(0xdeadbeefdeadbeef)

/* splitmix64 as its authors publish it: a state that advances, one output per call. */
static uint64_t reference_next(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
}

/* What a range of `words` words starting at word `first` of the pattern holds. */
static void reference_fill(uint64_t *dst, uint64_t words, uint64_t seed, uint64_t first)
{
    uint64_t state = seed;

    for (uint64_t i = 0; i < first; i++)
        (void) reference_next(&state);
    for (uint64_t i = 0; i < words; i++)
        dst[i] = reference_next(&state);
}

static const struct shape {
    struct kernel_dim grid;
    struct kernel_dim block;
} shapes[] = {
    {{1, 1, 1}, {1, 1, 1}},
    {{1, 1, 1}, {1024, 1, 1}},
    {{7, 1, 1}, {33, 1, 1}},
    {{2, 3, 2}, {5, 2, 3}},
};

static const uint64_t lengths[] = {0, 16, 32, 48, 16 * 230, 16 * 231, 16 * 232, 8 * WORDS};

static void run(const char *name, const struct shape *shape, const void *args)
{
    const struct kernel_info *kernel = kernel_find(name);

    ck_assert_ptr_nonnull(kernel);
    kernel_run(kernel, &shape->grid, &shape->block, args);
}

static uint64_t run_check(const void *src, uint64_t bytes, uint64_t seed, uint64_t first)
{
    uint64_t differing = 0;
    struct pattern_check_args args = {
        .src = (uintptr_t) src,
        .bytes = bytes,
        .seed = seed,
        .first_word = first,
        .differing = (uintptr_t) &differing,
    };

    run("pattern_check", &shapes[2], &args);
    return differing;
}

START_TEST(test_pattern_starts_with_the_published_outputs_of_splitmix64)
{
    ck_assert_uint_eq(pattern_word(0, 0), UINT64_C(0xe220a8397b1dcdaf));
    ck_assert_uint_eq(pattern_word(0, 1), UINT64_C(0x6e789e6aa1b965f4));
    ck_assert_uint_eq(pattern_word(0, 2), UINT64_C(0x06c45d188009454f));
}
END_TEST

START_TEST(test_fill_writes_the_range_and_nothing_behind_it)
{
    _Alignas(16) static uint64_t got[WORDS + 2];
    static uint64_t want[WORDS];

    for (size_t s = 0; s < ARRAY_SIZE(shapes); s++)
        for (size_t l = 0; l < ARRAY_SIZE(lengths); l++) {
            uint64_t words = lengths[l] / 8;
            struct pattern_fill_args args = {
                .dst = (uintptr_t) got, .bytes = lengths[l], .seed = s + 77, .first_word = l};

            for (size_t i = 0; i < ARRAY_SIZE(got); i++)
                got[i] = GUARD;
            reference_fill(want, words, s + 77, l);
            run("pattern_fill", &shapes[s], &args);
            ck_assert_int_eq(memcmp(got, want, lengths[l]), 0);
            ck_assert_uint_eq(got[words], GUARD);
            ck_assert_uint_eq(got[words + 1], GUARD);
        }
}
END_TEST

START_TEST(test_check_finds_nothing_in_the_reference_pattern)
{
    _Alignas(16) static uint64_t words[WORDS];

    reference_fill(words, WORDS, 42, 5);
    for (size_t l = 0; l < ARRAY_SIZE(lengths); l++)
        ck_assert_uint_eq(run_check(words, lengths[l], 42, 5), 0);
}
END_TEST

START_TEST(test_check_counts_each_foreign_byte_wherever_it_is)
{
    _Alignas(16) static uint64_t words[WORDS];
    unsigned char *bytes = (unsigned char *) words;

    reference_fill(words, WORDS, 42, 0);
    for (size_t i = 0; i < 24; i++) {
        bytes[i] ^= (unsigned char) (1u << (i % 8));
        ck_assert_uint_eq(run_check(words, sizeof(words), 42, 0), i + 1);
    }
    bytes[sizeof(words) - 1] ^= 0x80;
    ck_assert_uint_eq(run_check(words, sizeof(words), 42, 0), 25);
    ck_assert_uint_eq(run_check(words, sizeof(words) - 16, 42, 0), 24);
}
END_TEST

START_TEST(test_check_sees_another_owner_and_another_place)
{
    _Alignas(16) static uint64_t words[WORDS];
    uint64_t differing;

    reference_fill(words, WORDS, 1, 0);
    /* A random byte agrees by chance once in 256: of 32768 bytes about 128, never near all. */
    differing = run_check(words, sizeof(words), 2, 0);
    ck_assert_uint_gt(differing, sizeof(words) - 400);
    differing = run_check(words, sizeof(words), 1, 1);
    ck_assert_uint_gt(differing, sizeof(words) - 400);
}
END_TEST

START_TEST(test_check_adds_to_the_counter)
{
    _Alignas(16) uint64_t words[2] = {0};
    uint64_t differing = 1000;
    struct pattern_check_args args = {
        .src = (uintptr_t) words, .bytes = 16, .differing = (uintptr_t) &differing};

    run("pattern_check", &shapes[0], &args);
    /* No byte of the first two outputs for seed 0 is zero. */
    ck_assert_uint_eq(differing, 1016);
}
END_TEST

START_TEST(test_the_seed_of_a_word_is_found_from_its_place)
{
    for (uint64_t n = 0; n < 1000; n++) {
        uint64_t seed = n * UINT64_C(0xd1b54a32d192ed03);

        ck_assert_uint_eq(pattern_seed(pattern_word(seed, n), n), seed);
    }
    ck_assert_uint_eq(pattern_seed(pattern_word(UINT64_MAX, UINT64_MAX), UINT64_MAX), UINT64_MAX);
}
END_TEST

#define KIN UINT64_C(0xfff0000000000000)
#define OWNER UINT64_C(0x000fffff00000000)

static uint64_t run_foreign(const void *src, uint64_t bytes, uint64_t seed)
{
    uint64_t foreign = 0;
    struct pattern_foreign_args args = {.src = (uintptr_t) src,
        .bytes = bytes,
        .seed = seed,
        .kin_mask = KIN,
        .owner_mask = OWNER,
        .foreign = (uintptr_t) &foreign};

    run("pattern_foreign", &shapes[2], &args);
    return foreign;
}

START_TEST(test_foreign_counts_another_owners_pattern_alone)
{
    _Alignas(16) static uint64_t words[WORDS];
    const uint64_t mine = UINT64_C(0xabc0000100000007), same_owner = UINT64_C(0xabc0000100000008),
                   theirs = UINT64_C(0xabc0000200000007), no_kin = UINT64_C(0xabd0000200000007);

    ck_assert_uint_eq(run_foreign(words, sizeof(words), mine), 0); /* zeros */
    reference_fill(words, WORDS, mine, 0);
    ck_assert_uint_eq(run_foreign(words, sizeof(words), mine), 0);
    reference_fill(words, WORDS, same_owner, 0);
    ck_assert_uint_eq(run_foreign(words, sizeof(words), mine), 0);
    reference_fill(words, WORDS, no_kin, 0);
    ck_assert_uint_eq(run_foreign(words, sizeof(words), mine), 0);
    reference_fill(words, WORDS, theirs, 0);
    ck_assert_uint_eq(run_foreign(words, sizeof(words), mine), sizeof(words));
    words[0] ^= 1; /* no longer whole: the pair doesn't count */
    words[3] ^= 1;
    ck_assert_uint_eq(run_foreign(words, sizeof(words), mine), sizeof(words) - 32);
    ck_assert_uint_eq(run_foreign(words, 32, mine), 0);
    ck_assert_uint_eq(run_foreign(words, 48, mine), 16);
}
END_TEST

START_TEST(test_unknown_kernel_is_not_found)
{
    ck_assert_ptr_null(kernel_find("pattern"));
    ck_assert_ptr_null(kernel_find(""));
}
END_TEST

START_TEST(test_shares_cover_every_element_once)
{
    for (uint64_t count = 0; count <= 40; count++)
        for (uint64_t threads = 1; threads <= 12; threads++) {
            ck_assert_uint_eq(kernel_share(count, 0, threads), 0);
            ck_assert_uint_eq(kernel_share(count, threads, threads), count);
            for (uint64_t rank = 0; rank < threads; rank++) {
                uint64_t share =
                    kernel_share(count, rank + 1, threads) - kernel_share(count, rank, threads);

                ck_assert_uint_ge(share, count / threads);
                ck_assert_uint_le(share, count / threads + 1);
            }
        }
}
END_TEST

START_TEST(test_ptx_declares_each_kernel_with_the_layout_of_its_struct)
{
    ck_assert_ptr_nonnull(strstr(kernels_ptx, ".target sm_70"));
    ck_assert_uint_eq(sizeof(struct pattern_fill_args), 32);
    ck_assert_uint_eq(sizeof(struct pattern_check_args), 40);
    ck_assert_uint_eq(sizeof(struct pattern_foreign_args), 56);
    ck_assert_ptr_nonnull(
        strstr(kernels_ptx, ".visible .entry pattern_fill(\n\t.param .align 8 .b8 "
                            "pattern_fill_param_0[32]\n)"));
    ck_assert_ptr_nonnull(
        strstr(kernels_ptx, ".visible .entry pattern_check(\n\t.param .align 8 .b8 "
                            "pattern_check_param_0[40]\n)"));
    ck_assert_ptr_nonnull(
        strstr(kernels_ptx, ".visible .entry pattern_foreign(\n\t.param .align 8 .b8 "
                            "pattern_foreign_param_0[56]\n)"));
}
END_TEST

START_TEST(test_ptx_moves_sixteen_bytes_at_once)
{
    ck_assert_ptr_nonnull(strstr(kernels_ptx, "ld.v2.u64"));
    ck_assert_ptr_nonnull(strstr(kernels_ptx, "st.v2.u64"));
    ck_assert_ptr_nonnull(strstr(kernels_ptx, "atom.add.u64"));
}
END_TEST

UNIT_MAIN("kernels", test_pattern_starts_with_the_published_outputs_of_splitmix64,
    test_fill_writes_the_range_and_nothing_behind_it,
    test_check_finds_nothing_in_the_reference_pattern,
    test_check_counts_each_foreign_byte_wherever_it_is,
    test_check_sees_another_owner_and_another_place, test_check_adds_to_the_counter,
    test_the_seed_of_a_word_is_found_from_its_place,
    test_foreign_counts_another_owners_pattern_alone, test_unknown_kernel_is_not_found,
    test_shares_cover_every_element_once,
    test_ptx_declares_each_kernel_with_the_layout_of_its_struct,
    test_ptx_moves_sixteen_bytes_at_once)
