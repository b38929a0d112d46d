/* A page table of the test's own, without broker: private memory, formatted as the broker does. */
#pragma once

#include <check.h>
#include <string.h>
#include <sys/mman.h>

#include "client/arena_ops.h"
#include "client/arena_own.h"

#define BED_PAGE_BYTES 4096u

struct bed {
    struct arena_pool pool;
    const struct arena_table *table;
    void *memory;
    uint64_t bytes;
};

static inline void bed_make(
    struct bed *bed, uint32_t pages_per_chunk, uint32_t chunks, uint32_t flags)
{
    struct arena_table_header layout;
    struct arena_table table;

    ck_assert_int_eq(arena_table_layout(BED_PAGE_BYTES, (uint64_t) BED_PAGE_BYTES * pages_per_chunk,
                         chunks, flags, &layout),
        0);
    bed->bytes = layout.table_bytes;
    bed->memory =
        mmap(NULL, layout.table_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(bed->memory, MAP_FAILED);
    arena_table_format(bed->memory, &layout, &table);
    arena_pool_init(&bed->pool, &table);
    bed->table = &bed->pool.table;
}

static inline void bed_begin(struct bed *bed, uint32_t pages_per_chunk, uint32_t chunks)
{
    bed_make(bed, pages_per_chunk, chunks, 0);
}

/* Another process that holds the arena, as holder `number`: it has mapped every chunk. */
static inline void bed_join(struct bed *bed, const struct bed *first, uint32_t number)
{
    struct arena_table table;

    *bed = *first;
    ck_assert_int_eq(arena_table_open(first->memory, first->bytes, &table), 0);
    arena_pool_init(&bed->pool, &table);
    ck_assert_int_eq(arena_own_new(&bed->pool.table, number), 0);
    bed->table = &bed->pool.table;
    for (uint32_t chunk = 0; chunk < table.layout.max_chunks; chunk++) {
        arena_own_set_mapped(bed->table, chunk, true);
        arena_chunk_open(&bed->pool, chunk);
    }
}

/* It dies, and the broker has looked at every page. */
static inline void bed_die(struct bed *bed)
{
    uint32_t number = bed->table->own->number;

    arena_own_free(&bed->pool.table);
    for (uint32_t page = 0; page < bed->table->page_count; page++)
        arena_table_page_forget(bed->table, page, 1u << number);
}

static inline void bed_open_all(struct bed *bed)
{
    for (uint32_t chunk = 0; chunk < bed->table->layout.max_chunks; chunk++)
        arena_chunk_open(&bed->pool, chunk);
}

static inline void bed_end(struct bed *bed)
{
    ck_assert_int_eq(munmap(bed->memory, bed->bytes), 0);
}

static inline uint64_t bed_word(const struct bed *bed, uint32_t page)
{
    return __atomic_load_n(&bed->table->pages[page].word, __ATOMIC_SEQ_CST);
}

static inline void bed_set(struct bed *bed, uint32_t page, uint64_t word)
{
    __atomic_store_n(&bed->table->pages[page].word, word, __ATOMIC_SEQ_CST);
}

static inline bool bed_token(const struct bed *bed, uint32_t page)
{
    uint32_t chunk = arena_table_chunk_of(bed->table, page);
    uint32_t index = page - chunk * bed->table->layout.pages_per_chunk;

    return (arena_table_free(bed->table, chunk)[index / 64] >> (index % 64) & 1) != 0;
}

static inline void bed_chunk_set(struct bed *bed, uint32_t chunk, enum arena_chunk_state state)
{
    __atomic_store_n(&bed->table->chunks[chunk].state, (uint32_t) state, __ATOMIC_SEQ_CST);
}

/* Each FREE page has one token in its place and no count; no other page has one. */
static inline void bed_check(const struct bed *bed)
{
    uint32_t wrong = 0;

    for (uint32_t page = 0; page < bed->table->page_count; page++) {
        uint64_t word = bed_word(bed, page);
        bool free = arena_word_state(word) == ARENA_PAGE_FREE;
        bool counted = arena_word_pins(word) > 0 || arena_word_refs(word) > 0;

        wrong += bed_token(bed, page) != free || (free && counted);
    }
    ck_assert_uint_eq(wrong, 0);
}
