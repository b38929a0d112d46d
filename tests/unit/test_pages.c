/*
 * Copy, checksum and scrub of pages, on both sides, against a reference that shares no code with
 * them: page sizes around the 64 KiB unit, launch shapes that divide nothing, a table in no order.
 */
#include "kernels/pages.h"
#include "kernels/quantize.h"
#include "tests/unit/kernel_sides.h"

#define GUARD 0xa5
#define GUARD_BYTES 16
#define PAGES_MAX 37

static const uint64_t sizes[] = {16, 48, 4096, 65536, 65536 + 16, 3 * 65536 - 16};
static const uint64_t counts[] = {0, 1, 2, PAGES_MAX};

/* Pages with guards between them. Large ones are few: their units are what is many. */
struct pages {
    uint64_t count, slots, page_bytes, pitch, bytes;
    unsigned char *src, *dst;
    struct page_move moves[PAGES_MAX];
    uint64_t checksums[PAGES_MAX];
    struct page_batch batch;
};

/* Slots are taken in another order than pages: 2 has no factor in common with their number. */
static uint64_t slot_of(const struct pages *pages, uint64_t page)
{
    return page * 2 % pages->slots;
}

static void *aligned_new(uint64_t bytes)
{
    void *memory = aligned_alloc(16, bytes);

    ck_assert_ptr_nonnull(memory);
    return memory;
}

static struct pages *pages_new(uint64_t count, uint64_t page_bytes)
{
    struct pages *pages = calloc(1, sizeof(*pages));
    uint64_t state = 88172645463325252;

    ck_assert_ptr_nonnull(pages);
    pages->slots = page_bytes > 4096 ? 5 : PAGES_MAX;
    pages->count = count < pages->slots ? count : pages->slots;
    pages->page_bytes = page_bytes;
    pages->pitch = page_bytes + GUARD_BYTES;
    pages->bytes = GUARD_BYTES + pages->slots * pages->pitch;
    pages->src = aligned_new(pages->bytes);
    pages->dst = aligned_new(pages->bytes);
    for (uint64_t i = 0; i < pages->bytes; i++) { /* xorshift64 */
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        pages->src[i] = (unsigned char) (state >> 32);
    }
    memset(pages->dst, GUARD, pages->bytes);
    for (uint64_t i = 0; i < pages->count; i++)
        pages->moves[i] = (struct page_move){
            .src = (uintptr_t) pages->src + GUARD_BYTES + i * pages->pitch,
            .dst = (uintptr_t) pages->dst + GUARD_BYTES + slot_of(pages, i) * pages->pitch,
        };
    pages->batch = (struct page_batch){.table = (uintptr_t) pages->moves,
        .count = pages->count,
        .page_bytes = page_bytes,
        .checksums = (uintptr_t) pages->checksums};
    return pages;
}

static void pages_free(struct pages *pages)
{
    free(pages->src);
    free(pages->dst);
    free(pages);
}

static unsigned char *page_src(const struct pages *pages, uint64_t page)
{
    return pages->src + GUARD_BYTES + page * pages->pitch;
}

/* The destinations hold their pages (zeroes where `zero`), and all between them what it held. */
static void assert_destinations(const struct pages *pages, bool zero)
{
    unsigned char *want = aligned_new(pages->bytes);

    memset(want, GUARD, pages->bytes);
    for (uint64_t i = 0; i < pages->count; i++) {
        unsigned char *at = want + GUARD_BYTES + slot_of(pages, i) * pages->pitch;

        if (zero)
            memset(at, 0, pages->page_bytes);
        else
            memcpy(at, page_src(pages, i), pages->page_bytes);
    }
    ck_assert_int_eq(memcmp(pages->dst, want, pages->bytes), 0);
    free(want);
}

static void assert_checksums(const struct pages *pages)
{
    for (uint64_t i = 0; i < PAGES_MAX; i++)
        ck_assert_uint_eq(pages->checksums[i],
            i < pages->count ? reference_checksum(page_src(pages, i), pages->page_bytes) : 0);
}

/* One kernel over all sizes, counts, shapes and both sides, each on fresh memory. */
static void for_each_case(const char *kernel, void (*check)(const struct pages *pages))
{
    for (size_t b = 0; b < ARRAY_SIZE(sizes); b++)
        for (size_t c = 0; c < ARRAY_SIZE(counts); c++)
            for (size_t s = 0; s < ARRAY_SIZE(shapes); s++)
                for (enum side side = 0; side < SIDE_MAX; side++) {
                    struct pages *pages = pages_new(counts[c], sizes[b]);

                    side_run(side, kernel, &shapes[s], &pages->batch);
                    check(pages);
                    pages_free(pages);
                }
}

static void check_copied(const struct pages *pages)
{
    assert_destinations(pages, false);
    assert_checksums(pages);
}

START_TEST(test_copy_moves_every_byte_and_no_other)
{
    for_each_case("page_copy", check_copied);
}
END_TEST

static void check_summed(const struct pages *pages)
{
    ck_assert_uint_eq(pages->dst[0], GUARD);
    ck_assert_int_eq(memcmp(pages->dst, pages->dst + 1, pages->bytes - 1), 0);
    assert_checksums(pages);
}

START_TEST(test_checksum_writes_nothing_but_checksums)
{
    for_each_case("page_checksum", check_summed);
}
END_TEST

static void check_scrubbed(const struct pages *pages)
{
    assert_destinations(pages, true);
    for (uint64_t i = 0; i < PAGES_MAX; i++)
        ck_assert_uint_eq(pages->checksums[i], 0);
}

START_TEST(test_scrub_zeroes_the_pages_and_nothing_between)
{
    for_each_case("page_scrub", check_scrubbed);
}
END_TEST

START_TEST(test_copy_goes_without_checksums)
{
    for (enum side side = 0; side < SIDE_MAX; side++) {
        struct pages *pages = pages_new(PAGES_MAX, 48);

        pages->batch.checksums = 0;
        side_run(side, "page_copy", &shapes[2], &pages->batch);
        assert_destinations(pages, false);
        pages_free(pages);
    }
}
END_TEST

/* ---- what the checksum sees ---- */

static uint64_t checksum_of(const void *bytes, uint64_t count)
{
    const struct page_move move = {.src = (uintptr_t) bytes};
    uint64_t checksum = 0;
    struct page_checksum_args args = {{.table = (uintptr_t) &move,
        .count = 1,
        .page_bytes = count,
        .checksums = (uintptr_t) &checksum}};

    side_run(SIDE_CPU, "page_checksum", &shapes[0], &args);
    return checksum;
}

START_TEST(test_checksum_has_the_stated_value_and_is_added)
{
    _Alignas(16) unsigned char bytes[48] = {0};
    const struct page_move move = {.src = (uintptr_t) bytes};
    uint64_t checksum = 1;
    struct page_checksum_args args = {{.table = (uintptr_t) &move,
        .count = 1,
        .page_bytes = 48,
        .checksums = (uintptr_t) &checksum}};

    ck_assert_uint_eq(checksum_of(bytes, 16), UINT64_C(0x8ac4ce610feef8e1));
    ck_assert_uint_eq(checksum_of(bytes, 48), UINT64_C(0x2b506e2c5a3a2660));
    for (enum side side = 0; side < SIDE_MAX; side++)
        side_run(side, "page_checksum", &shapes[2], &args);
    ck_assert_uint_eq(checksum, 2 * UINT64_C(0x2b506e2c5a3a2660) + 1);
    for (unsigned i = 0; i < 16; i++)
        bytes[i] = (unsigned char) i;
    ck_assert_uint_eq(checksum_of(bytes, 16), UINT64_C(0x9fcb2f192659ef3d));
}
END_TEST

/* Every bit of `words`, two of them, flipped alone. */
static void assert_flips_show(uint64_t words[2])
{
    uint64_t before = checksum_of(words, 16);

    for (unsigned bit = 0; bit < 128; bit++) {
        words[bit / 64] ^= UINT64_C(1) << bit % 64;
        assert_each(checksum_of(words, 16) != before);
        words[bit / 64] ^= UINT64_C(1) << bit % 64;
    }
}

START_TEST(test_checksum_sees_every_flipped_bit)
{
    /* Halves of the first key, so that a keyed half is 0, 1 or all ones: what a product hides. */
    static const uint32_t halves[] = {0, 1, UINT32_MAX, UINT32_C(1) << 31};
    const uint64_t key = UINT64_C(0x9e3779b97f4a7c15);

    for (size_t i = 0; i < ARRAY_SIZE(halves); i++)
        for (size_t j = 0; j < ARRAY_SIZE(halves); j++) {
            _Alignas(16)
                uint64_t words[2] = {key ^ halves[i] ^ (uint64_t) halves[j] << 32, halves[i]};

            assert_flips_show(words);
        }
}
END_TEST

START_TEST(test_checksum_sees_swaps_shifts_and_lengths)
{
    _Alignas(16) uint64_t words[64], moved[64];
    uint64_t before;

    for (uint64_t i = 0; i < 64; i++)
        words[i] = i / 2; /* small and alike, as real pages are */
    before = checksum_of(words, sizeof(words));
    for (unsigned i = 0; i < 64; i++)
        for (unsigned j = i + 1; j < 64; j++) {
            if (words[i] == words[j])
                continue;
            memcpy(moved, words, sizeof(words));
            moved[i] = words[j];
            moved[j] = words[i];
            assert_each(checksum_of(moved, sizeof(moved)) != before);
        }
    for (unsigned shift = 1; shift < 64; shift++) {
        for (unsigned i = 0; i < 64; i++)
            moved[i] = words[(i + shift) % 64];
        assert_each(checksum_of(moved, sizeof(moved)) != before);
    }
    memset(words, 0, sizeof(words));
    for (uint64_t bytes = 16; bytes < sizeof(words); bytes += 16)
        ck_assert_uint_ne(checksum_of(words, bytes), checksum_of(words, bytes + 16));
}
END_TEST

/* ---- how work is cut, what the PTX promises ---- */

START_TEST(test_units_are_64_kib_of_one_page)
{
    struct page_unit unit;

    ck_assert_uint_eq(page_units(5, 16), 5);
    ck_assert_uint_eq(page_units(5, 65536), 5);
    ck_assert_uint_eq(page_units(5, 65552), 10);
    unit = page_unit(3, 65552, 16);
    ck_assert_uint_eq(unit.page, 1);
    ck_assert_uint_eq(unit.first, 4096);
    ck_assert_uint_eq(unit.count, 1);
    unit = page_unit(2, 65552, 512);
    ck_assert_uint_eq(unit.page, 1);
    ck_assert_uint_eq(unit.first, 0);
    ck_assert_uint_eq(unit.count, 128);
    unit = page_unit(3, 65552, 512);
    ck_assert_uint_eq(unit.first, 128);
    ck_assert_uint_eq(unit.count, 1);
}
END_TEST

START_TEST(test_ptx_declares_page_kernels_with_the_layout_of_their_structs)
{
    static const struct {
        const char *name;
        uint64_t bytes, stated;
    } kernels[] = {
        {"page_checksum", sizeof(struct page_checksum_args), 32},
        {"page_copy", sizeof(struct page_copy_args), 32},
        {"page_dequantize", sizeof(struct page_dequantize_args), 40},
        {"page_quantize", sizeof(struct page_quantize_args), 40},
        {"page_scrub", sizeof(struct page_scrub_args), 32},
    };

    for (size_t i = 0; i < ARRAY_SIZE(kernels); i++) {
        char want[160];

        ck_assert_uint_eq(kernels[i].bytes, kernels[i].stated);
        ck_assert_uint_eq(kernel_find(kernels[i].name)->params_bytes, kernels[i].stated);
        (void) snprintf(want, sizeof(want),
            ".visible .entry %s(\n\t.param .align 8 .b8 %s_param_0[%u]\n)", kernels[i].name,
            kernels[i].name, (unsigned) kernels[i].stated);
        ck_assert_ptr_nonnull(strstr(kernels_ptx, want));
    }
    ck_assert_ptr_null(strstr(kernels_ptx, ".local ")); /* arrays lie in registers */
    ck_assert_ptr_null(strstr(kernels_ptx, "fma."));    /* rounds otherwise than the CPU */
}
END_TEST

UNIT_MAIN("pages", test_copy_moves_every_byte_and_no_other,
    test_checksum_writes_nothing_but_checksums, test_scrub_zeroes_the_pages_and_nothing_between,
    test_copy_goes_without_checksums, test_checksum_has_the_stated_value_and_is_added,
    test_checksum_sees_every_flipped_bit, test_checksum_sees_swaps_shifts_and_lengths,
    test_units_are_64_kib_of_one_page,
    test_ptx_declares_page_kernels_with_the_layout_of_their_structs)
