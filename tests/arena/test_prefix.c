/* The index of prefixes: what is found, by whom, and what is left of it in every window. */
#include "client/arena_prefix.h"
#include "tests/arena/bed.h"
#include "tests/unit/unit.h"

static struct bed bed, a, b;

static void begin(uint32_t pages_per_chunk, uint32_t chunks)
{
    bed_make(&bed, pages_per_chunk, chunks, ARENA_TABLE_SHARED);
    bed_join(&a, &bed, 0);
    bed_join(&b, &bed, 1);
}

static void end(void)
{
    arena_own_free(&a.pool.table);
    arena_own_free(&b.pool.table);
    bed_end(&bed);
}

#define A (1u << 0)
#define B (1u << 1)
#define INDEX (1u << 16)
#define SLOTS (bed.table->layout.index_buckets * ARENA_BUCKET_SLOTS)

static struct arena_prefix_key key(uint64_t number)
{
    return (struct arena_prefix_key){.low = number, .high = ~number};
}

static uint32_t alloc_at(struct bed *by, uint32_t now)
{
    uint32_t page;

    ck_assert_int_eq(arena_pages_alloc(&by->pool, 1, &page, now), ARENA_OP_OK);
    return page;
}

static enum arena_prefix publish(struct bed *by, uint32_t page, uint64_t number, uint64_t parent)
{
    struct arena_prefix_key own = key(number), above = key(parent);
    uint32_t there;

    return arena_prefix_publish(by->table, page, &own, parent != 0 ? &above : NULL, &there);
}

/* How many of the keys 1, 2, … n are found. */
static size_t lookup(struct bed *by, size_t n, uint32_t *ret_pages)
{
    struct arena_prefix_key keys[64];

    for (size_t i = 0; i < n; i++)
        keys[i] = key(i + 1);
    return arena_prefix_lookup(by->table, n, keys, ret_pages, 99);
}

static uint32_t refs_of(uint32_t page)
{
    return arena_word_refs(bed_word(&bed, page));
}

static void unref(struct bed *by, uint32_t page)
{
    ck_assert_int_eq(arena_pages_unref(by->table, 1, &page), ARENA_OP_OK);
}

/* A chain of n pages of `a` under the keys 1 … n, which nobody else references afterwards. */
static void chain(uint32_t n, uint32_t *ret_pages)
{
    for (uint32_t i = 0; i < n; i++) {
        ret_pages[i] = alloc_at(&a, 7);
        ck_assert_int_eq(publish(&a, ret_pages[i], i + 1, i), ARENA_PREFIX_OK);
        unref(&a, ret_pages[i]);
    }
}

START_TEST(the_longest_prefix_is_found_and_referenced)
{
    uint32_t pages[4], found[8];

    begin(16, 1);
    chain(4, pages);
    for (int i = 0; i < 4; i++)
        ck_assert_uint_eq(refs_of(pages[i]), INDEX);
    ck_assert_uint_eq(lookup(&b, 8, found), 4);
    for (int i = 0; i < 4; i++) {
        ck_assert_uint_eq(found[i], pages[i]);
        ck_assert_uint_eq(refs_of(pages[i]), INDEX | B);
        ck_assert_uint_eq(bed.table->pages[pages[i]].last_use, 99);
    }
    /* Without the second one nothing behind it is found. */
    ck_assert_int_eq(arena_prefix_unpublish(b.table, 1, &pages[1]), ARENA_PREFIX_OK);
    ck_assert_uint_eq(refs_of(pages[1]), B);
    ck_assert_uint_eq(lookup(&a, 8, found), 1);
    ck_assert_uint_eq(refs_of(pages[0]), INDEX | A | B);
    ck_assert_int_eq(arena_prefix_unpublish(b.table, 1, &pages[1]), ARENA_PREFIX_MISUSE);
    end();
}
END_TEST

START_TEST(a_page_is_published_once_and_a_key_by_one_page)
{
    struct arena_prefix_key first = key(1);
    uint32_t page, other, there = 0;

    begin(16, 1);
    page = alloc_at(&a, 7);
    other = alloc_at(&b, 7);
    ck_assert_int_eq(publish(&b, page, 1, 0), ARENA_PREFIX_MISUSE); /* not its own */
    ck_assert_int_eq(publish(&a, page, 2, 1), ARENA_PREFIX_NO_PARENT);
    ck_assert_int_eq(publish(&a, page, 1, 0), ARENA_PREFIX_OK);
    ck_assert_int_eq(publish(&a, page, 3, 0), ARENA_PREFIX_MISUSE);
    ck_assert_int_eq(
        arena_prefix_publish(b.table, other, &first, NULL, &there), ARENA_PREFIX_THERE);
    ck_assert_uint_eq(there, page);
    ck_assert_uint_eq(refs_of(other), B);
    ck_assert_int_eq(publish(&b, 12345, 1, 0), ARENA_PREFIX_MISUSE);
    /* All or nothing. */
    ck_assert_int_eq(arena_pages_ref(b.table, 1, &page), ARENA_OP_OK);
    ck_assert_int_eq(
        arena_prefix_unpublish(b.table, 2, (uint32_t[]){page, other}), ARENA_PREFIX_MISUSE);
    ck_assert_uint_eq(refs_of(page), INDEX | A | B);
    end();
}
END_TEST

START_TEST(what_is_evicted_is_found_and_what_is_lost_is_not)
{
    uint32_t pages[3], found[3];

    begin(16, 1);
    chain(3, pages);
    bed_set(&bed, pages[1], arena_word_with_state(bed_word(&bed, pages[1]), ARENA_PAGE_EVICTED));
    ck_assert_uint_eq(lookup(&b, 3, found), 3);
    ck_assert_int_eq(arena_pages_pin(b.table, 1, &found[1], 9), ARENA_OP_WAITING);
    ck_assert_int_eq(arena_pages_unpin(b.table, 1, &found[1]), ARENA_OP_OK);
    for (int i = 0; i < 3; i++)
        unref(&b, found[i]);
    bed_set(&bed, pages[1], arena_word_with_state(bed_word(&bed, pages[1]), ARENA_PAGE_LOST));
    ck_assert_uint_eq(lookup(&b, 3, found), 1);
    /* Its number is free again, and its key can be published anew. */
    ck_assert_int_eq(arena_word_state(bed_word(&bed, pages[1])), ARENA_PAGE_FREE);
    pages[1] = alloc_at(&b, 7);
    ck_assert_int_eq(publish(&b, pages[1], 2, 1), ARENA_PREFIX_OK);
    unref(&b, found[0]);
    ck_assert_uint_eq(lookup(&b, 3, found), 3);
    end();
}
END_TEST

START_TEST(what_a_publisher_that_died_leaves_is_found_by_nobody)
{
    struct arena_prefix_key first = key(1);
    uint32_t page, again, found;

    begin(16, 1);
    /* It died before the index had its reference: the slot is there, the page is free. */
    page = alloc_at(&a, 7);
    ck_assert_int_eq(publish(&a, page, 1, 0), ARENA_PREFIX_OK);
    arena_table_page_forget(bed.table, page, INDEX);
    ck_assert_uint_eq(lookup(&b, 1, &found), 0);
    bed_die(&a);
    bed_check(&bed);
    /* The number is another page's: not what the slot says. */
    again = alloc_at(&b, 7);
    ck_assert_uint_eq(again, page);
    ck_assert_uint_eq(lookup(&b, 1, &found), 0);
    ck_assert_int_eq(publish(&b, again, 1, 0), ARENA_PREFIX_OK);
    ck_assert_uint_eq(lookup(&b, 1, &found), 1);
    /* It died after: the index keeps the page for the others. */
    bed_die(&b);
    bed_join(&a, &bed, 0);
    bed_join(&b, &bed, 1);
    ck_assert_uint_eq(refs_of(page), INDEX);
    ck_assert_uint_eq(lookup(&a, 1, &found), 1);
    /* It died after the index let go, before the slot was cleared. */
    (void) __atomic_fetch_and(
        &bed.table->pages[page].word, ~((uint64_t) INDEX << ARENA_REF_SHIFT), __ATOMIC_SEQ_CST);
    ck_assert_uint_eq(lookup(&b, 1, &found), 0);
    page = alloc_at(&b, 7);
    ck_assert_int_eq(arena_prefix_publish(b.table, page, &first, NULL, &found), ARENA_PREFIX_OK);
    ck_assert_uint_eq(lookup(&b, 1, &found), 1);
    ck_assert_uint_eq(found, page);
    end();
}
END_TEST

START_TEST(trim_takes_the_oldest_and_no_parent_before_its_child)
{
    uint32_t pages[5], found[8], other;

    begin(16, 1);
    chain(5, pages);
    other = alloc_at(&a, 3); /* older than all of them */
    ck_assert_int_eq(publish(&a, other, 100, 0), ARENA_PREFIX_OK);
    unref(&a, other);
    ck_assert_int_eq(arena_prefix_trim(b.table, 1), 1);
    ck_assert_uint_eq(refs_of(other), 0);
    ck_assert_int_eq(arena_prefix_trim(b.table, 2), 2);
    ck_assert_uint_eq(lookup(&b, 5, found), 3); /* the chain's end went, not its beginning */
    /* What somebody references stays, and what leads to it. */
    unref(&b, found[0]);
    unref(&b, found[1]);
    ck_assert_int_eq(arena_prefix_trim(a.table, 10), 0);
    unref(&b, found[2]);
    ck_assert_int_eq(arena_prefix_trim(a.table, 10), 3);
    ck_assert_int_eq(arena_prefix_trim(a.table, 10), 0);
    ck_assert_uint_eq(lookup(&b, 5, found), 0);
    bed_check(&bed);
    end();
}
END_TEST

START_TEST(a_full_index_says_so_and_finds_what_it_has)
{
    uint32_t page, found, published = 0;
    struct arena_prefix_key clash;
    uint64_t live = 0;

    begin(16, 2);
    /* 32 pages have 64 slots: the index is full only for keys that share both buckets. */
    for (uint64_t number = 1; number <= 32; number++) {
        page = alloc_at(&a, 7);
        published += publish(&a, page, number, 0) == ARENA_PREFIX_OK;
    }
    ck_assert_uint_eq(published, 32);
    for (uint64_t number = 1; number <= 32; number++) {
        clash = key(number);
        ck_assert_uint_eq(arena_prefix_lookup(b.table, 1, &clash, &found, 9), 1);
    }
    for (uint32_t i = 0; i < SLOTS; i++)
        live = bed.table->index[i] != 0 ? bed.table->index[i] : live;
    for (uint32_t i = 0; i < SLOTS; i++)
        bed.table->index[i] = live;
    ck_assert_int_eq(arena_prefix_unpublish(a.table, 1, &page), ARENA_PREFIX_OK);
    ck_assert_int_eq(publish(&a, page, 77, 0), ARENA_PREFIX_FULL);
    ck_assert_uint_eq(refs_of(page), A | B); /* not the index's: b looked it up */
    end();
}
END_TEST

START_TEST(nonsense_in_the_index_finds_nothing)
{
    uint64_t random = 88172645463325252;
    uint32_t pages[8], found[8], count = 0;

    begin(16, 4);
    chain(8, pages);
    for (uint64_t i = 0; i < SLOTS; i++) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        bed.table->index[i] = random | ARENA_SLOT_USED;
    }
    ck_assert_uint_eq(lookup(&b, 8, found), 0);
    /* A slot that names no page, or one that is gone, is anybody's. */
    for (uint64_t number = 50; number < 60; number++)
        count += publish(&a, alloc_at(&a, 7), number, 0) == ARENA_PREFIX_OK;
    ck_assert_uint_eq(count, 10);
    end();
}
END_TEST

UNIT_MAIN("arena_prefix", the_longest_prefix_is_found_and_referenced,
    a_page_is_published_once_and_a_key_by_one_page,
    what_is_evicted_is_found_and_what_is_lost_is_not,
    what_a_publisher_that_died_leaves_is_found_by_nobody,
    trim_takes_the_oldest_and_no_parent_before_its_child,
    a_full_index_says_so_and_finds_what_it_has, nonsense_in_the_index_finds_nothing)
