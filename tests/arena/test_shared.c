/* Pages of an arena that several processes hold: whose pins and references they are. */
#include "tests/arena/bed.h"
#include "tests/unit/unit.h"

static struct bed bed, a, b;

static void begin(uint32_t pages_per_chunk, uint32_t chunks)
{
    bed_make(&bed, pages_per_chunk, chunks, ARENA_TABLE_SHARED);
    bed_join(&a, &bed, 0);
    bed_join(&b, &bed, 5);
}

static void end(void)
{
    arena_own_free(&a.pool.table);
    arena_own_free(&b.pool.table);
    bed_end(&bed);
}

static uint32_t alloc(struct bed *by)
{
    uint32_t page;

    ck_assert_int_eq(arena_pages_alloc(&by->pool, 1, &page, 7), ARENA_OP_OK);
    return page;
}

static enum arena_op ref(struct bed *by, uint32_t page)
{
    return arena_pages_ref(by->table, 1, &page);
}

static enum arena_op unref(struct bed *by, uint32_t page)
{
    return arena_pages_unref(by->table, 1, &page);
}

static enum arena_op pin(struct bed *by, uint32_t page)
{
    return arena_pages_pin(by->table, 1, &page, 8);
}

static enum arena_op unpin(struct bed *by, uint32_t page)
{
    return arena_pages_unpin(by->table, 1, &page);
}

/* State, and who pins and references it. */
static void assert_word(uint32_t page, enum arena_page_state state, uint32_t pins, uint32_t refs)
{
    uint64_t word = bed_word(&bed, page);

    ck_assert_uint_eq(arena_word_state(word), state);
    ck_assert_uint_eq(arena_word_pins(word), pins);
    ck_assert_uint_eq(arena_word_refs(word), refs);
}

#define A (1u << 0)
#define B (1u << 5)

START_TEST(neither_can_free_what_the_other_references)
{
    uint32_t page;

    begin(8, 1);
    page = alloc(&a);
    assert_word(page, ARENA_PAGE_RESIDENT, 0, A);
    ck_assert_int_eq(unref(&b, page), ARENA_OP_MISUSE);
    ck_assert_int_eq(ref(&b, page), ARENA_OP_OK);
    ck_assert_int_eq(ref(&b, page), ARENA_OP_OK);
    assert_word(page, ARENA_PAGE_RESIDENT, 0, A | B);
    ck_assert_int_eq(unref(&b, page), ARENA_OP_OK);
    ck_assert_int_eq(unref(&b, page), ARENA_OP_OK);
    ck_assert_int_eq(unref(&b, page), ARENA_OP_MISUSE);
    assert_word(page, ARENA_PAGE_RESIDENT, 0, A);
    ck_assert_int_eq(ref(&b, page), ARENA_OP_OK);
    ck_assert_int_eq(unref(&a, page), ARENA_OP_OK);
    assert_word(page, ARENA_PAGE_RESIDENT, 0, B);
    ck_assert(!bed_token(&bed, page));
    ck_assert_int_eq(unref(&a, page), ARENA_OP_MISUSE);
    ck_assert_int_eq(unref(&b, page), ARENA_OP_OK);
    assert_word(page, ARENA_PAGE_FREE, 0, 0);
    ck_assert_int_eq(ref(&a, page), ARENA_OP_MISUSE);
    bed_check(&bed);
    end();
}
END_TEST

START_TEST(pins_are_counted_for_each_and_need_a_reference_of_ones_own)
{
    uint32_t page;

    begin(8, 1);
    page = alloc(&a);
    ck_assert_int_eq(pin(&b, page), ARENA_OP_MISUSE);
    ck_assert_int_eq(ref(&b, page), ARENA_OP_OK);
    ck_assert_int_eq(pin(&a, page), ARENA_OP_OK);
    ck_assert_int_eq(pin(&a, page), ARENA_OP_OK);
    ck_assert_int_eq(pin(&b, page), ARENA_OP_OK);
    assert_word(page, ARENA_PAGE_RESIDENT, A | B, A | B);
    ck_assert_int_eq(unref(&a, page), ARENA_OP_MISUSE); /* its last one, and it pins */
    ck_assert_int_eq(unpin(&a, page), ARENA_OP_OK);
    assert_word(page, ARENA_PAGE_RESIDENT, A | B, A | B);
    ck_assert_int_eq(unpin(&a, page), ARENA_OP_OK);
    ck_assert_int_eq(unpin(&a, page), ARENA_OP_MISUSE);
    assert_word(page, ARENA_PAGE_RESIDENT, B, A | B);
    ck_assert_int_eq(unref(&a, page), ARENA_OP_OK);
    ck_assert_int_eq(arena_pages_ready(a.table, 1, &page), ARENA_OP_MISUSE);
    ck_assert_int_eq(arena_pages_ready(b.table, 1, &page), ARENA_OP_OK);
    ck_assert_int_eq(unpin(&b, page), ARENA_OP_OK);
    ck_assert_int_eq(unref(&b, page), ARENA_OP_OK);
    bed_check(&bed);
    end();
}
END_TEST

START_TEST(a_batch_is_done_for_all_its_pages_or_none)
{
    uint32_t pages[4], twice[3];

    begin(8, 1);
    ck_assert_int_eq(arena_pages_alloc(&a.pool, 4, pages, 7), ARENA_OP_OK);
    ck_assert_int_eq(arena_pages_ref(b.table, 2, pages), ARENA_OP_OK);
    /* The third isn't referenced by b: the first two stay as they were. */
    ck_assert_int_eq(arena_pages_unref(b.table, 3, pages), ARENA_OP_MISUSE);
    ck_assert_int_eq(arena_pages_pin(b.table, 3, pages, 8), ARENA_OP_MISUSE);
    for (int i = 0; i < 2; i++)
        assert_word(pages[i], ARENA_PAGE_RESIDENT, 0, A | B);
    ck_assert_int_eq(arena_pages_pin(b.table, 2, pages, 8), ARENA_OP_OK);
    ck_assert_int_eq(arena_pages_unpin(b.table, 3, pages), ARENA_OP_MISUSE);
    assert_word(pages[0], ARENA_PAGE_RESIDENT, B, A | B);
    ck_assert_int_eq(arena_pages_unpin(b.table, 2, pages), ARENA_OP_OK);
    /* One page once too often. */
    twice[0] = twice[1] = pages[0];
    twice[2] = pages[1];
    ck_assert_int_eq(arena_pages_unref(b.table, 3, twice), ARENA_OP_MISUSE);
    assert_word(pages[0], ARENA_PAGE_RESIDENT, 0, A | B);
    ck_assert_int_eq(ref(&b, pages[0]), ARENA_OP_OK);
    ck_assert_int_eq(arena_pages_unref(b.table, 3, twice), ARENA_OP_OK);
    assert_word(pages[0], ARENA_PAGE_RESIDENT, 0, A);
    assert_word(pages[1], ARENA_PAGE_RESIDENT, 0, A);
    ck_assert_int_eq(arena_pages_unref(a.table, 4, pages), ARENA_OP_OK);
    bed_check(&bed);
    end();
}
END_TEST

START_TEST(a_death_drops_exactly_what_was_its_own)
{
    uint32_t both, only, pinned;

    begin(8, 2);
    both = alloc(&a);
    only = alloc(&a);
    pinned = alloc(&b);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(ref(&a, only), ARENA_OP_OK);
        ck_assert_int_eq(ref(&b, both), ARENA_OP_OK);
    }
    ck_assert_int_eq(ref(&a, pinned), ARENA_OP_OK);
    ck_assert_int_eq(pin(&a, pinned), ARENA_OP_OK);
    ck_assert_int_eq(pin(&b, pinned), ARENA_OP_OK);
    ck_assert_int_eq(pin(&a, only), ARENA_OP_OK);
    bed_die(&a);
    assert_word(both, ARENA_PAGE_RESIDENT, 0, B);
    assert_word(only, ARENA_PAGE_FREE, 0, 0);
    assert_word(pinned, ARENA_PAGE_RESIDENT, B, B);
    ck_assert_int_eq(unpin(&b, pinned), ARENA_OP_OK);
    ck_assert_int_eq(unref(&b, pinned), ARENA_OP_OK);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(unref(&b, both), ARENA_OP_OK);
    bed_check(&bed);
    arena_own_free(&b.pool.table);
    bed_end(&bed);
}
END_TEST

START_TEST(what_a_death_leaves_in_the_tier_is_free)
{
    uint32_t page;

    begin(8, 1);
    for (unsigned state = ARENA_PAGE_EVICTING; state <= ARENA_PAGE_LOST; state++) {
        page = alloc(&a);
        bed_set(&bed, page, arena_word_with_state(bed_word(&bed, page), state));
    }
    bed_die(&a);
    bed_check(&bed);
    for (page = 0; page < 4; page++)
        assert_word(page, ARENA_PAGE_FREE, 0, 0);
    arena_own_free(&b.pool.table);
    bed_end(&bed);
}
END_TEST

START_TEST(a_token_in_a_dead_hand_comes_back)
{
    uint32_t pages[8];

    begin(8, 1);
    /* It has taken three tokens, and allocated one of the pages. */
    arena_table_free(bed.table, 0)[0] &= ~UINT64_C(0x15);
    ck_assert(arena_own_begin(a.table, 2, 7));
    bed_die(&a);
    bed_check(&bed);
    ck_assert_int_eq(arena_pages_alloc(&b.pool, 8, pages, 7), ARENA_OP_OK);
    arena_own_free(&b.pool.table);
    bed_end(&bed);
}
END_TEST

START_TEST(a_wrong_token_allocates_nothing_twice)
{
    uint32_t first, page, pages[8];

    begin(8, 1);
    first = alloc(&a);
    arena_table_free(bed.table, 0)[0] |= UINT64_C(1) << first;
    for (int i = 0; i < 7; i++) {
        page = alloc(&b);
        ck_assert_uint_ne(page, first);
    }
    ck_assert_int_eq(arena_pages_alloc(&b.pool, 1, &page, 7), ARENA_OP_SHORT);
    arena_table_free(bed.table, 0)[0] |= 0xff;
    ck_assert_int_eq(arena_pages_alloc(&b.pool, 8, pages, 7), ARENA_OP_SHORT);
    assert_word(first, ARENA_PAGE_RESIDENT, 0, A);
    end();
}
END_TEST

START_TEST(who_has_not_mapped_a_chunk_waits_for_it_and_allocates_nothing_there)
{
    uint32_t page, other;

    begin(4, 2);
    page = alloc(&a);
    arena_own_set_mapped(b.table, arena_table_chunk_of(b.table, page), false);
    ck_assert_int_eq(ref(&b, page), ARENA_OP_OK);
    ck_assert_int_eq(pin(&b, page), ARENA_OP_WAITING);
    ck_assert_int_eq(arena_pages_ready(b.table, 1, &page), ARENA_OP_WAITING);
    ck_assert(arena_page_away(b.table, page));
    ck_assert(!arena_page_away(a.table, page));
    for (int i = 0; i < 4; i++) {
        other = alloc(&b);
        ck_assert_uint_ne(
            arena_table_chunk_of(b.table, other), arena_table_chunk_of(b.table, page));
    }
    ck_assert_int_eq(arena_pages_alloc(&b.pool, 1, &other, 7), ARENA_OP_SHORT);
    arena_own_set_mapped(b.table, arena_table_chunk_of(b.table, page), true);
    ck_assert_int_eq(arena_pages_ready(b.table, 1, &page), ARENA_OP_OK);
    ck_assert_int_eq(pin(&b, page), ARENA_OP_OK);
    end();
}
END_TEST

START_TEST(a_chunk_is_given_back_by_one_alone_and_only_if_no_page_is_used)
{
    uint32_t page;

    begin(4, 1);
    page = alloc(&a);
    ck_assert(!arena_chunk_close_vacant(&b.pool, 0));
    ck_assert_int_eq(arena_chunk_state(bed.table, 0), ARENA_CHUNK_LIVE);
    ck_assert_int_eq(unref(&a, page), ARENA_OP_OK);
    arena_table_free(bed.table, 0)[0] = 0; /* tokens say nothing */
    ck_assert(arena_chunk_close_vacant(&b.pool, 0));
    ck_assert_int_eq(arena_chunk_state(bed.table, 0), ARENA_CHUNK_VACANT);
    ck_assert(!arena_chunk_close_vacant(&a.pool, 0));
    ck_assert_int_eq(arena_table_chunk_vacant(bed.table, 0), ARENA_VACANT);
    ck_assert_int_eq(arena_pages_alloc(&a.pool, 1, &page, 7), ARENA_OP_SHORT);
    /* Neither unmapping it, nor mapping it late, nor a failure to unmap it opens it. */
    arena_chunk_vacate(&b.pool, 0);
    arena_chunk_reopen(&b.pool, 0);
    arena_chunk_open(&a.pool, 0);
    ck_assert_int_eq(arena_chunk_state(bed.table, 0), ARENA_CHUNK_VACANT);
    bed_chunk_set(&bed, 0, ARENA_CHUNK_EMPTY);
    arena_chunk_open(&a.pool, 0);
    ck_assert_int_eq(arena_chunk_state(bed.table, 0), ARENA_CHUNK_LIVE);
    end();
}
END_TEST

START_TEST(what_a_page_was_before_is_not_what_it_is)
{
    struct arena_table_page hint = {.flags = ARENA_PAGE_RECOMPUTABLE | ARENA_PAGE_HINTED};
    uint32_t page;

    begin(1, 1);
    page = alloc(&a);
    ck_assert_int_eq(arena_page_set_hint(b.table, page, &hint), ARENA_OP_MISUSE); /* not its own */
    ck_assert_int_eq(arena_page_set_hint(a.table, page, &hint), ARENA_OP_OK);
    ck_assert_int_eq(unref(&a, page), ARENA_OP_OK);
    ck_assert_uint_eq(alloc(&b), page);
    ck_assert_uint_eq(bed.table->pages[page].flags, 0);
    assert_word(page, ARENA_PAGE_RESIDENT, 0, B);
    end();
}
END_TEST

START_TEST(a_page_moves_only_if_one_process_has_it_once)
{
    uint32_t page;

    begin(4, 1);
    page = alloc(&a);
    ck_assert(arena_page_movable(a.table, page));
    ck_assert(!arena_page_movable(b.table, page));
    ck_assert_int_eq(ref(&a, page), ARENA_OP_OK);
    ck_assert(!arena_page_movable(a.table, page));
    ck_assert_int_eq(unref(&a, page), ARENA_OP_OK);
    ck_assert_int_eq(ref(&b, page), ARENA_OP_OK);
    ck_assert(!arena_page_movable(a.table, page));
    ck_assert_int_eq(unref(&b, page), ARENA_OP_OK);
    ck_assert_int_eq(pin(&a, page), ARENA_OP_OK);
    ck_assert(!arena_page_movable(a.table, page));
    end();
}
END_TEST

START_TEST(counts_end_in_an_error_not_in_their_neighbours)
{
    uint32_t page;

    begin(4, 1);
    page = alloc(&a);
    for (uint32_t i = 0; i < 65535; i++)
        ck_assert_int_eq(pin(&a, page), ARENA_OP_OK);
    ck_assert_int_eq(pin(&a, page), ARENA_OP_MISUSE);
    assert_word(page, ARENA_PAGE_RESIDENT, A, A);
    ck_assert_int_eq(ref(&b, page), ARENA_OP_OK);
    ck_assert_int_eq(pin(&b, page), ARENA_OP_OK);
    for (uint32_t i = 0; i < 65535; i++)
        ck_assert_int_eq(unpin(&a, page), ARENA_OP_OK);
    assert_word(page, ARENA_PAGE_RESIDENT, B, A | B);
    end();
}
END_TEST

UNIT_MAIN("arena_shared", neither_can_free_what_the_other_references,
    pins_are_counted_for_each_and_need_a_reference_of_ones_own,
    a_batch_is_done_for_all_its_pages_or_none, a_death_drops_exactly_what_was_its_own,
    what_a_death_leaves_in_the_tier_is_free, a_token_in_a_dead_hand_comes_back,
    a_wrong_token_allocates_nothing_twice,
    who_has_not_mapped_a_chunk_waits_for_it_and_allocates_nothing_there,
    a_chunk_is_given_back_by_one_alone_and_only_if_no_page_is_used,
    what_a_page_was_before_is_not_what_it_is, a_page_moves_only_if_one_process_has_it_once,
    counts_end_in_an_error_not_in_their_neighbours)
