/* See arena_prefix.h. */
#include "client/arena_prefix.h"

#include <errno.h>

#include "client/arena_own.h"

#define INDEX_REF (UINT64_C(1) << (ARENA_REF_SHIFT + ARENA_HOLDER_INDEX))

/* ------------------------------------------------------------------ slots */

/* Keys are hashes, but whose? Mixed as in MurmurHash3's finalizer (Appleby, public domain). */
static uint64_t key_mix(const struct arena_prefix_key *key)
{
    uint64_t h = key->low ^ (key->high << 29 | key->high >> 35);

    h = (h ^ h >> 33) * UINT64_C(0xff51afd7ed558ccd);
    h = (h ^ h >> 33) * UINT64_C(0xc4ceb9fe1a85ec53);
    return h ^ h >> 33;
}

/* Where a key's slot may stand: two buckets, and the tag that it has there. */
struct place {
    uint64_t *buckets[2];
    uint64_t tag;
};

static struct place place_of(const struct arena_table *table, const struct arena_prefix_key *key)
{
    uint64_t h = key_mix(key), mask = table->layout.index_buckets - 1;
    uint64_t tag = h >> (64 - ARENA_SLOT_TAG_BITS);
    uint64_t first = h & mask, second = (h >> 24 ^ (tag + 1) * UINT64_C(0x5bd1e995)) & mask;

    return (struct place){
        .buckets = {table->index + first * ARENA_BUCKET_SLOTS,
            table->index + second * ARENA_BUCKET_SLOTS},
        .tag = tag,
    };
}

static uint64_t slot_make(uint32_t page, uint32_t generation, uint64_t tag)
{
    return ARENA_SLOT_USED | tag << ARENA_SLOT_TAG_SHIFT |
           (uint64_t) page << ARENA_SLOT_PAGE_SHIFT |
           (uint64_t) generation << ARENA_GENERATION_SHIFT;
}

static uint32_t slot_page(uint64_t slot)
{
    return (uint32_t) (slot >> ARENA_SLOT_PAGE_SHIFT) & ((1u << ARENA_SLOT_PAGE_BITS) - 1);
}

static uint64_t slot_tag(uint64_t slot)
{
    return slot >> ARENA_SLOT_TAG_SHIFT & ((1u << ARENA_SLOT_TAG_BITS) - 1);
}

static bool slot_swap(uint64_t *at, uint64_t slot, uint64_t next)
{
    return __atomic_compare_exchange_n(at, &slot, next, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
}

static uint64_t word_load(const struct arena_table *table, uint32_t page)
{
    return __atomic_load_n(&table->pages[page].word, __ATOMIC_SEQ_CST);
}

/* The page that it names is gone, or never was one. */
static bool slot_stale(const struct arena_table *table, uint64_t slot)
{
    uint64_t word;

    if (slot_page(slot) >= table->page_count)
        return true;
    word = word_load(table, slot_page(slot));
    return arena_word_state(word) == ARENA_PAGE_FREE ||
           arena_word_generation(word) != arena_word_generation(slot);
}

static struct arena_prefix_key key_load(const struct arena_table *table, uint32_t page)
{
    return (struct arena_prefix_key){
        .low = __atomic_load_n(&table->keys[page].low, __ATOMIC_RELAXED),
        .high = __atomic_load_n(&table->keys[page].high, __ATOMIC_RELAXED),
    };
}

static bool key_is(
    const struct arena_table *table, uint32_t page, const struct arena_prefix_key *key)
{
    struct arena_prefix_key found = key_load(table, page);

    return found.low == key->low && found.high == key->high;
}

/* Whether the page is what the slot says, published under the key. */
static bool page_is(const struct arena_table *table, uint32_t page, uint64_t slot,
    const struct arena_prefix_key *key)
{
    uint64_t word = word_load(table, page);

    return arena_word_generation(word) == arena_word_generation(slot) &&
           arena_word_state(word) != ARENA_PAGE_FREE && (word & INDEX_REF) != 0 &&
           key_is(table, page, key);
}

/* The slot of a page that is published under the key; 0 when there is none. */
static uint64_t slot_find(const struct arena_table *table, const struct arena_prefix_key *key)
{
    struct place place = place_of(table, key);

    for (unsigned i = 0; i < 2 * ARENA_BUCKET_SLOTS; i++) {
        uint64_t *at = &place.buckets[i / ARENA_BUCKET_SLOTS][i % ARENA_BUCKET_SLOTS];
        uint64_t slot = __atomic_load_n(at, __ATOMIC_ACQUIRE);

        if ((slot & ARENA_SLOT_USED) == 0 || slot_tag(slot) != place.tag ||
            slot_page(slot) >= table->page_count)
            continue;
        if (page_is(table, slot_page(slot), slot, key))
            return slot;
    }
    return 0;
}

static bool slot_insert(const struct arena_table *table, const struct arena_prefix_key *key,
    uint32_t page, uint32_t generation)
{
    struct place place = place_of(table, key);

    for (unsigned i = 0; i < 2 * ARENA_BUCKET_SLOTS; i++) {
        uint64_t *at = &place.buckets[i / ARENA_BUCKET_SLOTS][i % ARENA_BUCKET_SLOTS];
        uint64_t slot = __atomic_load_n(at, __ATOMIC_ACQUIRE);

        if (((slot & ARENA_SLOT_USED) == 0 || slot_stale(table, slot)) &&
            slot_swap(at, slot, slot_make(page, generation, place.tag)))
            return true;
    }
    return false;
}

static void slot_remove(const struct arena_table *table, const struct arena_prefix_key *key,
    uint32_t page, uint32_t generation)
{
    struct place place = place_of(table, key);
    uint64_t slot = slot_make(page, generation, place.tag);

    for (unsigned i = 0; i < 2 * ARENA_BUCKET_SLOTS; i++) {
        uint64_t *at = &place.buckets[i / ARENA_BUCKET_SLOTS][i % ARENA_BUCKET_SLOTS];

        if (__atomic_load_n(at, __ATOMIC_ACQUIRE) == slot)
            (void) slot_swap(at, slot, 0);
    }
}

/* ------------------------------------------------------------------ publish */

static void key_store(const struct arena_table *table, uint32_t page,
    const struct arena_prefix_key *key, uint64_t parent_slot)
{
    struct arena_table_key *at = &table->keys[page];
    uint32_t depth = 0;

    if (parent_slot != 0) {
        depth = __atomic_load_n(&table->keys[slot_page(parent_slot)].depth, __ATOMIC_RELAXED) + 1;
        arena_page_set_parent(table, page, slot_page(parent_slot));
    }
    __atomic_store_n(&at->low, key->low, __ATOMIC_RELAXED);
    __atomic_store_n(&at->high, key->high, __ATOMIC_RELAXED);
    __atomic_store_n(&at->depth, depth, __ATOMIC_RELAXED);
}

enum arena_prefix arena_prefix_publish(const struct arena_table *table, uint32_t page,
    const struct arena_prefix_key *key, const struct arena_prefix_key *parent, uint32_t *ret_page)
{
    uint64_t there, above = 0, word;

    if (!arena_page_held(table, page, false))
        return ARENA_PREFIX_MISUSE;
    word = word_load(table, page);
    if ((word & INDEX_REF) != 0 || arena_word_state(word) == ARENA_PAGE_LOST)
        return ARENA_PREFIX_MISUSE;
    there = slot_find(table, key);
    if (there != 0) {
        *ret_page = slot_page(there);
        return ARENA_PREFIX_THERE;
    }
    if (parent != NULL) {
        above = slot_find(table, parent);
        if (above == 0)
            return ARENA_PREFIX_NO_PARENT;
    }
    key_store(table, page, key, above);
    if (!slot_insert(table, key, page, arena_word_generation(word)))
        return ARENA_PREFIX_FULL;
    (void) __atomic_fetch_or(&table->pages[page].word, INDEX_REF, __ATOMIC_SEQ_CST);
    return ARENA_PREFIX_OK;
}

/* The index lets go of a page that the caller references. False when it hadn't got it. */
static bool page_unpublish(const struct arena_table *table, uint32_t page)
{
    struct arena_prefix_key key = key_load(table, page);
    uint64_t word = __atomic_fetch_and(&table->pages[page].word, ~INDEX_REF, __ATOMIC_SEQ_CST);

    if ((word & INDEX_REF) == 0)
        return false;
    slot_remove(table, &key, page, arena_word_generation(word));
    return true;
}

static bool page_published(const struct arena_table *table, uint32_t page)
{
    return arena_page_held(table, page, false) && (word_load(table, page) & INDEX_REF) != 0;
}

enum arena_prefix arena_prefix_unpublish(
    const struct arena_table *table, size_t n, const uint32_t *pages)
{
    for (size_t i = 0; i < n; i++) {
        if (!page_published(table, pages[i]))
            return ARENA_PREFIX_MISUSE;
    }
    for (size_t i = 0; i < n; i++)
        (void) page_unpublish(table, pages[i]);
    return ARENA_PREFIX_OK;
}

/* ------------------------------------------------------------------ lookup */

/* References the page that is published under the key. What was looked at first may be another page
 * by the time it is referenced: so it is looked at once more. */
static bool key_lookup(
    const struct arena_table *table, const struct arena_prefix_key *key, uint32_t *ret_page)
{
    uint64_t slot = slot_find(table, key);
    uint32_t page = slot_page(slot);

    if (slot == 0 || !arena_own_ref(table, page))
        return false;
    if (page_is(table, page, slot, key)) {
        if (arena_word_state(word_load(table, page)) != ARENA_PAGE_LOST) {
            *ret_page = page;
            return true;
        }
        /* It was dropped: its number is worth more than a key without bytes. */
        (void) page_unpublish(table, page);
    }
    (void) arena_pages_unref(table, 1, &page);
    return false;
}

size_t arena_prefix_lookup(const struct arena_table *table, size_t n,
    const struct arena_prefix_key *keys, uint32_t *ret_pages, uint32_t now)
{
    size_t found = 0;

    while (found < n && key_lookup(table, &keys[found], &ret_pages[found]))
        found++;
    (void) arena_pages_touch(table, found, ret_pages, now);
    return found;
}

/* ------------------------------------------------------------------ trim */

struct candidate {
    uint32_t page, last_use, depth;
    uint64_t word;
};

/* Of those last used at the same time the deepest goes first: it continues the others. */
static int by_age(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;

    if (x->last_use != y->last_use)
        return (int32_t) (x->last_use - y->last_use) < 0 ? -1 : 1;
    return x->depth > y->depth ? -1 : x->depth < y->depth;
}

static bool page_unused(uint64_t word)
{
    return arena_word_state(word) != ARENA_PAGE_FREE && arena_word_pins(word) == 0 &&
           arena_word_refs(word) == 1u << ARENA_HOLDER_INDEX;
}

/* Pages that could go, and how many published ones continue each page. */
static size_t candidates_list(
    const struct arena_table *table, struct candidate *list, uint32_t *children)
{
    size_t count = 0;

    for (uint32_t page = 0; page < table->page_count; page++) {
        uint64_t word = word_load(table, page);
        uint32_t parent;

        if ((word & INDEX_REF) == 0)
            continue;
        if (arena_page_parent(table, page, &parent))
            children[parent]++;
        if (page_unused(word))
            list[count++] = (struct candidate){
                .page = page,
                .last_use = __atomic_load_n(&table->pages[page].last_use, __ATOMIC_RELAXED),
                .depth = __atomic_load_n(&table->keys[page].depth, __ATOMIC_RELAXED),
                .word = word,
            };
    }
    return count;
}

/* Frees one that is still unused; false when somebody has looked it up meanwhile. */
static bool candidate_free(const struct arena_table *table, const struct candidate *candidate)
{
    struct arena_prefix_key key = key_load(table, candidate->page);
    uint32_t generation = arena_word_generation(candidate->word);
    uint64_t word = candidate->word;

    if (!__atomic_compare_exchange_n(&table->pages[candidate->page].word, &word,
            arena_word_make(ARENA_PAGE_FREE, 0, 0, generation), false, __ATOMIC_SEQ_CST,
            __ATOMIC_RELAXED))
        return false;
    slot_remove(table, &key, candidate->page, generation);
    arena_token_put(table, candidate->page);
    return true;
}

static int candidates_free(const struct arena_table *table, struct candidate *list, size_t count,
    uint32_t *children, size_t n)
{
    size_t freed = 0;

    qsort(list, count, sizeof(*list), by_age);
    for (size_t i = 0; i < count && freed < n; i++) {
        uint32_t parent;
        bool linked = arena_page_parent(table, list[i].page, &parent);

        if (children[list[i].page] > 0 || !candidate_free(table, &list[i]))
            continue;
        if (linked)
            children[parent]--;
        freed++;
    }
    return (int) freed;
}

int arena_prefix_trim(const struct arena_table *table, size_t n)
{
    struct candidate *list = calloc(table->page_count, sizeof(*list));
    uint32_t *children = calloc(table->page_count, sizeof(*children));
    int r = -ENOMEM;

    if (list != NULL && children != NULL)
        r = candidates_free(table, list, candidates_list(table, list, children), children,
            MIN(n, (size_t) INT32_MAX));
    free(list);
    free(children);
    return r;
}
