/*
 * A page table in which anything may stand, met by both sides.
 *
 * 'O' and bytes: a whole table, as the library is sent one. It is opened or refused; one that is
 * opened is used, and nothing outside its memory is touched.
 *
 * Anything else: a table of the broker's, in which the input scribbles between the broker's
 * readings and the library's calls. What the broker counts stays within what there can be, its own
 * records stay whole, and everything that it took is given back with the arena.
 */
#include <event2/event.h>
#include <search.h>
#include <string.h>

#include "client/arena_own.h"
#include "client/arena_prefix.h"
#include "daemon/arena_forget.h"
#include "daemon/arena_holder.h"
#include "daemon/broker.h"
#include "daemon/evict.h"
#include "daemon/restore.h"
#include "daemon/segment.h"
#include "tests/fuzz/fuzz.h"

#define PAGE_BYTES 4096u
#define SLAB_BYTES (UINT64_C(1) << 16)
#define TABLE_BYTES_MAX (UINT64_C(1) << 20)
#define RECORD_BYTES 11 /* what, where, and a word to put there */

/* ------------------------------------------------------------------ the library */

static void prefix_use(const struct arena_table *table, uint32_t *pages, uint32_t n,
    const struct arena_prefix_key keys[2], uint64_t value)
{
    uint32_t there = 0;

    switch (value / 3 % 4) {
    case 0:
        if (arena_prefix_publish(table, pages[0], &keys[0], value % 2 == 0 ? &keys[1] : NULL,
                &there) == ARENA_PREFIX_THERE)
            FUZZ_CHECK(there < table->page_count);
        break;
    case 1:
        FUZZ_CHECK(arena_prefix_lookup(table, 2, keys, pages, 4) <= 2);
        break;
    case 2:
        (void) arena_prefix_unpublish(table, n, pages);
        break;
    default:
        FUZZ_CHECK(arena_prefix_trim(table, n) <= (int) n);
        break;
    }
}

/* One call on pages that may not exist; what it allocates does. */
static void pages_use(struct arena_pool *pool, uint32_t first, uint64_t value)
{
    const struct arena_table *table = &pool->table;
    const struct arena_prefix_key keys[2] = {{value & 7, 1}, {value >> 3 & 7, 1}};
    const struct arena_table_page hint = {.flags = (uint32_t) value, .parent = first};
    uint32_t pages[3] = {first, (uint32_t) (value >> 8), first}, n = 1 + (uint32_t) value / 8 % 3;

    if (table->own != NULL && value % 3 == 0) {
        prefix_use(table, pages, n, keys, value);
        return;
    }
    switch (value % 8) {
    case 0:
        if (arena_pages_alloc(pool, n, pages, 1) == ARENA_OP_OK) {
            for (uint32_t i = 0; i < n; i++)
                FUZZ_CHECK(pages[i] < table->page_count);
        }
        break;
    case 1:
        (void) arena_pages_unref(table, n, pages);
        break;
    case 2:
        (void) arena_pages_ref(table, n, pages);
        break;
    case 3:
        (void) arena_pages_pin(table, n, pages, 2);
        break;
    case 4:
        (void) arena_pages_unpin(table, n, pages);
        break;
    case 5:
        (void) arena_pages_touch(table, n, pages, 3);
        break;
    case 6:
        (void) arena_pages_ready(table, n, pages);
        break;
    default:
        (void) arena_page_set_hint(table, first, &hint);
        break;
    }
}

/* Of a shared table this process is a holder, which has mapped every chunk. */
static void pool_join(struct arena_pool *pool, uint32_t number)
{
    if (!arena_table_shared(&pool->table))
        return;
    FUZZ_CHECK(arena_own_new(&pool->table, number % ARENA_HOLDERS_MAX) == 0);
    for (uint32_t i = 0; i < pool->table.layout.max_chunks; i++)
        arena_own_set_mapped(&pool->table, i, true);
}

static void chunk_use(struct arena_pool *pool, uint32_t chunk)
{
    if (arena_chunk_close_vacant(pool, chunk))
        arena_chunk_vacate(pool, chunk);
    FUZZ_CHECK(arena_table_chunk_vacant(&pool->table, chunk) < ARENA_VACANCY_MAX);
    FUZZ_CHECK(arena_chunk_free(&pool->table, chunk) <= pool->table.layout.pages_per_chunk);
    arena_chunk_open(pool, chunk);
}

static void table_sent(const uint8_t *data, size_t size)
{
    /* As a mapping is: aligned; and not a byte longer than was sent. */
    void *memory = aligned_alloc(64, MAX(size / 64 * 64, (size_t) 64));
    struct arena_pool *pool = aligned_alloc(64, (sizeof(*pool) + 63) / 64 * 64);
    struct arena_table table;

    FUZZ_CHECK(memory != NULL && pool != NULL);
    size = size / 64 * 64;
    memcpy(memory, data, size);
    if (arena_table_open(memory, size, &table) == 0) {
        FUZZ_CHECK(table.layout.table_bytes <= size);
        FUZZ_CHECK((char *) (table.pages + table.page_count) <= (char *) memory + size);
        arena_pool_init(pool, &table);
        pool_join(pool, data[size - 1]);
        for (uint32_t chunk = 0; chunk < MIN(table.layout.max_chunks, 16U); chunk++)
            chunk_use(pool, chunk);
        for (uint64_t value = 0; value < 256; value++)
            pages_use(pool, data[value % size] % table.page_count, value);
        arena_own_free(&pool->table);
    }
    free(pool);
    free(memory);
}

/* ------------------------------------------------------------------ the broker */

static uint64_t now_ns = NSEC_PER_SEC;

static uint64_t fake_now(const struct clock *clock)
{
    (void) clock;
    return now_ns;
}

static const struct clock fake_clock = {.now = fake_now};
static struct session nobody;

struct world {
    struct broker broker;
    struct hosting *hosting;
    struct client client;
    struct arena *arena;
    struct arena_pool pool; /* the worker's, over the same memory */
};

static int id_compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *) a, y = *(const uint64_t *) b;

    return x < y ? -1 : x > y;
}

static void chunks_map(struct world *world)
{
    for (uint32_t i = 0; i < world->arena->table.layout.max_chunks; i++) {
        struct arena_chunk *chunk = arena_chunk_get(world->arena, i);

        FUZZ_CHECK(chunk != NULL);
        chunk->phase = ARENA_MAPPED;
        arena_chunk_open(&world->pool, i);
    }
}

/* Without a tier the broker evicts nothing but drops; with one, its mover is played here. */
static void world_begin(
    struct world *world, uint32_t pages_per_chunk, uint32_t max_chunks, bool with_tier, bool shared)
{
    struct arena_table_header layout;
    struct arena_holder *holder;

    log_set_level(LOG_LEVEL_ERROR);
    memset(world, 0, sizeof(*world));
    world->broker.clock = &fake_clock;
    world->broker.base = event_base_new();
    FUZZ_CHECK(world->broker.base != NULL);
    FUZZ_CHECK(segments_new(&world->broker, &world->broker.segments) == 0);
    FUZZ_CHECK(hosting_new(&world->broker, 0, false, &world->hosting) == 0);
    world->broker.hosting[0] = world->hosting;
    world->client = (struct client){.id = 7, .broker = &world->broker, .session = &nobody};
    list_init(&world->broker.observers);
    list_init(&world->client.holdings);
    FUZZ_CHECK(tsearch(&world->client, &world->broker.clients, id_compare) != NULL);
    FUZZ_CHECK(arena_table_layout(PAGE_BYTES, (uint64_t) PAGE_BYTES * pages_per_chunk, max_chunks,
                   shared ? ARENA_TABLE_SHARED : 0, &layout) == 0);
    FUZZ_CHECK(arena_new(&world->client, 0, &layout, 0, shared ? "kv" : "", &world->arena) == 0);
    holder = list_first(&world->arena->holders, struct arena_holder, link);
    arena_holder_enter(holder, &world->client);
    list_append(&world->hosting->arenas, &world->arena->device_link);
    if (with_tier) {
        world->hosting->accounts[0].max_bytes = UINT64_MAX;
        FUZZ_CHECK(tier_new(4 * SLAB_BYTES, SLAB_BYTES, &world->hosting->tier) == 0);
        FUZZ_CHECK(tier_space_new(world->hosting->tier, &world->hosting->accounts[0], PAGE_BYTES,
                       &world->arena->space) == 0);
    }
    arena_pool_init(&world->pool, &world->arena->table);
    pool_join(&world->pool, holder->number);
    chunks_map(world);
}

static void world_end(struct world *world)
{
    arena_own_free(&world->pool.table);
    arena_leave(list_first(&world->arena->holders, struct arena_holder, link));
    FUZZ_CHECK(list_empty(&world->hosting->arenas) && list_empty(&world->hosting->closing));
    FUZZ_CHECK(list_empty(&world->hosting->unsent) && list_empty(&world->hosting->wanting));
    FUZZ_CHECK(world->hosting->leaving[0] == 0);
    FUZZ_CHECK(world->client.arena_count == 0 && world->client.arena_chunks == 0);
    FUZZ_CHECK(world->hosting->accounts[0].charged_bytes == 0);
    FUZZ_CHECK(world->hosting->accounts[0].record_bytes == 0);
    (void) hosting_free(world->hosting);
    (void) tdelete(&world->client, &world->broker.clients, id_compare);
    (void) segments_free(world->broker.segments);
    event_base_free(world->broker.base);
}

static void survey_check(struct world *world)
{
    const struct arena_table_header *layout = &world->arena->table.layout;
    struct survey survey = {0};

    survey_begin(&survey);
    while (!survey_turn(&survey, world->hosting))
        ;
    FUZZ_CHECK(survey.count <= layout->max_chunks);
    for (size_t i = 0; i < survey.count; i++) {
        const struct reclaim_chunk *row = &survey.chunks[i];

        FUZZ_CHECK((uint64_t) row->resident + row->free + row->evicted <= layout->pages_per_chunk);
        FUZZ_CHECK(row->pinned <= row->resident && row->recomputable <= row->resident);
        FUZZ_CHECK(row->bytes == layout->chunk_bytes && row->page_bytes == layout->page_bytes);
        FUZZ_CHECK(row->recompute_cost >= 0 && row->recompute_cost <= 4096 * 0x1p64);
        FUZZ_CHECK(survey.rows[i].index < layout->max_chunks);
    }
    survey_done(&survey);
}

/* A page goes to the tier and perhaps comes back, while `word` is what the worker makes of it. */
static void page_move(struct arena_chunk *chunk, uint32_t page, uint64_t word)
{
    uint64_t before = __atomic_load_n(arena_page_word(chunk, page), __ATOMIC_SEQ_CST), sum = word;
    uint32_t number = chunk->index * chunk->arena->table.layout.pages_per_chunk + page;

    if (chunk->pages != NULL && chunk->pages[page].slot != ARENA_NO_SLOT) {
        restore_want(chunk->arena, &number, 1);
        chunk->pages[page].job = ARENA_PAGE_COMES;
        (void) arena_page_swap(chunk, page, before, ARENA_PAGE_RESTORING);
        if (word % 3 == 0)
            *arena_page_word(chunk, page) = word;
        restore_page_done(chunk, page, word % 5 == 0 ? -EIO : 0, word % 7 == 0);
    } else if (arena_slot_take(chunk, page) == TIER_OK) {
        chunk->pages[page].generation = arena_word_generation(before);
        chunk->pages[page].job = ARENA_PAGE_LEAVES;
        (void) arena_page_swap(chunk, page, before, ARENA_PAGE_EVICTING);
        if (word % 3 == 0)
            *arena_page_word(chunk, page) = word;
        evict_page_done(chunk, page, word % 5 == 0 ? NULL : &sum);
    }
    FUZZ_CHECK(chunk->pages == NULL || chunk->pages[page].job == ARENA_PAGE_IDLE);
}

/* The worker writes where it likes. */
static void scribble(struct world *world, uint8_t what, uint32_t target, uint64_t value)
{
    struct arena_table *table = &world->arena->table;
    struct arena_table_page *page = &table->pages[target % table->page_count];
    struct arena_table_chunk *chunk = &table->chunks[target % table->layout.max_chunks];

    switch (what % 7) {
    case 0:
        page->word = value;
        break;
    case 1:
        page->flags = (uint32_t) value;
        page->tokens = page->position = (uint32_t) (value >> 32);
        page->last_use = (uint32_t) value;
        page->parent = (uint32_t) (value >> 8) % (table->page_count + 1);
        page->parent_generation = (uint32_t) (value >> 24) & 3;
        break;
    case 2:
        chunk->state = (uint32_t) value;
        chunk->last_use = (uint32_t) (value >> 32);
        break;
    case 3:
        table->free[target % (table->layout.max_chunks * table->layout.free_words)] = value;
        break;
    case 5:
        if (table->index == NULL)
            break;
        table->index[target % (table->layout.index_buckets * ARENA_BUCKET_SLOTS)] = value;
        table->keys[target % table->page_count].low = value & 7;
        table->keys[target % table->page_count].high = 1;
        break;
    case 4:
        table->counts[target % table->layout.max_chunks] = (uint16_t) value;
        break;
    default:
        ((uint8_t *) table->shared)[target % sizeof(*table->shared)] = (uint8_t) value;
        break;
    }
}

/* Others than this process are gone; what they had is cleared in turns. */
static void holders_forget(struct world *world, uint32_t gone)
{
    struct arena *arena = world->arena;

    if (!arena_table_shared(&arena->table))
        return;
    arena->departed |= gone & ((1u << ARENA_HOLDERS_MAX) - 1) & ~UINT32_C(1);
    if (arena->departed != 0 && !list_linked(&arena->departed_link))
        list_append(&world->hosting->departed, &arena->departed_link);
    arena_forget_turn(world->hosting);
    FUZZ_CHECK(arena->departed == 0 && arena->forgetting == 0);
}

/* The broker, or the library, does what it does. */
static void step(struct world *world, uint8_t what, uint32_t target, uint64_t value)
{
    const struct arena_table_header *layout = &world->arena->table.layout;
    struct arena_chunk *chunk = arena_chunk_find(world->arena, target % layout->max_chunks);

    FUZZ_CHECK(chunk != NULL);
    switch (what % 6) {
    case 0:
        survey_check(world);
        break;
    case 1:
        if (world->hosting->tier != NULL)
            page_move(chunk, (uint32_t) (value >> 16) % layout->pages_per_chunk, value);
        else if (evict_start(chunk, (uint32_t) value & 0xff, UINT32_MAX))
            evict_turn(world->hosting);
        break;
    case 2:
        arena_slots_sweep(chunk);
        world->hosting->drop_budget = (uint32_t) value & 0xff;
        (void) arena_slots_drop(world->arena, true);
        break;
    case 3:
        pages_use(&world->pool, target, value);
        break;
    case 4:
        holders_forget(world, (uint32_t) value);
        break;
    default:
        chunk_use(&world->pool, chunk->index);
        break;
    }
    now_ns += NSEC_PER_SEC / 3;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct world world;

    if (size > 1 && *data == 'O') {
        if (size > 64 && size < TABLE_BYTES_MAX)
            table_sent(data + 1, size - 1);
        return 0;
    }
    if (size < 3)
        return 0;
    world_begin(
        &world, 1 + data[1] % 130U, 1 + data[2] % 8U, (data[0] & 1) != 0, (data[0] & 2) != 0);
    for (size_t at = 3; at + RECORD_BYTES <= size; at += RECORD_BYTES) {
        uint8_t what = data[at];
        uint32_t target = data[at + 1] | (uint32_t) data[at + 2] << 8;
        uint64_t value;

        memcpy(&value, data + at + 3, sizeof(value));
        if ((what & 0x80) == 0)
            scribble(&world, what, target, value);
        else
            step(&world, what, target, value);
    }
    world_end(&world);
    return 0;
}
