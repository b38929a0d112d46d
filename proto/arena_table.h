/*
 * Layout of an arena's page table: shared memory between the worker (libgmb) and the broker.
 *
 * A memfd made by the broker and sealed against resizing. Either side may die at any instant between
 * any two instructions, and the worker may be hostile: whatever the broker reads here it copies once,
 * checks, and then uses. docs/arenas.md has the transitions and who makes which.
 *
 *   offset 0        struct arena_table_header   constant after creation
 *   chunk_offset    struct arena_table_chunk    × max_chunks
 *   free_offset     uint64_t                    × max_chunks × free_words: bit set = page is free
 *   count_offset    uint16_t                    × max_chunks: about how many bits are set there
 *   page_offset     struct arena_table_page     × max_chunks × pages_per_chunk
 *
 * All words are accessed by atomics, at least relaxed.
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
    uint32_t free_words; /* 64-bit words of free bits for each chunk */
    uint32_t reserved;
    uint64_t chunk_offset, free_offset, count_offset, page_offset;
};

enum arena_chunk_state {
    ARENA_CHUNK_EMPTY = 0,  /* nothing behind this index */
    ARENA_CHUNK_LIVE = 1,   /* mapped; its free bits may be taken. Set by the worker */
    ARENA_CHUNK_CLOSED = 2, /* the broker holds every free bit. Set by the broker */
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

/* The word of a page. Pins and references saturate into errors, never into their neighbours. */
#define ARENA_STATE_BITS 4
#define ARENA_PIN_SHIFT 4
#define ARENA_PIN_BITS 16
#define ARENA_REF_SHIFT 20
#define ARENA_REF_BITS 20
#define ARENA_GENERATION_SHIFT 40 /* counts allocations of the page: tells a successor apart */
#define ARENA_GENERATION_BITS 24

#define ARENA_PAGE_RECOMPUTABLE 1u /* flag: may be dropped instead of evicted */

struct arena_table_page {
    uint64_t word;
    uint32_t last_use; /* as in the chunk */
    uint32_t flags;    /* ARENA_PAGE_RECOMPUTABLE */
    uint32_t
        position;    /* of its first token in the sequence: what recomputing costs grows with it */
    uint32_t tokens; /* that it holds; 0: unknown */
    uint32_t parent; /* page that it continues; UINT32_MAX: none */
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

/*
 * Computes the header of a table for the given geometry: -EINVAL when page_bytes isn't a multiple of 16
 * or doesn't divide chunk_bytes, or a bound above is passed; -EOVERFLOW when sizes don't fit.
 */
int arena_table_layout(uint64_t page_bytes, uint64_t chunk_bytes, uint32_t max_chunks,
    struct arena_table_header *ret) _must_check_;
