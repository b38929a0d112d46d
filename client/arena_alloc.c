/*
 * Taking a token is one compare-and-swap on a word of free bits, giving it back one atomic OR.
 * Between the two a page has one owner, who sets its word by a plain store: so a page costs three
 * atomic operations from birth to death, the third being the one that frees it.
 *
 * A chunk's count of free pages is a hint for choosing the fullest one. It is brought up to date
 * now and then (every eighth page, roughly), and always when the last token goes or the first one
 * comes, so that a chunk with free pages isn't overlooked; and before an allocation fails, the
 * words themselves are looked at.
 */
#include "client/arena_ops.h"
#include "client/arena_own.h"

#include <string.h>

#define WORD_BITS 64u
#define NO_CHUNK UINT32_MAX

/* Initial-exec: a thread-local of a shared library costs a call otherwise. */
static _Thread_local unsigned thread_slot __attribute__((tls_model("initial-exec")));

/* Threads share slots past ARENA_SLOTS of them; that costs speed, not correctness. */
static unsigned slot_of_thread(void)
{
    static atomic_uint next;

    if (thread_slot == 0)
        thread_slot = atomic_fetch_add_explicit(&next, 1, memory_order_relaxed) % ARENA_SLOTS + 1;
    return thread_slot - 1;
}

void arena_pool_init(struct arena_pool *pool, const struct arena_table *table)
{
    memset(pool, 0, sizeof(*pool));
    pool->table = *table;
    for (unsigned i = 0; i < ARENA_SLOTS; i++)
        pool->slots[i].chunk = NO_CHUNK;
}

static uint32_t words_used(const struct arena_table *table)
{
    return (table->layout.pages_per_chunk + WORD_BITS - 1) / WORD_BITS;
}

/* Bits of a word that are pages of its chunk. What else is set there is nonsense, and no page. */
static uint64_t word_pages(const struct arena_table *table, uint32_t index)
{
    uint32_t left = table->layout.pages_per_chunk - index * WORD_BITS;

    return left >= WORD_BITS ? UINT64_MAX : (UINT64_C(1) << left) - 1;
}

uint32_t arena_chunk_free(const struct arena_table *table, uint32_t chunk)
{
    const uint64_t *words = arena_table_free(table, chunk);
    uint32_t count = 0;

    for (uint32_t i = 0; i < words_used(table); i++) {
        uint64_t word = __atomic_load_n(&words[i], __ATOMIC_SEQ_CST);

        count += (uint32_t) __builtin_popcountll(word & word_pages(table, i));
    }
    return count;
}

/* Whether this process may allocate there. */
static bool chunk_usable(const struct arena_table *table, uint32_t chunk)
{
    return arena_chunk_state(table, chunk) == ARENA_CHUNK_LIVE &&
           (table->own == NULL || arena_own_mapped(table, chunk));
}

uint64_t arena_pool_free(const struct arena_pool *pool)
{
    uint64_t count = 0;

    for (uint32_t chunk = 0; chunk < arena_pool_top(pool); chunk++) {
        if (chunk_usable(&pool->table, chunk))
            count += arena_chunk_free(&pool->table, chunk);
    }
    return count;
}

/* Writes a count only when it is wrong by some: the counts of many chunks share a cache line. */
static void count_correct(const struct arena_table *table, uint32_t chunk)
{
    uint32_t slack = table->layout.pages_per_chunk / 16;
    uint32_t count = arena_chunk_free(table, chunk);
    uint32_t told = __atomic_load_n(&table->counts[chunk], __ATOMIC_RELAXED);

    if ((count == 0) != (told == 0) || count > told + slack || told > count + slack)
        __atomic_store_n(&table->counts[chunk], (uint16_t) count, __ATOMIC_SEQ_CST);
}

/* One page in eight of a chunk with one word, one in 64 of larger ones: what a count costs, spread.
 */
static bool count_due(const struct arena_table *table, uint32_t page)
{
    uint32_t mask = table->layout.pages_per_chunk > WORD_BITS ? 63 : 7;

    return (page & mask) == mask;
}

void arena_token_put(const struct arena_table *table, uint32_t page)
{
    uint32_t chunk = arena_table_chunk_of(table, page);
    uint32_t index = page - chunk * table->layout.pages_per_chunk;
    uint64_t *words = arena_table_free(table, chunk);

    (void) __atomic_fetch_or(
        &words[index / WORD_BITS], UINT64_C(1) << (index % WORD_BITS), __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&table->counts[chunk], __ATOMIC_SEQ_CST) == 0 || count_due(table, page))
        count_correct(table, chunk);
}

static void tokens_put(const struct arena_table *table, size_t n, const uint32_t *pages)
{
    for (size_t i = 0; i < n; i++)
        arena_token_put(table, pages[i]);
}

/* The lowest `n` bits that are set. */
static uint64_t bits_lowest(uint64_t word, size_t n)
{
    uint64_t rest = word;

    if (n == 1)
        return word & -word;
    while (rest != 0 && n-- > 0)
        rest &= rest - 1;
    return word ^ rest;
}

/* Takes up to `n` tokens of `pages` out of one word; `first` is the page of its lowest bit. */
static size_t word_take(uint64_t *at, uint64_t pages, uint32_t first, size_t n, uint32_t *ret)
{
    uint64_t word = __atomic_load_n(at, __ATOMIC_RELAXED), wanted;
    size_t taken = 0;

    while ((word & pages) != 0) {
        wanted = bits_lowest(word & pages, n);
        if (!__atomic_compare_exchange_n(
                at, &word, word & ~wanted, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
            continue;
        for (; wanted != 0; wanted &= wanted - 1)
            ret[taken++] = first + (uint32_t) __builtin_ctzll(wanted);
        break;
    }
    return taken;
}

/* Takes up to `n` tokens of a chunk, if it is and stays LIVE. `*word` is where to look first. */
static size_t chunk_take(
    const struct arena_table *table, uint32_t chunk, uint32_t *word, size_t n, uint32_t *ret)
{
    uint32_t first = chunk * table->layout.pages_per_chunk, used = words_used(table);
    uint64_t *words = arena_table_free(table, chunk);
    uint32_t at = __atomic_load_n(word, __ATOMIC_RELAXED);
    size_t taken = 0;

    if (!chunk_usable(table, chunk))
        return 0;
    for (uint32_t i = 0; i < used && taken < n; i++) {
        if (at >= used)
            at = 0;
        taken += word_take(
            &words[at], word_pages(table, at), first + at * WORD_BITS, n - taken, ret + taken);
        if (taken < n)
            at++;
    }
    if (at >= used)
        at = 0;
    if (at != __atomic_load_n(word, __ATOMIC_RELAXED))
        __atomic_store_n(word, at, __ATOMIC_RELAXED);
    /* After the tokens are taken: whoever closes the chunk later than this look misses them. */
    if (taken > 0 && arena_chunk_state(table, chunk) != ARENA_CHUNK_LIVE) {
        tokens_put(table, taken, ret);
        return 0;
    }
    if (taken < n || count_due(table, ret[taken - 1]))
        count_correct(table, chunk);
    return taken;
}

static bool slot_taken(const struct arena_pool *pool, unsigned own, uint32_t chunk)
{
    for (unsigned i = 0; i < ARENA_SLOTS; i++) {
        if (i != own && __atomic_load_n(&pool->slots[i].chunk, __ATOMIC_RELAXED) == chunk)
            return true;
    }
    return false;
}

/* The fullest chunk that has a free page, by the counts; one that no other slot has, if there is
 * one. */
static uint32_t chunk_fullest(const struct arena_pool *pool, unsigned own)
{
    const struct arena_table *table = &pool->table;
    uint32_t top = arena_pool_top(pool);
    uint32_t best = NO_CHUNK, shared = NO_CHUNK, least = UINT32_MAX;

    for (uint32_t chunk = 0; chunk < top; chunk++) {
        uint32_t count = __atomic_load_n(&table->counts[chunk], __ATOMIC_RELAXED);

        if (count == 0 || count >= least || !chunk_usable(table, chunk))
            continue;
        if (slot_taken(pool, own, chunk)) {
            shared = chunk;
        } else {
            best = chunk;
            least = count;
        }
    }
    return best != NO_CHUNK ? best : shared;
}

/* What the counts overlooked. */
static uint32_t chunk_any(const struct arena_pool *pool)
{
    const struct arena_table *table = &pool->table;
    uint32_t top = arena_pool_top(pool);

    for (uint32_t chunk = 0; chunk < top; chunk++) {
        if (chunk_usable(table, chunk) && arena_chunk_free(table, chunk) > 0) {
            count_correct(table, chunk);
            return chunk;
        }
    }
    return NO_CHUNK;
}

/* The page's owner is the one that has its token: nobody else writes the word of a FREE page. */
static void page_begin(const struct arena_table *table, uint32_t number, uint32_t now)
{
    struct arena_table_page *page = &table->pages[number];
    uint64_t word = __atomic_load_n(&page->word, __ATOMIC_ACQUIRE);

    if (__atomic_load_n(&page->last_use, __ATOMIC_RELAXED) != now)
        __atomic_store_n(&page->last_use, now, __ATOMIC_RELAXED);
    if (__atomic_load_n(&page->flags, __ATOMIC_RELAXED) != 0)
        __atomic_store_n(&page->flags, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&page->word,
        arena_word_make(ARENA_PAGE_RESIDENT, 0, 1, arena_word_generation(word) + 1),
        __ATOMIC_RELEASE);
}

static void chunk_touch(const struct arena_table *table, uint32_t page, uint32_t now)
{
    struct arena_table_chunk *chunk = &table->chunks[arena_table_chunk_of(table, page)];

    if (__atomic_load_n(&chunk->last_use, __ATOMIC_RELAXED) != now)
        __atomic_store_n(&chunk->last_use, now, __ATOMIC_RELAXED);
}

static void pages_begin(
    const struct arena_table *table, size_t n, const uint32_t *pages, uint32_t now)
{
    for (size_t i = 0; i < n; i++) {
        if (table->own == NULL)
            page_begin(table, pages[i], now);
        chunk_touch(table, pages[i], now);
    }
}

/* Allocates pages of a shared arena whose tokens were taken in a chunk; those that it got come
 * first in `pages`. */
static size_t own_begin(
    const struct arena_table *table, uint32_t chunk, size_t n, uint32_t *pages, uint32_t now)
{
    size_t got = 0;

    for (size_t i = 0; i < n; i++) {
        if (arena_own_begin(table, pages[i], now))
            pages[got++] = pages[i];
    }
    /* After the words are set: whoever closed the chunk later than this look sees them. */
    if (got > 0 && arena_chunk_state(table, chunk) != ARENA_CHUNK_LIVE) {
        (void) arena_pages_unref(table, got, pages);
        got = 0;
    }
    return got;
}

/* Takes up to `n` pages of a chunk: their tokens, and in a shared arena the pages themselves. */
static size_t chunk_claim(const struct arena_table *table, uint32_t chunk, uint32_t *word, size_t n,
    uint32_t *ret, uint32_t now)
{
    size_t taken = chunk_take(table, chunk, word, n, ret);

    return table->own != NULL ? own_begin(table, chunk, taken, ret, now) : taken;
}

/* What chunk_claim() took goes back. */
static void claim_undo(const struct arena_table *table, size_t n, const uint32_t *pages)
{
    if (table->own != NULL)
        (void) arena_pages_unref(table, n, pages);
    else
        tokens_put(table, n, pages);
}

/*
 * One page from where the last one was found. What follows an atomic operation waits for it on most
 * processors, so that all addresses are computed before.
 */
static inline bool slot_alloc_one(
    struct arena_pool *pool, unsigned own, uint32_t *ret_page, uint32_t now)
{
    const struct arena_table *table = &pool->table;
    uint32_t chunk = __atomic_load_n(&pool->slots[own].chunk, __ATOMIC_RELAXED);
    uint32_t at = __atomic_load_n(&pool->slots[own].word, __ATOMIC_RELAXED), index, number;
    struct arena_table_chunk *state;
    uint64_t *words, word;

    if (chunk == NO_CHUNK)
        return false;
    state = &table->chunks[chunk];
    if (__atomic_load_n(&state->state, __ATOMIC_RELAXED) != ARENA_CHUNK_LIVE ||
        (table->own != NULL && !arena_own_mapped(table, chunk)))
        return false;
    words = arena_table_free(table, chunk) + at;
    word = __atomic_load_n(words, __ATOMIC_RELAXED);
    if (word == 0)
        return false;
    index = at * WORD_BITS + (uint32_t) __builtin_ctzll(word);
    number = chunk * table->layout.pages_per_chunk + index;
    if (index >= table->layout.pages_per_chunk || count_due(table, number) ||
        !__atomic_compare_exchange_n(
            words, &word, word & (word - 1), false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
        return false;
    if (table->own != NULL) {
        if (own_begin(table, chunk, 1, &number, now) == 0)
            return false;
    } else if (__atomic_load_n(&state->state, __ATOMIC_SEQ_CST) != ARENA_CHUNK_LIVE) {
        arena_token_put(table, number);
        return false;
    } else {
        page_begin(table, number, now);
    }
    if (__atomic_load_n(&state->last_use, __ATOMIC_RELAXED) != now)
        __atomic_store_n(&state->last_use, now, __ATOMIC_RELAXED);
    *ret_page = number;
    return true;
}

static bool chunk_whole(const struct arena_table *table, uint32_t chunk)
{
    const uint64_t *words = arena_table_free(table, chunk);

    for (uint32_t i = 0; i < words_used(table); i++) {
        uint64_t pages = word_pages(table, i);

        if ((__atomic_load_n(&words[i], __ATOMIC_RELAXED) & pages) != pages)
            return false;
    }
    return true;
}

/*
 * A batch that is larger than a chunk takes whole chunks as far as there are any. Its pages are
 * pinned and freed together: spread over chunks that others share, each batch would keep more
 * memory than it needs from being evicted.
 */
static size_t whole_take(
    const struct arena_pool *pool, unsigned own, size_t n, uint32_t *ret_pages, uint32_t now)
{
    const struct arena_table *table = &pool->table;
    uint32_t top = arena_pool_top(pool), per_chunk = table->layout.pages_per_chunk, word = 0;
    size_t taken = 0;

    for (uint32_t chunk = 0; chunk < top && n - taken >= per_chunk; chunk++) {
        if (chunk_usable(table, chunk) && chunk_whole(table, chunk) &&
            !slot_taken(pool, own, chunk))
            taken += chunk_claim(table, chunk, &word, per_chunk, ret_pages + taken, now);
    }
    return taken;
}

static enum arena_op pages_alloc_any(
    struct arena_pool *pool, unsigned own, size_t n, uint32_t *ret_pages, uint32_t now)
{
    const struct arena_table *table = &pool->table;
    uint32_t chunk = __atomic_load_n(&pool->slots[own].chunk, __ATOMIC_RELAXED);
    uint32_t *word = &pool->slots[own].word;
    size_t taken = whole_take(pool, own, n, ret_pages, now);

    while (taken < n) {
        if (chunk != NO_CHUNK)
            taken += chunk_claim(table, chunk, word, n - taken, ret_pages + taken, now);
        if (taken == n)
            break;
        chunk = chunk_fullest(pool, own);
        if (chunk == NO_CHUNK)
            chunk = chunk_any(pool);
        if (chunk == NO_CHUNK) {
            claim_undo(table, taken, ret_pages);
            return ARENA_OP_SHORT;
        }
        __atomic_store_n(word, 0, __ATOMIC_RELAXED);
        __atomic_store_n(&pool->slots[own].chunk, chunk, __ATOMIC_RELAXED);
    }
    pages_begin(table, n, ret_pages, now);
    return ARENA_OP_OK;
}

enum arena_op arena_pages_alloc(
    struct arena_pool *pool, size_t n, uint32_t *ret_pages, uint32_t now)
{
    unsigned own = slot_of_thread();

    if (n == 1 && slot_alloc_one(pool, own, ret_pages, now))
        return ARENA_OP_OK;
    return pages_alloc_any(pool, own, n, ret_pages, now);
}

enum arena_op arena_chunk_alloc(
    struct arena_pool *pool, uint32_t chunk, size_t n, uint32_t *ret_pages, uint32_t now)
{
    uint32_t word = 0;
    size_t taken = chunk_claim(&pool->table, chunk, &word, n, ret_pages, now);

    if (taken < n) {
        claim_undo(&pool->table, taken, ret_pages);
        return ARENA_OP_SHORT;
    }
    pages_begin(&pool->table, n, ret_pages, now);
    return ARENA_OP_OK;
}

static bool chunk_swap(
    struct arena_pool *pool, uint32_t chunk, enum arena_chunk_state from, enum arena_chunk_state to)
{
    uint32_t expected = from;

    return __atomic_compare_exchange_n(&pool->table.chunks[chunk].state, &expected, (uint32_t) to,
        false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

/* EVICTED pages count: their chunk is the broker's to empty. */
static bool chunk_unused(const struct arena_table *table, uint32_t chunk)
{
    uint32_t count = table->layout.pages_per_chunk, first = chunk * count;

    if (!arena_table_shared(table))
        return arena_chunk_free(table, chunk) == count;
    for (uint32_t page = first; page < first + count; page++) {
        uint64_t word = __atomic_load_n(&table->pages[page].word, __ATOMIC_SEQ_CST);

        if (arena_word_state(word) != ARENA_PAGE_FREE)
            return false;
    }
    return true;
}

void arena_chunk_open(struct arena_pool *pool, uint32_t chunk)
{
    if (arena_pool_top(pool) <= chunk)
        __atomic_store_n(&pool->top, chunk + 1, __ATOMIC_RELAXED);
    if (arena_table_shared(&pool->table))
        (void) chunk_swap(pool, chunk, ARENA_CHUNK_EMPTY, ARENA_CHUNK_LIVE);
    else
        __atomic_store_n(&pool->table.chunks[chunk].state, ARENA_CHUNK_LIVE, __ATOMIC_SEQ_CST);
    count_correct(&pool->table, chunk);
}

bool arena_chunk_close_vacant(struct arena_pool *pool, uint32_t chunk)
{
    if (!chunk_swap(pool, chunk, ARENA_CHUNK_LIVE, ARENA_CHUNK_RETURNING))
        return false;
    /* Whoever set it LIVE meanwhile has seen pages there. */
    if (chunk_unused(&pool->table, chunk) &&
        chunk_swap(pool, chunk, ARENA_CHUNK_RETURNING, ARENA_CHUNK_VACANT))
        return true;
    (void) chunk_swap(pool, chunk, ARENA_CHUNK_RETURNING, ARENA_CHUNK_LIVE);
    return false;
}

void arena_chunk_vacate(struct arena_pool *pool, uint32_t chunk)
{
    if (!arena_table_shared(&pool->table))
        __atomic_store_n(&pool->table.chunks[chunk].state, ARENA_CHUNK_EMPTY, __ATOMIC_SEQ_CST);
}

void arena_chunk_reopen(struct arena_pool *pool, uint32_t chunk)
{
    if (!arena_table_shared(&pool->table))
        (void) chunk_swap(pool, chunk, ARENA_CHUNK_VACANT, ARENA_CHUNK_LIVE);
}
