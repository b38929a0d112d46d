/* The layout of a page table: what geometry it takes, and what table it believes. */
#include <errno.h>

#include "tests/arena/bed.h"
#include "tests/unit/unit.h"

static int layout(uint64_t page, uint64_t chunk, uint32_t chunks)
{
    struct arena_table_header ignored;

    return arena_table_layout(page, chunk, chunks, 0, &ignored);
}

START_TEST(geometry_is_bounded_at_each_limit)
{
    uint64_t mib = UINT64_C(1) << 20;

    ck_assert_int_eq(layout(16, 4096 * 16, 1), 0);
    ck_assert_int_eq(layout(16, 4097 * 16, 1), -EINVAL);
    ck_assert_int_eq(layout(0, mib, 1), -EINVAL);
    ck_assert_int_eq(layout(15, 15 * 16, 1), -EINVAL);
    ck_assert_int_eq(layout(UINT64_C(1) << 63, mib, 1), -EINVAL);
    ck_assert_int_eq(layout(UINT64_C(1) << 63, UINT64_C(1) << 63, 1), 0);
    ck_assert_int_eq(layout(UINT64_C(1) << 63, UINT64_C(1) << 63, 2), -EOVERFLOW);
    ck_assert_int_eq(layout(48, 2 * mib, 1), -EINVAL);
    ck_assert_int_eq(layout(48, 48 * 100, 1), 0);
    ck_assert_int_eq(layout(mib, 2 * mib, 0), -EINVAL);
    ck_assert_int_eq(layout(mib, 0, 1), -EINVAL);
    ck_assert_int_eq(layout(mib, 2 * mib, 65536), 0);
    ck_assert_int_eq(layout(mib, 2 * mib, 65537), -EINVAL);
    ck_assert_int_eq(layout(4096, 4096 * 256, 65536), 0); /* 2^24 pages */
    ck_assert_int_eq(layout(4096, 4096 * 257, 65536), -EINVAL);
}
END_TEST

START_TEST(parts_follow_each_other_on_cache_lines)
{
    struct arena_table_header header;

    ck_assert_int_eq(arena_table_layout(65536, 65536 * 32, 3, 0, &header), 0);
    ck_assert_uint_eq(header.free_words, 8);
    ck_assert_uint_eq(header.chunk_offset, 128); /* behind a header of 120 bytes */
    ck_assert_uint_eq(header.free_offset, 192);  /* 3 × 8 */
    ck_assert_uint_eq(header.count_offset, 384); /* 3 × 64 */
    ck_assert_uint_eq(header.page_offset, 448);  /* 3 × 2 */
    ck_assert_uint_eq(header.table_bytes, 4288); /* 96 × 40 */
    ck_assert_uint_eq(header.index_offset, 0);
    ck_assert_int_eq(arena_table_layout(65536, 65536 * 32, 3, ARENA_TABLE_SHARED, &header), 0);
    ck_assert_uint_eq(header.key_offset, 4288);
    ck_assert_uint_eq(header.index_offset, 6592); /* 96 × 24 */
    ck_assert_uint_eq(header.index_buckets, 32);  /* 8 slots each: 24 would do for 2 × 96 */
    ck_assert_uint_eq(header.table_bytes, 8640);  /* 32 × 64 */
    ck_assert_int_eq(arena_table_layout(65536, 65536 * 32, 3, 2, &header), -EINVAL);
    ck_assert_int_eq(arena_table_layout(16, 16 * 513, 1, 0, &header), 0);
    ck_assert_uint_eq(header.free_words, 16);
}
END_TEST

START_TEST(chunk_of_a_page_is_exact)
{
    static const uint32_t sizes[] = {1, 2, 3, 7, 31, 32, 33, 1000, 4095, 4096};

    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        struct arena_table table = {.reciprocal = ((UINT64_C(1) << 40) + sizes[i] - 1) / sizes[i]};

        uint32_t wrong = 0;

        for (uint32_t page = 0; page < ARENA_PAGES_MAX; page++)
            wrong += arena_table_chunk_of(&table, page) != page / sizes[i];
        ck_assert_uint_eq(wrong, 0);
    }
}
END_TEST

START_TEST(fresh_table_is_whole_and_opens)
{
    struct arena_table table;
    struct bed bed;

    bed_begin(&bed, 70, 3);
    ck_assert_int_eq(arena_table_open(bed.memory, bed.bytes, &table), 0);
    ck_assert_uint_eq(table.page_count, 210);
    ck_assert_ptr_eq(table.pages, bed.table->pages);
    ck_assert_int_eq(arena_table_open(bed.memory, bed.bytes - 1, &table), -EINVAL);
    ck_assert_int_eq(arena_table_open(bed.memory, 8, &table), -EINVAL);
    for (uint32_t chunk = 0; chunk < 3; chunk++) {
        ck_assert_uint_eq(arena_chunk_free(&table, chunk), 70);
        ck_assert_uint_eq(table.counts[chunk], 70);
        ck_assert_int_eq(arena_chunk_state(&table, chunk), ARENA_CHUNK_EMPTY);
    }
    bed_check(&bed);
    bed_end(&bed);
}
END_TEST

/* Every byte of what the header says, but its counters, decides: a wrong one is refused. */
START_TEST(any_wrong_byte_of_the_header_is_refused)
{
    struct arena_table table;
    struct bed bed;
    unsigned char *bytes;

    bed_begin(&bed, 32, 4);
    bytes = bed.memory;
    for (size_t i = 0; i < offsetof(struct arena_table_header, evictions); i++) {
        for (unsigned bit = 0; bit < 8; bit++) {
            bytes[i] ^= (unsigned char) (1u << bit);
            ck_assert_msg(arena_table_open(bed.memory, bed.bytes, &table) == -EINVAL,
                "byte %zu, bit %u", i, bit);
            bytes[i] ^= (unsigned char) (1u << bit);
        }
    }
    bed.pool.table.shared->evictions = 7;
    ck_assert_int_eq(arena_table_open(bed.memory, bed.bytes, &table), 0);
    bed_end(&bed);
}
END_TEST

START_TEST(vacancy_by_state_and_token)
{
    static const enum arena_vacancy expected[] = {
        [ARENA_PAGE_FREE] = ARENA_VACANT_SOON, /* its token is in some hand */
        [ARENA_PAGE_RESIDENT] = ARENA_OCCUPIED,
        [ARENA_PAGE_EVICTING] = ARENA_OCCUPIED,
        [ARENA_PAGE_EVICTED] = ARENA_VACANT,
        [ARENA_PAGE_RESTORING] = ARENA_OCCUPIED,
        [ARENA_PAGE_LOST] = ARENA_VACANT,
        [15] = ARENA_OCCUPIED,
    };
    struct bed bed;

    bed_begin(&bed, 130, 2);
    ck_assert_int_eq(arena_table_chunk_vacant(bed.table, 1), ARENA_VACANT);
    for (uint32_t state = 0; state < 16; state++) {
        if (state >= ARENA_PAGE_STATE_MAX && state != 15)
            continue;
        bed.table->free[bed.table->layout.free_words + 2] = 1; /* page 129 has none, 128 has */
        bed_set(&bed, 130 + 129, state);
        ck_assert_int_eq(arena_table_chunk_vacant(bed.table, 1), expected[state]);
        ck_assert_int_eq(arena_table_chunk_vacant(bed.table, 0), ARENA_VACANT);
    }
    bed_end(&bed);
}
END_TEST

UNIT_MAIN("arena layout", geometry_is_bounded_at_each_limit, parts_follow_each_other_on_cache_lines,
    chunk_of_a_page_is_exact, fresh_table_is_whole_and_opens,
    any_wrong_byte_of_the_header_is_refused, vacancy_by_state_and_token)
