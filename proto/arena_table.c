/*
 * The layout is a function of the geometry alone, so that a reader needs to believe nothing that
 * the table says of itself but three numbers, which it bounds.
 */
#include "proto/arena_table.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#define CACHE_LINE 64u
#define WORD_BITS 64u

static_assert(sizeof(struct arena_table_chunk) == 8, "layout of shared memory");
static_assert(sizeof(struct arena_table_page) == 40, "layout of shared memory");
static_assert(sizeof(struct arena_table_key) == 24, "layout of shared memory");
static_assert(ARENA_BUCKET_SLOTS * sizeof(uint64_t) == CACHE_LINE, "a look at one line");
static_assert(ARENA_PAGES_MAX <= UINT32_C(1) << ARENA_SLOT_PAGE_BITS, "a slot names every page");
static_assert(ARENA_SLOT_PAGE_SHIFT + ARENA_SLOT_PAGE_BITS == ARENA_GENERATION_SHIFT, "and more");
static_assert(ARENA_HOLDERS_MAX <= ARENA_PIN_BITS && ARENA_HOLDERS_MAX < ARENA_REF_BITS,
    "the word of a page has a bit for each holder");
static_assert(ARENA_GENERATION_SHIFT + ARENA_GENERATION_BITS == 64, "the word is full");

/* Puts a part of `count` × `size` bytes at `*at`, which moves behind it, to the next cache line. */
static bool part_place(uint64_t *at, uint64_t count, uint64_t size, uint64_t *ret_offset)
{
    uint64_t bytes, end;

    if (__builtin_mul_overflow(count, size, &bytes) || __builtin_add_overflow(*at, bytes, &end))
        return false;
    *ret_offset = *at;
    return round_up(end, CACHE_LINE, at);
}

/* Where the index of a shared arena lies. */
static bool index_place(uint64_t *at, uint64_t pages, struct arena_table_header *header)
{
    uint64_t buckets = 1;

    while (buckets * ARENA_BUCKET_SLOTS < 2 * pages)
        buckets *= 2;
    header->index_buckets = buckets;
    return part_place(at, pages, sizeof(struct arena_table_key), &header->key_offset) &&
           part_place(at, buckets * ARENA_BUCKET_SLOTS, sizeof(uint64_t), &header->index_offset);
}

int arena_table_layout(uint64_t page_bytes, uint64_t chunk_bytes, uint32_t max_chunks,
    uint32_t flags, struct arena_table_header *ret)
{
    struct arena_table_header header = {.magic = ARENA_TABLE_MAGIC, .flags = flags};
    uint64_t per_chunk, at = 0, ignored, size = sizeof(uint64_t);

    if (page_bytes == 0 || page_bytes % 16 != 0 || chunk_bytes == 0 ||
        chunk_bytes % page_bytes != 0 || max_chunks == 0 || max_chunks > ARENA_CHUNKS_MAX ||
        (flags & ~ARENA_TABLE_SHARED) != 0)
        return -EINVAL;
    per_chunk = chunk_bytes / page_bytes;
    if (per_chunk > ARENA_PAGES_PER_CHUNK_MAX || per_chunk * max_chunks > ARENA_PAGES_MAX)
        return -EINVAL;
    if (__builtin_mul_overflow(chunk_bytes, max_chunks, &ignored))
        return -EOVERFLOW;
    header.page_bytes = page_bytes;
    header.chunk_bytes = chunk_bytes;
    header.pages_per_chunk = (uint32_t) per_chunk;
    header.max_chunks = max_chunks;
    header.free_words = (uint32_t) ((per_chunk + WORD_BITS * CACHE_LINE / size - 1) /
                                    (WORD_BITS * CACHE_LINE / size) * (CACHE_LINE / size));
    if (!part_place(&at, 1, sizeof(header), &ignored) ||
        !part_place(&at, max_chunks, sizeof(struct arena_table_chunk), &header.chunk_offset) ||
        !part_place(&at, (uint64_t) max_chunks * header.free_words, size, &header.free_offset) ||
        !part_place(&at, max_chunks, sizeof(uint16_t), &header.count_offset) ||
        !part_place(
            &at, per_chunk * max_chunks, sizeof(struct arena_table_page), &header.page_offset) ||
        ((flags & ARENA_TABLE_SHARED) != 0 && !index_place(&at, per_chunk * max_chunks, &header)))
        return -EOVERFLOW;
    header.table_bytes = at;
    *ret = header;
    return 0;
}

void arena_table_bind(
    void *memory, const struct arena_table_header *layout, struct arena_table *ret)
{
    char *base = memory;

    *ret = (struct arena_table){.layout = *layout};
    ret->shared = memory;
    ret->chunks = (struct arena_table_chunk *) (void *) (base + layout->chunk_offset);
    ret->free = (uint64_t *) (void *) (base + layout->free_offset);
    ret->counts = (uint16_t *) (void *) (base + layout->count_offset);
    ret->pages = (struct arena_table_page *) (void *) (base + layout->page_offset);
    if (layout->index_offset != 0) {
        ret->keys = (struct arena_table_key *) (void *) (base + layout->key_offset);
        ret->index = (uint64_t *) (void *) (base + layout->index_offset);
    }
    ret->page_count = layout->max_chunks * layout->pages_per_chunk;
    ret->reciprocal = ((UINT64_C(1) << 40) + layout->pages_per_chunk - 1) / layout->pages_per_chunk;
}

/* Word `index` of a chunk's free words when every token is in its place. */
static uint64_t free_word_full(const struct arena_table *table, uint32_t index)
{
    uint32_t pages = table->layout.pages_per_chunk, before = index * WORD_BITS;

    if (pages <= before)
        return 0;
    return pages - before >= WORD_BITS ? UINT64_MAX : (UINT64_C(1) << (pages - before)) - 1;
}

void arena_table_format(
    void *memory, const struct arena_table_header *layout, struct arena_table *ret)
{
    arena_table_bind(memory, layout, ret);
    for (uint32_t chunk = 0; chunk < layout->max_chunks; chunk++) {
        uint64_t *words = arena_table_free(ret, chunk);

        for (uint32_t i = 0; i < layout->free_words; i++)
            words[i] = free_word_full(ret, i);
        ret->counts[chunk] = (uint16_t) layout->pages_per_chunk;
    }
    *ret->shared = *layout;
}

int arena_table_open(void *memory, uint64_t bytes, struct arena_table *ret)
{
    const struct arena_table_header *shared = memory;
    struct arena_table_header told, layout;
    int r;

    if (bytes < sizeof(told))
        return -EINVAL;
    memcpy(&told, shared, sizeof(told));
    r = arena_table_layout(told.page_bytes, told.chunk_bytes, told.max_chunks, told.flags, &layout);
    if (r < 0)
        return -EINVAL;
    told.evictions = told.restores = 0;
    if (memcmp(&told, &layout, sizeof(told)) != 0 || layout.table_bytes > bytes)
        return -EINVAL;
    arena_table_bind(memory, &layout, ret);
    return 0;
}

enum arena_vacancy arena_table_chunk_vacant(const struct arena_table *table, uint32_t chunk)
{
    uint32_t per_chunk = table->layout.pages_per_chunk;
    const struct arena_table_page *pages = table->pages + (size_t) chunk * per_chunk;
    const uint64_t *words = arena_table_free(table, chunk);
    enum arena_vacancy vacancy = ARENA_VACANT;

    for (uint32_t i = 0; i < per_chunk; i++) {
        uint64_t token = UINT64_C(1) << (i % WORD_BITS), word;

        /* The token first: a page that is allocated later than this has found the chunk LIVE, and
         * then the token was gone before. */
        bool placed = (__atomic_load_n(&words[i / WORD_BITS], __ATOMIC_SEQ_CST) & token) != 0;

        word = __atomic_load_n(&pages[i].word, __ATOMIC_SEQ_CST);
        if (arena_word_state(word) == ARENA_PAGE_FREE) {
            if (!placed && !arena_table_shared(table))
                vacancy = ARENA_VACANT_SOON;
        } else if (arena_word_state(word) != ARENA_PAGE_EVICTED &&
                   arena_word_state(word) != ARENA_PAGE_LOST) {
            return ARENA_OCCUPIED;
        }
    }
    return vacancy;
}

void arena_table_token_put(const struct arena_table *table, uint32_t page)
{
    uint32_t chunk = arena_table_chunk_of(table, page);
    uint32_t index = page - chunk * table->layout.pages_per_chunk;
    uint64_t *word = &arena_table_free(table, chunk)[index / WORD_BITS];
    uint64_t token = UINT64_C(1) << (index % WORD_BITS);

    if ((__atomic_load_n(word, __ATOMIC_SEQ_CST) & token) != 0)
        return;
    (void) __atomic_fetch_or(word, token, __ATOMIC_SEQ_CST);
    /* A hint: a chunk without any is looked at last. */
    if (__atomic_load_n(&table->counts[chunk], __ATOMIC_RELAXED) == 0)
        __atomic_store_n(&table->counts[chunk], (uint16_t) 1, __ATOMIC_RELAXED);
}

void arena_table_page_forget(const struct arena_table *table, uint32_t page, uint32_t holders)
{
    uint64_t pins = holders & ((1u << ARENA_HOLDERS_MAX) - 1);
    uint64_t gone = pins << ARENA_PIN_SHIFT | (uint64_t) holders << ARENA_REF_SHIFT;
    uint64_t *at = &table->pages[page].word, word = __atomic_load_n(at, __ATOMIC_SEQ_CST), next;

    do {
        next = word;
        if (arena_word_state(word) == ARENA_PAGE_FREE)
            break;
        next &= ~gone;
        if (arena_word_refs(next) == 0)
            next = arena_word_make(ARENA_PAGE_FREE, 0, 0, arena_word_generation(word));
        if (next == word)
            return;
    } while (
        !__atomic_compare_exchange_n(at, &word, next, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
    if (arena_word_state(next) == ARENA_PAGE_FREE)
        arena_table_token_put(table, page);
}
