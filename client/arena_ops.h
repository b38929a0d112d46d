/*
 * What can be done to the pages of an arena by whoever maps its table: pure functions of shared
 * memory. No system call, no lock, no allocation, any number of threads; a thread that is stopped
 * or dies anywhere in them holds up nobody (in a shared arena, threads of its own process that want
 * the same page), and what it had in hand is one page (or the batch) that only the end of the arena
 * brings back, or in a shared arena the broker, when its process is dead.
 *
 * proto/arena_table.h has the layout and the rule of tokens, docs/arenas.md the transitions.
 *
 * Each takes n pages and does all or nothing. Two calls that misuse the same pages at the same time
 * may each see the other's half.
 */
#pragma once

#include <stdatomic.h>

#include "proto/arena_table.h"

enum arena_op {
    ARENA_OP_OK = 0,
    ARENA_OP_WAITING = 1, /* pin: done, but some pages aren't resident; ready: they aren't yet */
    ARENA_OP_LOST = 2,    /* pin: nothing was done, since some pages are lost; ready: some are */
    ARENA_OP_SHORT = 3,   /* allocation: there aren't so many free pages */
    /* A page that isn't allocated, a count past its range, the last reference to a pinned page.
     * Nothing was done. Built with GMB_DEBUG_ASSERT the process is aborted instead. */
    ARENA_OP_MISUSE = 4,
    ARENA_OP_MAX
};

/* `now` is the coarse clock of last_use. */
enum arena_op arena_pages_ref(const struct arena_table *table, size_t n, const uint32_t *pages);
enum arena_op arena_pages_unref(const struct arena_table *table, size_t n, const uint32_t *pages);
enum arena_op arena_pages_pin(
    const struct arena_table *table, size_t n, const uint32_t *pages, uint32_t now);
enum arena_op arena_pages_unpin(const struct arena_table *table, size_t n, const uint32_t *pages);
enum arena_op arena_pages_touch(
    const struct arena_table *table, size_t n, const uint32_t *pages, uint32_t now);
/* MISUSE when one isn't pinned. */
enum arena_op arena_pages_ready(const struct arena_table *table, size_t n, const uint32_t *pages);

/* Sets what the policies should know: flags, position, tokens, parent and prefix of `hint`. */
enum arena_op arena_page_set_hint(
    const struct arena_table *table, uint32_t page, const struct arena_table_page *hint);

/* Both exist, and `to` is the caller's alone. */
void arena_page_copy_hint(const struct arena_table *table, uint32_t from, uint32_t to);

/* The page continues `parent`, as that is now; both exist. */
void arena_page_set_parent(const struct arena_table *table, uint32_t page, uint32_t parent);
/* The page that one which exists continues; false when it isn't known, or another one by now. */
bool arena_page_parent(const struct arena_table *table, uint32_t page, uint32_t *ret_parent);
/* The page continues `next`, as that is now, unless it continues another than `parent` by now. */
void arena_page_replace_parent(
    const struct arena_table *table, uint32_t page, uint32_t parent, uint32_t next);
/* Whether the page is allocated, and referenced or also pinned by this process. */
bool arena_page_held(const struct arena_table *table, uint32_t page, bool pinned);
/* Whether an allocated page has to be asked for: it is EVICTED, or not mapped in this process. */
bool arena_page_away(const struct arena_table *table, uint32_t page);
/* Whether its bytes may move to another page: nobody pins it, and one reference is all there is. */
bool arena_page_movable(const struct arena_table *table, uint32_t page);

/* ---- allocation ---- */

#define ARENA_SLOTS 16

/*
 * Where threads allocate from: each thread prefers the chunk of its slot, so that threads stay out
 * of each other's cache lines. A slot holds nothing: its chunk can be emptied and closed at any
 * time.
 */
struct arena_pool {
    struct arena_table table;
    uint32_t top; /* chunks that were ever LIVE have lower indices */
    struct {
        _Alignas(64) uint32_t chunk;
        uint32_t word; /* of its free words: where a token was found last */
    } slots[ARENA_SLOTS];
};

static inline uint32_t arena_pool_top(const struct arena_pool *pool)
{
    return __atomic_load_n(&pool->top, __ATOMIC_RELAXED);
}

/* `table` must be whole. */
void arena_pool_init(struct arena_pool *pool, const struct arena_table *table);

/* Allocates n pages: one reference each, no pin, no hints. From the fullest chunks. */
enum arena_op arena_pages_alloc(
    struct arena_pool *pool, size_t n, uint32_t *ret_pages, uint32_t now);
/* The same from one chunk alone. */
enum arena_op arena_chunk_alloc(
    struct arena_pool *pool, uint32_t chunk, size_t n, uint32_t *ret_pages, uint32_t now);

/* Puts back the token of a page that has just become FREE. */
void arena_token_put(const struct arena_table *table, uint32_t page);

/* Tokens in place: exact if nobody allocates or frees there. */
uint32_t arena_chunk_free(const struct arena_table *table, uint32_t chunk);

/* Free pages of all LIVE chunks, as of a moment for each chunk. */
uint64_t arena_pool_free(const struct arena_pool *pool);

/* ---- chunks; by one thread at a time for each chunk, except where the broker does the same ----
 */

/* EMPTY → LIVE, for a chunk that is mapped. In a shared arena another may have done it, or have
 * closed it meanwhile: then it stays as it is. */
void arena_chunk_open(struct arena_pool *pool, uint32_t chunk);
/* LIVE → RETURNING → VACANT, if no page is used. */
bool arena_chunk_close_vacant(struct arena_pool *pool, uint32_t chunk);
/* CLOSED or VACANT → EMPTY, once it is unmapped. In a shared arena the broker does it, when it is
 * unmapped everywhere. */
void arena_chunk_vacate(struct arena_pool *pool, uint32_t chunk);
/* RETURNING → LIVE, VACANT → LIVE: it stays mapped. The latter in no shared arena, where others may
 * have unmapped it. */
void arena_chunk_reopen(struct arena_pool *pool, uint32_t chunk);

static inline enum arena_chunk_state arena_chunk_state(
    const struct arena_table *table, uint32_t chunk)
{
    return (enum arena_chunk_state) __atomic_load_n(&table->chunks[chunk].state, __ATOMIC_SEQ_CST);
}
