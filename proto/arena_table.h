/*
 * Layout of an arena's page table: shared memory between the worker (libgmb) and the broker.
 *
 * A memfd made by the broker and sealed against resizing. Either side may die at any instant
 * between any two instructions, and the worker may be hostile: whatever the broker reads here it
 * copies once, checks, and then uses. docs/arenas.md has the transitions and who makes which.
 *
 *   offset 0        struct arena_table_header   constant after creation
 *   chunk_offset    struct arena_table_chunk    × max_chunks
 *   free_offset     uint64_t                    × max_chunks × free_words: a token for each free
 * page count_offset    uint16_t                    × max_chunks: about how many tokens are there
 *   page_offset     struct arena_table_page     × max_chunks × pages_per_chunk
 *
 * All words are accessed by atomics, at least relaxed; those of tokens and of chunks' states are
 * sequentially consistent.
 *
 * Tokens. Each FREE page has exactly one token: its bit in the free words is set, or a thread of
 * the worker has just taken it and not yet allocated the page, or just freed the page and not yet
 * put it there. A page in another state has none. The table starts with every page FREE and every
 * token in its place, and tokens stay there while a chunk is closed, empty and filled again.
 *
 * Closing. A thread allocates only where the chunk is LIVE after it has taken a token; else it puts
 * the token back. So whoever sets a chunk's state to CLOSED or RETURNING (from LIVE, by
 * compare-and-swap) and then sees no page but EVICTED, LOST, and FREE ones with their token in
 * place, knows that nothing is or will be allocated there: arena_table_chunk_vacant(). A token that
 * is missing for the moment is looked for again later. Setting the state back to LIVE undoes it.
 */
#pragma once

#include "base/macro.h"

#define ARENA_TABLE_MAGIC UINT64_C(0x31414e4552424d47) /* "GMBRENA1" */
#define ARENA_PAGES_PER_CHUNK_MAX 4096u
#define ARENA_CHUNKS_MAX 65536u
#define ARENA_PAGES_MAX (UINT32_C(1) << 24)

struct arena_table_header {
    uint64_t magic;
    uint64_t table_bytes;
    uint64_t page_bytes;
    uint64_t chunk_bytes;
    uint32_t pages_per_chunk;
    uint32_t max_chunks;
    uint32_t free_words; /* for each chunk: whole cache lines, so that threads stay apart */
    uint32_t reserved;
    uint64_t chunk_offset, free_offset, count_offset, page_offset;
    /* Not constant: pages that the broker has evicted and restored so far, for statistics alone. */
    uint64_t evictions, restores;
};

enum arena_chunk_state {
    ARENA_CHUNK_EMPTY = 0,     /* nothing mapped behind this index. Set by the worker */
    ARENA_CHUNK_LIVE = 1,      /* mapped; pages may be allocated. Set by the worker */
    ARENA_CHUNK_CLOSED = 2,    /* the broker empties it. Set by the broker, from LIVE */
    ARENA_CHUNK_RETURNING = 3, /* the worker gives it back. Set by the worker, from LIVE */
    ARENA_CHUNK_STATE_MAX
};

struct arena_table_chunk {
    uint32_t state;
    uint32_t last_use; /* of its pages, coarse: the worker's clock in 1/16 s */
};

enum arena_page_state {
    ARENA_PAGE_FREE = 0,
    ARENA_PAGE_RESIDENT = 1,
    ARENA_PAGE_EVICTING = 2,
    ARENA_PAGE_EVICTED = 3,
    ARENA_PAGE_RESTORING = 4,
    ARENA_PAGE_LOST = 5,
    ARENA_PAGE_STATE_MAX
};

/*
 * The word of a page. Pins and references saturate into errors, never into their neighbours. A page
 * that isn't FREE and has no reference is about to be freed by a call that frees several.
 */
#define ARENA_STATE_BITS 4
#define ARENA_PIN_SHIFT 4
#define ARENA_PIN_BITS 16
#define ARENA_REF_SHIFT 20
#define ARENA_REF_BITS 20
#define ARENA_GENERATION_SHIFT 40 /* counts allocations of the page: tells a successor apart */
#define ARENA_GENERATION_BITS 24

#define ARENA_PAGE_RECOMPUTABLE 1u /* flag: may be dropped instead of evicted */
#define ARENA_PAGE_HINTED 2u       /* flag: position, tokens, parent and prefix were set */

struct arena_table_page {
    uint64_t word;
    uint32_t last_use; /* as in the chunk */
    uint32_t flags;    /* ARENA_PAGE_* */
    /* Of an earlier page of that number, or zero, unless flags say HINTED. */
    uint32_t position; /* of its first token in the sequence: recomputing costs more with it */
    uint32_t tokens;   /* that it holds; 0: unknown */
    uint32_t parent;   /* page that it continues; UINT32_MAX: none */
    uint32_t reserved;
    uint64_t prefix; /* hash of everything up to its end; 0: none */
};

static inline enum arena_page_state arena_word_state(uint64_t word)
{
    return (enum arena_page_state)(word & ((1u << ARENA_STATE_BITS) - 1));
}

static inline uint32_t arena_word_pins(uint64_t word)
{
    return (uint32_t) (word >> ARENA_PIN_SHIFT) & ((1u << ARENA_PIN_BITS) - 1);
}

static inline uint32_t arena_word_refs(uint64_t word)
{
    return (uint32_t) (word >> ARENA_REF_SHIFT) & ((1u << ARENA_REF_BITS) - 1);
}

static inline uint32_t arena_word_generation(uint64_t word)
{
    return (uint32_t) (word >> ARENA_GENERATION_SHIFT);
}

static inline uint64_t arena_word_with_state(uint64_t word, enum arena_page_state state)
{
    return (word & ~(uint64_t) ((1u << ARENA_STATE_BITS) - 1)) | state;
}

static inline uint64_t arena_word_make(
    enum arena_page_state state, uint32_t pins, uint32_t refs, uint32_t generation)
{
    return (uint64_t) state | (uint64_t) pins << ARENA_PIN_SHIFT |
           (uint64_t) refs << ARENA_REF_SHIFT | (uint64_t) generation << ARENA_GENERATION_SHIFT;
}

/*
 * Computes the header of a table for the given geometry: -EINVAL when page_bytes isn't a multiple
 * of 16 or doesn't divide chunk_bytes, or a bound above is passed; -EOVERFLOW when sizes don't fit.
 */
int arena_table_layout(uint64_t page_bytes, uint64_t chunk_bytes, uint32_t max_chunks,
    struct arena_table_header *ret) _must_check_;

/* A mapped table: where its parts lie, and a private copy of what says so. */
struct arena_table {
    struct arena_table_header layout; /* its counters mean nothing */
    struct arena_table_header *shared;
    struct arena_table_chunk *chunks;
    uint64_t *free;
    uint16_t *counts;
    struct arena_table_page *pages;
    uint32_t page_count;
    uint64_t reciprocal; /* of pages_per_chunk, × 2^40: a page's chunk without a division */
};

/*
 * Writes a new table into `memory`: layout->table_bytes that are all zero and aligned for uint64_t.
 * Every chunk is EMPTY, every page FREE.
 */
void arena_table_format(
    void *memory, const struct arena_table_header *layout, struct arena_table *ret);

/*
 * Looks at a table that somebody else has made: -EINVAL unless it is exactly what
 * arena_table_layout() says for its geometry and fits in `bytes`.
 */
int arena_table_open(void *memory, uint64_t bytes, struct arena_table *ret) _must_check_;

enum arena_vacancy {
    ARENA_VACANT = 0,
    ARENA_VACANT_SOON = 1, /* but for tokens that are in some thread's hands: look again */
    ARENA_OCCUPIED = 2,    /* a page is RESIDENT, EVICTING or RESTORING (or makes no sense) */
    ARENA_VACANCY_MAX
};

/* What a chunk that is CLOSED or RETURNING holds; its state was set before, in this thread's order.
 */
enum arena_vacancy arena_table_chunk_vacant(const struct arena_table *table, uint32_t chunk);

/* Exact for every page below ARENA_PAGES_MAX: the error is below 2^24 / 2^40, what it may be is 1 /
 * 2^12. */
static inline uint32_t arena_table_chunk_of(const struct arena_table *table, uint32_t page)
{
    return (uint32_t) (page * table->reciprocal >> 40);
}

static inline uint64_t *arena_table_free(const struct arena_table *table, uint32_t chunk)
{
    return table->free + (size_t) chunk * table->layout.free_words;
}
