/*
 * Random operations, misuse included, against a model that is as simple as can be: an array of
 * states and counts. After each, every word must be what the model says and every token where the
 * rule wants it. The seed of a failure is in its message.
 */
#include "tests/arena/bed.h"
#include "tests/unit/unit.h"

#define CHUNKS 4u
#define PER_CHUNK 9u
#define PAGES (CHUNKS * PER_CHUNK)
#define BATCH 5u
#define STEPS 20000u

struct model_page {
    enum arena_page_state state;
    uint32_t pins, refs;
};

struct world {
    struct bed bed;
    struct model_page pages[PAGES];
    bool live[CHUNKS];
    uint64_t random;
};

static uint32_t draw(struct world *world, uint32_t below)
{
    world->random = world->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t) (world->random >> 33) % below;
}

static bool allocated(const struct model_page *page)
{
    return page->state != ARENA_PAGE_FREE;
}

static enum arena_op model_ref(struct model_page *page)
{
    if (!allocated(page))
        return ARENA_OP_MISUSE;
    page->refs++;
    return ARENA_OP_OK;
}

static enum arena_op model_unref(struct model_page *page)
{
    if (!allocated(page) || page->refs == 0 || (page->refs == 1 && page->pins > 0))
        return ARENA_OP_MISUSE;
    page->refs--;
    return ARENA_OP_OK;
}

static enum arena_op model_pin(struct model_page *page)
{
    if (!allocated(page))
        return ARENA_OP_MISUSE;
    if (page->state == ARENA_PAGE_LOST)
        return ARENA_OP_LOST;
    if (page->state == ARENA_PAGE_EVICTING)
        page->state = ARENA_PAGE_RESIDENT;
    page->pins++;
    return page->state == ARENA_PAGE_RESIDENT ? ARENA_OP_OK : ARENA_OP_WAITING;
}

static enum arena_op model_unpin(struct model_page *page)
{
    if (!allocated(page) || page->pins == 0)
        return ARENA_OP_MISUSE;
    page->pins--;
    return ARENA_OP_OK;
}

/* A batch on a copy, which counts only if every page agrees. A rescue outlives the batch. */
static enum arena_op model_batch(struct world *world, enum arena_op (*verb)(struct model_page *),
    size_t n, const uint32_t *pages)
{
    struct model_page before[PAGES];
    enum arena_op result = ARENA_OP_OK;

    memcpy(before, world->pages, sizeof(before));
    for (size_t i = 0; i < n; i++) {
        enum arena_op op = pages[i] < PAGES ? verb(&world->pages[pages[i]]) : ARENA_OP_MISUSE;

        if (op == ARENA_OP_WAITING)
            result = op;
        if (op == ARENA_OP_OK || op == ARENA_OP_WAITING)
            continue;
        for (uint32_t page = 0; page < PAGES; page++) {
            before[page].state = world->pages[page].state;
            world->pages[page] = before[page];
        }
        return op;
    }
    for (uint32_t page = 0; page < PAGES; page++) {
        if (world->pages[page].refs == 0)
            world->pages[page].state = ARENA_PAGE_FREE;
    }
    return result;
}

static void step_counts(struct world *world)
{
    uint32_t pages[BATCH];
    size_t n = draw(world, BATCH) + 1;
    enum arena_op op, expected;

    for (size_t i = 0; i < n; i++)
        pages[i] = draw(world, 200) == 0 ? PAGES + draw(world, 3) : draw(world, PAGES);
    switch (draw(world, 4)) {
    case 0:
        expected = model_batch(world, model_ref, n, pages);
        op = arena_pages_ref(world->bed.table, n, pages);
        break;
    case 1:
        expected = model_batch(world, model_unref, n, pages);
        op = arena_pages_unref(world->bed.table, n, pages);
        break;
    case 2:
        expected = model_batch(world, model_pin, n, pages);
        op = arena_pages_pin(world->bed.table, n, pages, 1);
        break;
    default:
        expected = model_batch(world, model_unpin, n, pages);
        op = arena_pages_unpin(world->bed.table, n, pages);
        break;
    }
    ck_assert_int_eq(op, expected);
}

static void step_alloc(struct world *world)
{
    uint32_t got[BATCH], room = 0;
    size_t n = draw(world, BATCH) + 1;
    enum arena_op op;

    for (uint32_t page = 0; page < PAGES; page++)
        room += world->live[page / PER_CHUNK] && !allocated(&world->pages[page]);
    op = arena_pages_alloc(&world->bed.pool, n, got, 1);
    ck_assert_int_eq(op, n <= room ? ARENA_OP_OK : ARENA_OP_SHORT);
    for (size_t i = 0; op == ARENA_OP_OK && i < n; i++) {
        ck_assert(world->live[got[i] / PER_CHUNK]);
        ck_assert(!allocated(&world->pages[got[i]]));
        world->pages[got[i]] = (struct model_page){ARENA_PAGE_RESIDENT, 0, 1};
    }
}

/* The broker moves a page one state on. */
static void step_broker(struct world *world)
{
    static const enum arena_page_state next[] = {
        [ARENA_PAGE_FREE] = ARENA_PAGE_FREE,
        [ARENA_PAGE_RESIDENT] = ARENA_PAGE_EVICTING,
        [ARENA_PAGE_EVICTING] = ARENA_PAGE_EVICTED,
        [ARENA_PAGE_EVICTED] = ARENA_PAGE_RESTORING,
        [ARENA_PAGE_RESTORING] = ARENA_PAGE_RESIDENT,
        [ARENA_PAGE_LOST] = ARENA_PAGE_LOST,
    };
    uint32_t number = draw(world, PAGES);
    struct model_page *page = &world->pages[number];

    if (page->state == ARENA_PAGE_RESIDENT && page->pins > 0)
        return;
    if (page->state == ARENA_PAGE_EVICTED && draw(world, 8) == 0)
        page->state = ARENA_PAGE_LOST;
    else
        page->state = next[page->state];
    bed_set(&world->bed, number, arena_word_with_state(bed_word(&world->bed, number), page->state));
}

static bool chunk_vacant(const struct world *world, uint32_t chunk)
{
    for (uint32_t page = chunk * PER_CHUNK; page < (chunk + 1) * PER_CHUNK; page++) {
        if (allocated(&world->pages[page]))
            return false;
    }
    return true;
}

static void step_chunk(struct world *world)
{
    uint32_t chunk = draw(world, CHUNKS);

    if (!world->live[chunk]) {
        arena_chunk_open(&world->bed.pool, chunk);
        world->live[chunk] = true;
        return;
    }
    ck_assert_int_eq(arena_chunk_close_vacant(&world->bed.pool, chunk), chunk_vacant(world, chunk));
    if (chunk_vacant(world, chunk)) {
        arena_chunk_vacate(&world->bed.pool, chunk);
        world->live[chunk] = false;
    }
}

static void world_check(const struct world *world)
{
    uint32_t wrong = 0;

    bed_check(&world->bed);
    for (uint32_t page = 0; page < PAGES; page++) {
        const struct model_page *model = &world->pages[page];
        uint64_t word = bed_word(&world->bed, page);

        wrong += arena_word_state(word) != model->state || arena_word_pins(word) != model->pins ||
                 arena_word_refs(word) != model->refs;
    }
    ck_assert_uint_eq(wrong, 0);
}

START_TEST(random_operations_agree_with_the_model)
{
    struct world world = {.random = (uint64_t) _i + 1};

    bed_begin(&world.bed, PER_CHUNK, CHUNKS);
    for (unsigned step = 0; step < STEPS; step++) {
        uint32_t what = draw(&world, 16);

        if (what < 9)
            step_counts(&world);
        else if (what < 12)
            step_alloc(&world);
        else if (what < 15)
            step_broker(&world);
        else
            step_chunk(&world);
        world_check(&world);
    }
    bed_end(&world.bed);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("arena model");
    TCase *tcase = tcase_create("arena model");
    SRunner *runner;
    int failed;

    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, random_operations_agree_with_the_model, 0, 8);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
