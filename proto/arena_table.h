/*
 * Layout of an arena's page table: shared memory between the worker (libgmb) and the broker, and,
 * where an arena is shared, the other workers of the tenant that hold it.
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
 *   key_offset      struct arena_table_key      × as many          of a shared arena alone
 *   index_offset    uint64_t × ARENA_BUCKET_SLOTS × index_buckets  of a shared arena alone
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
 *
 * Shared arenas (ARENA_TABLE_SHARED). A process may die with a token in hand while others go on, so
 * that tokens are hints there: a page is allocated by compare-and-swap of its word, and whoever did
 * that looks once more whether the chunk is LIVE, else frees it again. So the words alone say
 * whether a closed chunk is vacant. The fields for pins and references hold a bit for each holder
 * instead of a count: how often it has pinned or referenced a page, each holder counts for itself.
 * What a dead holder had is then exactly its bits, whenever it died.
 */
#pragma once

#include "base/macro.h"

#define ARENA_TABLE_MAGIC UINT64_C(0x31414e4552424d47) /* "GMBRENA1" */
#define ARENA_PAGES_PER_CHUNK_MAX 4096u
#define ARENA_CHUNKS_MAX 65536u
#define ARENA_PAGES_MAX (UINT32_C(1) << 24)

#define ARENA_TABLE_SHARED 1u /* several processes may hold the arena */

struct arena_table_header {
    uint64_t magic;
    uint64_t table_bytes;
    uint64_t page_bytes;
    uint64_t chunk_bytes;
    uint32_t pages_per_chunk;
    uint32_t max_chunks;
    uint32_t free_words; /* for each chunk: whole cache lines, so that threads stay apart */
    uint32_t flags;      /* ARENA_TABLE_* */
    uint64_t chunk_offset, free_offset, count_offset, page_offset;
    uint64_t key_offset, index_offset; /* 0: not shared */
    uint64_t index_buckets;            /* a power of two; two slots for each page at least */
    /* Not constant: pages that the broker has evicted and restored so far, for statistics alone. */
    uint64_t evictions, restores;
};

enum arena_chunk_state {
    /* Nothing mapped behind this index. Set by the worker, in a shared arena by the broker. */
    ARENA_CHUNK_EMPTY = 0,
    ARENA_CHUNK_LIVE = 1,   /* mapped; pages may be allocated. Set by the worker, from EMPTY */
    ARENA_CHUNK_CLOSED = 2, /* the broker empties it. Set by the broker, from LIVE */
    /* A worker looks whether it is vacant. Set by it, from LIVE. In a shared arena the broker sets
     * it LIVE again when a holder dies. */
    ARENA_CHUNK_RETURNING = 3,
    ARENA_CHUNK_VACANT = 4, /* it is: workers give it back. Set by one, from RETURNING */
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
 * that isn't FREE and has no reference is about to be freed by a call that frees several. In a
 * shared arena both fields are sets of holders, and there is always one with a reference.
 */
#define ARENA_STATE_BITS 4
#define ARENA_PIN_SHIFT 4
#define ARENA_PIN_BITS 16
#define ARENA_REF_SHIFT 20
#define ARENA_REF_BITS 20
#define ARENA_GENERATION_SHIFT 40 /* counts allocations of the page: tells a successor apart */
#define ARENA_GENERATION_BITS 24
/* Numbers of the holders of a shared arena are below it. */
#define ARENA_HOLDERS_MAX 16u
/* Behind them in the references alone: the index of prefixes. A page that it has is published. */
#define ARENA_HOLDER_INDEX 16u

#define ARENA_PAGE_RECOMPUTABLE 1u /* flag: may be dropped instead of evicted */
#define ARENA_PAGE_HINTED 2u       /* flag: position, tokens, parent and prefix were set */
#define ARENA_PAGE_LINKED 4u       /* flag: parent and parent_generation were set */

struct arena_table_page {
    uint64_t word;
    uint32_t last_use; /* as in the chunk */
    uint32_t flags;    /* ARENA_PAGE_* */
    /* Of an earlier page of that number, or zero, unless flags say HINTED. */
    uint32_t position; /* of its first token in the sequence: recomputing costs more with it */
    uint32_t tokens;   /* that it holds; 0: unknown */
    uint32_t parent;   /* page that it continues; UINT32_MAX: none */
    uint32_t parent_generation; /* of that page's word */
    uint64_t prefix;            /* hash of everything up to its end; 0: none */
};

/* What a page of a shared arena is published as, while the index has it. */
struct arena_table_key {
    uint64_t low, high;
    uint32_t depth; /* pages before it in its sequence */
    uint32_t reserved;
};

/*
 * A slot of the index: 0, or a page and the generation in which it was published there. One that
 * names a FREE page, or another generation, is stale and anybody's to take. A page's key decides
 * which two buckets its slot may stand in, and the tag saves most looks at pages.
 */
#define ARENA_BUCKET_SLOTS 8u /* one cache line */
#define ARENA_SLOT_USED UINT64_C(1)
#define ARENA_SLOT_TAG_SHIFT 1
#define ARENA_SLOT_TAG_BITS 15
#define ARENA_SLOT_PAGE_SHIFT 16
#define ARENA_SLOT_PAGE_BITS 24

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
 * of 16 or doesn't divide chunk_bytes, a bound above is passed, or a flag isn't known; -EOVERFLOW
 * when sizes don't fit.
 */
int arena_table_layout(uint64_t page_bytes, uint64_t chunk_bytes, uint32_t max_chunks,
    uint32_t flags, struct arena_table_header *ret) _must_check_;

/* One process's counts of pins and references in a shared arena: client/arena_own.h. */
struct arena_own;

/* A mapped table: where its parts lie, and a private copy of what says so. */
struct arena_table {
    struct arena_table_header layout; /* its counters mean nothing */
    struct arena_table_header *shared;
    struct arena_table_chunk *chunks;
    uint64_t *free;
    uint16_t *counts;
    struct arena_table_page *pages;
    struct arena_table_key *keys; /* NULL: not shared */
    uint64_t *index;              /* NULL: not shared */
    uint32_t page_count;
    uint64_t reciprocal;   /* of pages_per_chunk, × 2^40: a page's chunk without a division */
    struct arena_own *own; /* of a process that holds a shared arena; else NULL */
};

/* A table of this layout that was formatted before; nothing of it is read. */
void arena_table_bind(
    void *memory, const struct arena_table_header *layout, struct arena_table *ret);
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

/*
 * What a chunk that is CLOSED, RETURNING or VACANT holds; its state was set before, in this
 * thread's order.
 */
enum arena_vacancy arena_table_chunk_vacant(const struct arena_table *table, uint32_t chunk);

/*
 * Of a shared arena: the holders in the set (a bit each, the index among them) are gone. What they
 * had of the page is no longer counted, and it is FREE if nobody else has a reference; a FREE page
 * whose token is lost gets it back. May be done at any time, and again.
 */
void arena_table_page_forget(const struct arena_table *table, uint32_t page, uint32_t holders);

/* Of a shared arena: the token of a FREE page is put in its place if it isn't there. */
void arena_table_token_put(const struct arena_table *table, uint32_t page);

/* Exact for every page below ARENA_PAGES_MAX: the error is below 2^24 / 2^40, what it may be is 1 /
 * 2^12. */
static inline uint32_t arena_table_chunk_of(const struct arena_table *table, uint32_t page)
{
    return (uint32_t) (page * table->reciprocal >> 40);
}

static inline bool arena_table_shared(const struct arena_table *table)
{
    return (table->layout.flags & ARENA_TABLE_SHARED) != 0;
}

static inline uint64_t *arena_table_free(const struct arena_table *table, uint32_t chunk)
{
    return table->free + (size_t) chunk * table->layout.free_words;
}
