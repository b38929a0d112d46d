/*
 * Memory that can't be given to another tenant though nobody uses it: free pages of chunks that
 * have used ones. A load that falls leaves such chunks all over; allocation from the fullest chunk
 * first lets them run empty as pages come and go, and an engine that can move pages empties the
 * rest.
 */
#include <errno.h>

#include "tests/bench/arena_bed.h"
#include "tests/bench/bench.h"

#define PAGES_PER_CHUNK 32u
#define CHUNKS 512u
#define PAGES (PAGES_PER_CHUNK * CHUNKS)
#define OPERATIONS 1000000u
#define PHASE 50000u /* operations at one load */
#define MOVES 256u   /* of one plan */
#define BUDGET 3.0   /* % */

struct engine {
    struct gmb_arena *arena;
    uint32_t pages[PAGES];
    uint32_t index[PAGES]; /* of a page in `pages` */
    uint32_t count;
    uint64_t random;
};

static uint32_t draw(struct engine *engine, uint32_t below)
{
    engine->random = engine->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t) ((engine->random >> 33) % below);
}

static int page_take(struct engine *engine)
{
    uint32_t page;

    if (gmb_page_alloc(engine->arena, 1, &page, GMB_WAIT_NONE) != 0)
        return -EIO;
    engine->index[page] = engine->count;
    engine->pages[engine->count++] = page;
    return 0;
}

static int page_give(struct engine *engine)
{
    uint32_t at = draw(engine, engine->count), page = engine->pages[at];

    engine->pages[at] = engine->pages[--engine->count];
    engine->index[engine->pages[at]] = at;
    return gmb_page_unref(engine->arena, 1, &page) == 0 ? 0 : -EIO;
}

/* As an engine does at its safe point: block tables are changed, old pages are given up. */
static int pages_move(struct engine *engine)
{
    uint32_t old[MOVES], new[MOVES];
    int count = gmb_arena_compact(engine->arena, MOVES, old, new);

    for (int i = 0; i < count; i++) {
        engine->index[new[i]] = engine->index[old[i]];
        engine->pages[engine->index[old[i]]] = new[i];
        if (gmb_page_unref(engine->arena, 1, &old[i]) != 0)
            return -EIO;
    }
    return count;
}

static double lost_percent(const struct engine *engine)
{
    const struct arena_table *table = &engine->arena->pool.table;
    uint32_t lost = 0;

    for (uint32_t chunk = 0; chunk < CHUNKS; chunk++) {
        uint32_t count = arena_chunk_free(table, chunk);

        lost += count < PAGES_PER_CHUNK ? count : 0;
    }
    return 100.0 * lost / PAGES;
}

/* The load of each phase; the last one is 60 %. */
static uint32_t phase_load(struct engine *engine, uint32_t phase)
{
    bool last = phase + 1 == OPERATIONS / PHASE;

    return PAGES / 100 * (last ? 60 : 30 + draw(engine, 71));
}

static int engine_run(struct engine *engine, bool moves)
{
    int r = 0;

    for (uint32_t phase = 0; phase < OPERATIONS / PHASE; phase++) {
        uint32_t load = phase_load(engine, phase);

        for (uint32_t i = 0; r == 0 && i < PHASE; i++) {
            /* Up to twice as likely towards the load as away from it. */
            bool more = engine->count < load ? draw(engine, 3) > 0 : draw(engine, 3) == 0;

            r = engine->count == 0 || (more && engine->count < PAGES) ? page_take(engine)
                                                                      : page_give(engine);
        }
        while (r == 0 && moves && (r = pages_move(engine)) > 0)
            r = 0;
        if (r < 0)
            return r;
    }
    return 0;
}

static int lost_measure(bool moves, double *ret)
{
    static struct engine engine;
    int r;

    engine = (struct engine){.random = 1};
    r = arena_bed_make(PAGES_PER_CHUNK, CHUNKS, 0, &engine.arena);
    if (r == 0)
        r = engine_run(&engine, moves);
    if (r == 0)
        *ret = lost_percent(&engine);
    arena_bed_free(engine.arena);
    return r;
}

int bench_fragmentation(struct bench_row *rows, size_t max)
{
    double moved, unmoved;
    int r;

    if (max < 2)
        return -ENOSPC;
    r = lost_measure(true, &moved);
    if (r == 0)
        r = lost_measure(false, &unmoved);
    if (r < 0)
        return r;
    rows[0] = (struct bench_row){.name = "fragmentation",
        .value = moved,
        .unit = "%",
        .floor = 1,
        .ratio = moved,
        .budget = BUDGET,
        .met = moved <= BUDGET};
    rows[1] = (struct bench_row){.name = "fragmentation_unmoved",
        .value = unmoved,
        .unit = "%",
        .floor = 1,
        .ratio = unmoved,
        .met = true};
    return 2;
}
