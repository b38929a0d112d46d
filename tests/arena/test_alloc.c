/* Where pages come from: the fullest chunk, live ones alone, all or nothing; and how chunks are
 * closed. */
#include "tests/arena/bed.h"
#include "tests/unit/unit.h"

#define OK ARENA_OP_OK

static struct bed bed;

START_TEST(all_or_nothing_at_the_last_page)
{
    uint32_t pages[13], one;

    bed_begin(&bed, 4, 3);
    bed_open_all(&bed);
    ck_assert_int_eq(arena_pages_alloc(&bed.pool, 13, pages, 1), ARENA_OP_SHORT);
    bed_check(&bed);
    for (uint32_t chunk = 0; chunk < 3; chunk++)
        ck_assert_uint_eq(arena_chunk_free(bed.table, chunk), 4);
    ck_assert_int_eq(arena_pages_alloc(&bed.pool, 12, pages, 1), OK);
    ck_assert_int_eq(arena_pages_alloc(&bed.pool, 1, &one, 1), ARENA_OP_SHORT);
    for (uint32_t i = 0; i < 12; i++)
        ck_assert_int_eq(arena_word_state(bed_word(&bed, i)), ARENA_PAGE_RESIDENT);
    ck_assert_int_eq(arena_pages_unref(bed.table, 12, pages), OK);
    bed_check(&bed);
    bed_end(&bed);
}
END_TEST

START_TEST(fullest_chunk_first)
{
    uint32_t pages[96], three[] = {40, 41, 42}, two[] = {70, 71}, got[6];

    bed_begin(&bed, 32, 3);
    bed_open_all(&bed);
    for (int i = 0; i < 96; i++)
        ck_assert_int_eq(arena_pages_alloc(&bed.pool, 1, &pages[i], 1), OK);
    ck_assert_int_eq(arena_pages_unref(bed.table, 32, pages), OK); /* chunk 0: all free */
    ck_assert_int_eq(arena_pages_unref(bed.table, 3, three), OK);  /* chunk 1: three */
    ck_assert_int_eq(arena_pages_unref(bed.table, 2, two), OK);    /* chunk 2: two */
    ck_assert_int_eq(arena_pages_alloc(&bed.pool, 6, got, 1), OK);
    ck_assert_uint_eq(got[0], 70);
    ck_assert_uint_eq(got[1], 71);
    ck_assert_uint_eq(got[2], 40);
    ck_assert_uint_eq(got[4], 42);
    ck_assert_uint_eq(got[5], 0);
    bed_end(&bed);
}
END_TEST

START_TEST(a_large_batch_takes_whole_chunks_first)
{
    uint32_t pages[16], two[] = {1, 2}, got[9];

    bed_begin(&bed, 4, 4);
    bed_open_all(&bed);
    ck_assert_int_eq(arena_pages_alloc(&bed.pool, 16, pages, 1), OK);
    ck_assert_int_eq(arena_pages_unref(bed.table, 2, two), OK); /* chunk 0: two */
    ck_assert_int_eq(arena_pages_unref(bed.table, 8, pages + 8), OK);
    ck_assert_int_eq(arena_pages_alloc(&bed.pool, 9, got, 1), OK);
    for (uint32_t i = 0; i < 8; i++)
        ck_assert_uint_eq(got[i], 8 + i);
    ck_assert_uint_eq(got[8], 1);
    /* One that is smaller than a chunk leaves them whole. */
    ck_assert_int_eq(arena_pages_unref(bed.table, 4, got), OK); /* chunk 2 */
    ck_assert_int_eq(arena_pages_alloc(&bed.pool, 1, got, 1), OK);
    ck_assert_uint_eq(got[0], 2);
    ck_assert_uint_eq(arena_chunk_free(bed.table, 2), 4);
    bed_check(&bed);
    bed_end(&bed);
}
END_TEST

START_TEST(generation_counts_allocations_and_wraps)
{
    uint32_t page;

    bed_begin(&bed, 1, 1);
    bed_open_all(&bed);
    for (uint32_t i = 1; i <= 3; i++) {
        ck_assert_int_eq(arena_pages_alloc(&bed.pool, 1, &page, 1), OK);
        ck_assert_uint_eq(arena_word_generation(bed_word(&bed, 0)), i);
        ck_assert_int_eq(arena_pages_unref(bed.table, 1, &page), OK);
    }
    bed_set(&bed, 0, arena_word_make(ARENA_PAGE_FREE, 0, 0, 0xffffff));
    ck_assert_int_eq(arena_pages_alloc(&bed.pool, 1, &page, 1), OK);
    ck_assert_uint_eq(bed_word(&bed, 0), arena_word_make(ARENA_PAGE_RESIDENT, 0, 1, 0));
    bed_end(&bed);
}
END_TEST

/* In each state of a chunk: pages come from LIVE ones alone, and a token that is put into another
 * stays. */
START_TEST(only_live_chunks_give_pages)
{
    uint32_t page;

    for (enum arena_chunk_state state = 0; state < ARENA_CHUNK_STATE_MAX; state++) {
        bed_begin(&bed, 4, 1);
        bed_open_all(&bed);
        ck_assert_int_eq(arena_pages_alloc(&bed.pool, 1, &page, 1), OK);
        bed_chunk_set(&bed, 0, state);
        ck_assert_int_eq(arena_pages_unref(bed.table, 1, &page), OK);
        bed_check(&bed);
        ck_assert_int_eq(arena_pages_alloc(&bed.pool, 1, &page, 1),
            state == ARENA_CHUNK_LIVE ? OK : ARENA_OP_SHORT);
        ck_assert_int_eq(arena_chunk_alloc(&bed.pool, 0, 1, &page, 1),
            state == ARENA_CHUNK_LIVE ? OK : ARENA_OP_SHORT);
        bed_end(&bed);
    }
}
END_TEST

START_TEST(vacant_chunk_closes_and_no_other)
{
    uint32_t page;

    bed_begin(&bed, 4, 1);
    ck_assert(!arena_chunk_close_vacant(&bed.pool, 0)); /* not LIVE */
    arena_chunk_open(&bed.pool, 0);
    ck_assert_int_eq(arena_pages_alloc(&bed.pool, 1, &page, 1), OK);
    ck_assert(!arena_chunk_close_vacant(&bed.pool, 0));
    ck_assert_int_eq(arena_chunk_state(bed.table, 0), ARENA_CHUNK_LIVE);
    ck_assert_int_eq(arena_pages_unref(bed.table, 1, &page), OK);
    ck_assert(arena_chunk_close_vacant(&bed.pool, 0));
    ck_assert_int_eq(arena_chunk_state(bed.table, 0), ARENA_CHUNK_VACANT);
    ck_assert_int_eq(arena_pages_alloc(&bed.pool, 1, &page, 1), ARENA_OP_SHORT);
    arena_chunk_vacate(&bed.pool, 0);
    ck_assert_int_eq(arena_chunk_state(bed.table, 0), ARENA_CHUNK_EMPTY);
    arena_chunk_open(&bed.pool, 0);
    ck_assert_int_eq(arena_pages_alloc(&bed.pool, 1, &page, 1), OK);
    bed_end(&bed);
}
END_TEST

/* A chunk that comes back has pages in the host tier: those aren't to be had, the others are. */
START_TEST(refilled_chunk_gives_its_free_pages_alone)
{
    uint32_t pages[4], got[3];

    bed_begin(&bed, 4, 1);
    bed_open_all(&bed);
    ck_assert_int_eq(arena_pages_alloc(&bed.pool, 4, pages, 1), OK);
    bed_chunk_set(&bed, 0, ARENA_CHUNK_CLOSED);
    for (uint32_t i = 0; i < 4; i++)
        bed_set(&bed, i, arena_word_with_state(bed_word(&bed, i), ARENA_PAGE_EVICTED));
    ck_assert_int_eq(arena_table_chunk_vacant(bed.table, 0), ARENA_VACANT);
    ck_assert_int_eq(arena_pages_unref(bed.table, 2, pages + 1), OK); /* freed while away */
    arena_chunk_vacate(&bed.pool, 0);
    arena_chunk_open(&bed.pool, 0);
    ck_assert_int_eq(arena_pages_alloc(&bed.pool, 3, got, 1), ARENA_OP_SHORT);
    ck_assert_int_eq(arena_pages_alloc(&bed.pool, 2, got, 1), OK);
    ck_assert_uint_eq(got[0], 1);
    ck_assert_uint_eq(got[1], 2);
    bed_check(&bed);
    bed_end(&bed);
}
END_TEST

/* Counts are hints: with all of them wrong, every page is still found. */
START_TEST(wrong_counts_hide_no_page)
{
    uint32_t pages[200];

    for (unsigned round = 0; round < 2; round++) {
        bed_begin(&bed, 100, 2);
        bed_open_all(&bed);
        memset(bed.table->counts, round == 0 ? 0 : 0xff, 2 * sizeof(*bed.table->counts));
        ck_assert_int_eq(arena_pages_alloc(&bed.pool, 200, pages, 1), OK);
        ck_assert_int_eq(arena_pages_alloc(&bed.pool, 1, pages, 1), ARENA_OP_SHORT);
        bed_end(&bed);
    }
}
END_TEST

UNIT_MAIN("arena alloc", all_or_nothing_at_the_last_page, fullest_chunk_first,
    a_large_batch_takes_whole_chunks_first, generation_counts_allocations_and_wraps,
    only_live_chunks_give_pages, vacant_chunk_closes_and_no_other,
    refilled_chunk_gives_its_free_pages_alone, wrong_counts_hide_no_page)
