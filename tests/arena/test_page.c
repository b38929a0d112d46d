/* Each operation in each state of a page, with every count at its ends; and batches, all or
 * nothing. */
#include "tests/arena/bed.h"
#include "tests/unit/unit.h"

#define PINS_MAX ((1u << ARENA_PIN_BITS) - 1)
#define REFS_MAX ((1u << ARENA_REF_BITS) - 1)

enum verb { REF, UNREF, PIN, UNPIN, TOUCH, READY, VERB_MAX };

static struct bed bed;

static enum arena_op apply(enum verb verb, size_t n, const uint32_t *pages)
{
    switch (verb) {
    case REF:
        return arena_pages_ref(bed.table, n, pages);
    case UNREF:
        return arena_pages_unref(bed.table, n, pages);
    case PIN:
        return arena_pages_pin(bed.table, n, pages, 9);
    case UNPIN:
        return arena_pages_unpin(bed.table, n, pages);
    case TOUCH:
        return arena_pages_touch(bed.table, n, pages, 9);
    case READY:
        return arena_pages_ready(bed.table, n, pages);
    case VERB_MAX:
        break;
    }
    return ARENA_OP_MAX;
}

/* A page with that state, pins and references; the operation on it; what comes of both. */
struct row {
    enum verb verb;
    uint32_t state, pins, refs;
    enum arena_op op;
    uint32_t to_state, to_pins, to_refs;
};

#define BAD ARENA_OP_MISUSE
#define OK ARENA_OP_OK
#define WAIT ARENA_OP_WAITING
#define GONE ARENA_OP_LOST
enum { F, R, V, E, S, L }; /* FREE RESIDENT EVICTING EVICTED RESTORING LOST */

static const struct row rows[] = {
    {REF, F, 0, 0, BAD, F, 0, 0},
    {REF, R, 0, 1, OK, R, 0, 2},
    {REF, V, 0, 1, OK, V, 0, 2},
    {REF, E, 3, 1, OK, E, 3, 2},
    {REF, S, 0, 1, OK, S, 0, 2},
    {REF, L, 0, 1, OK, L, 0, 2},
    {REF, R, 0, 0, BAD, R, 0, 0}, /* being freed by a batch */
    {REF, R, 0, REFS_MAX - 1, OK, R, 0, REFS_MAX},
    {REF, R, 0, REFS_MAX, BAD, R, 0, REFS_MAX},
    {REF, 6, 0, 1, BAD, 6, 0, 1},
    {REF, 15, 0, 1, BAD, 15, 0, 1},

    {UNREF, F, 0, 0, BAD, F, 0, 0}, /* double free */
    {UNREF, R, 0, 2, OK, R, 0, 1},
    {UNREF, R, 1, 2, OK, R, 1, 1},
    {UNREF, R, 0, 1, OK, F, 0, 0},
    {UNREF, R, 1, 1, BAD, R, 1, 1}, /* free while pinned */
    {UNREF, R, PINS_MAX, 1, BAD, R, PINS_MAX, 1},
    {UNREF, R, 0, 0, BAD, R, 0, 0},
    {UNREF, V, 0, 1, OK, F, 0, 0},
    {UNREF, E, 0, 1, OK, F, 0, 0},
    {UNREF, E, 1, 1, BAD, E, 1, 1},
    {UNREF, S, 0, 1, OK, F, 0, 0},
    {UNREF, L, 0, 1, OK, F, 0, 0},
    {UNREF, L, 1, 1, BAD, L, 1, 1},
    {UNREF, 6, 0, 1, BAD, 6, 0, 1},

    {PIN, F, 0, 0, BAD, F, 0, 0},
    {PIN, R, 0, 1, OK, R, 1, 1},
    {PIN, R, PINS_MAX - 1, 1, OK, R, PINS_MAX, 1},
    {PIN, R, PINS_MAX, 1, BAD, R, PINS_MAX, 1},
    {PIN, R, 0, 0, BAD, R, 0, 0},
    {PIN, V, 0, 1, OK, R, 1, 1}, /* rescued */
    {PIN, E, 0, 1, WAIT, E, 1, 1},
    {PIN, E, PINS_MAX, 1, BAD, E, PINS_MAX, 1},
    {PIN, S, 1, 1, WAIT, S, 2, 1},
    {PIN, L, 0, 1, GONE, L, 0, 1},
    {PIN, 7, 0, 1, BAD, 7, 0, 1},

    {UNPIN, F, 0, 0, BAD, F, 0, 0},
    {UNPIN, R, 0, 1, BAD, R, 0, 1},
    {UNPIN, R, 1, 1, OK, R, 0, 1},
    {UNPIN, V, 0, 1, BAD, V, 0, 1},
    {UNPIN, E, 1, 1, OK, E, 0, 1},
    {UNPIN, S, 2, 1, OK, S, 1, 1},
    {UNPIN, L, 1, 1, OK, L, 0, 1},
    {UNPIN, L, 0, 1, BAD, L, 0, 1},
    {UNPIN, 6, 1, 1, BAD, 6, 1, 1},

    {TOUCH, F, 0, 0, BAD, F, 0, 0},
    {TOUCH, R, 0, 1, OK, R, 0, 1},
    {TOUCH, E, 0, 1, OK, E, 0, 1},
    {TOUCH, 6, 0, 1, BAD, 6, 0, 1},

    {READY, F, 0, 0, BAD, F, 0, 0},
    {READY, R, 0, 1, BAD, R, 0, 1}, /* not the caller's pin */
    {READY, R, 1, 1, OK, R, 1, 1},
    {READY, E, 1, 1, WAIT, E, 1, 1},
    {READY, S, 1, 1, WAIT, S, 1, 1},
    {READY, L, 1, 1, GONE, L, 1, 1},
};

static uint64_t word(uint32_t state, uint32_t pins, uint32_t refs)
{
    return arena_word_make((enum arena_page_state) state, pins, refs, 0xfffffe);
}

/* Alone, and as the last of a batch whose other pages must then be as they were if it is refused.
 */
START_TEST(every_operation_in_every_state)
{
    static const uint32_t batch[] = {5, 2, 5, 1}; /* page 5 twice */

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        const struct row *row = &rows[i];
        uint64_t bystander = word(ARENA_PAGE_RESIDENT, 3, 3);
        bool refused = row->op == BAD || row->op == GONE;

        bed_begin(&bed, 8, 1);
        bed.table->free[0] = 0x18; /* pages 3 and 4 */
        bed_set(&bed, 1, word(row->state, row->pins, row->refs));
        ck_assert_msg(apply(row->verb, 1, batch + 3) == row->op, "row %zu", i);
        ck_assert_msg(
            bed_word(&bed, 1) == word(row->to_state, row->to_pins, row->to_refs), "row %zu", i);
        ck_assert_int_eq(bed_token(&bed, 1), row->to_state == F && row->state != F);

        bed.table->free[0] = 0x18;
        bed_set(&bed, 1, word(row->state, row->pins, row->refs));
        bed_set(&bed, 2, bystander);
        bed_set(&bed, 5, bystander);
        ck_assert_msg(apply(row->verb, 4, batch) == row->op, "row %zu in a batch", i);
        ck_assert_msg(bed_word(&bed, 1) == word(row->to_state, row->to_pins, row->to_refs),
            "row %zu in a batch", i);
        ck_assert_int_eq(bed_token(&bed, 1), row->to_state == F && row->state != F);
        if (refused || row->verb >= TOUCH) {
            ck_assert_uint_eq(bed_word(&bed, 2), bystander);
            ck_assert_uint_eq(bed_word(&bed, 5), bystander);
        } else {
            ck_assert_uint_ne(bed_word(&bed, 2), bystander);
        }
        bed_end(&bed);
    }
}
END_TEST

START_TEST(page_past_the_end_is_misuse)
{
    uint32_t pages[] = {0, 8};

    bed_begin(&bed, 8, 1);
    bed_open_all(&bed);
    ck_assert_int_eq(arena_pages_alloc(&bed.pool, 1, pages, 1), OK);
    ck_assert_uint_eq(pages[0], 0);
    for (enum verb verb = REF; verb < VERB_MAX; verb++) {
        uint64_t before = bed_word(&bed, 0);

        ck_assert_int_eq(apply(verb, 1, pages + 1), BAD);
        ck_assert_int_eq(apply(verb, 2, pages), BAD);
        ck_assert_uint_eq(bed_word(&bed, 0), before);
        ck_assert_int_eq(apply(verb, 0, NULL), OK);
    }
    bed_end(&bed);
}
END_TEST

/* More drops in one batch than the page has references. */
START_TEST(batch_that_goes_below_zero_changes_nothing)
{
    uint32_t pages[] = {0, 0, 0};

    bed_begin(&bed, 8, 1);
    bed_open_all(&bed);
    ck_assert_int_eq(arena_pages_alloc(&bed.pool, 1, pages, 1), OK);
    ck_assert_int_eq(arena_pages_ref(bed.table, 1, pages), OK);
    pages[1] = pages[2] = pages[0];
    ck_assert_int_eq(arena_pages_unref(bed.table, 3, pages), BAD);
    ck_assert_uint_eq(arena_word_refs(bed_word(&bed, 0)), 2);
    ck_assert_int_eq(arena_pages_unref(bed.table, 2, pages), OK);
    ck_assert_int_eq(arena_word_state(bed_word(&bed, 0)), ARENA_PAGE_FREE);
    bed_check(&bed);
    bed_end(&bed);
}
END_TEST

START_TEST(use_is_marked_on_page_and_chunk)
{
    uint32_t pages[5];

    bed_begin(&bed, 4, 2);
    bed_open_all(&bed);
    ck_assert_int_eq(arena_pages_alloc(&bed.pool, 5, pages, 7), OK);
    ck_assert_uint_eq(bed.table->pages[4].last_use, 7);
    ck_assert_uint_eq(bed.table->chunks[1].last_use, 7);
    ck_assert_int_eq(arena_pages_touch(bed.table, 1, pages, 8), OK);
    ck_assert_uint_eq(bed.table->pages[0].last_use, 8);
    ck_assert_uint_eq(bed.table->chunks[0].last_use, 8);
    ck_assert_uint_eq(bed.table->chunks[1].last_use, 7);
    ck_assert_int_eq(arena_pages_pin(bed.table, 1, pages + 4, 10), OK);
    ck_assert_uint_eq(bed.table->pages[4].last_use, 10);
    ck_assert_uint_eq(bed.table->chunks[1].last_use, 10);
    bed_end(&bed);
}
END_TEST

/* What was said of a page isn't believed of its successor. */
START_TEST(hints_end_with_their_page)
{
    const struct arena_table_page hint = {.flags = ARENA_PAGE_HINTED | ARENA_PAGE_RECOMPUTABLE,
        .position = 1024,
        .tokens = 16,
        .parent = 3,
        .prefix = 0xabcdef};
    uint32_t page, again;

    bed_begin(&bed, 4, 1);
    bed_open_all(&bed);
    ck_assert_int_eq(arena_page_set_hint(bed.table, 0, &hint), BAD);
    ck_assert_int_eq(arena_page_set_hint(bed.table, 4, &hint), BAD);
    ck_assert_int_eq(arena_pages_alloc(&bed.pool, 1, &page, 1), OK);
    ck_assert_int_eq(arena_page_set_hint(bed.table, page, &hint), OK);
    ck_assert_uint_eq(bed.table->pages[page].position, 1024);
    ck_assert_uint_eq(bed.table->pages[page].prefix, 0xabcdef);
    ck_assert_int_eq(arena_pages_unref(bed.table, 1, &page), OK);
    ck_assert_int_eq(arena_pages_alloc(&bed.pool, 1, &again, 1), OK);
    ck_assert_uint_eq(again, page);
    ck_assert_uint_eq(bed.table->pages[page].flags, 0);
    bed_end(&bed);
}
END_TEST

UNIT_MAIN("arena page", every_operation_in_every_state, page_past_the_end_is_misuse,
    batch_that_goes_below_zero_changes_nothing, use_is_marked_on_page_and_chunk,
    hints_end_with_their_page)
