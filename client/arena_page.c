/*
 * One compare-and-swap for each page. What a batch has done is undone when a later page of it
 * refuses.
 *
 * The last reference is dropped in one step by a call for one page. A batch can't: a page that is
 * free may be somebody else's at once and can't be taken back. It drops all references first, down
 * to none, which can be undone since nobody pins or references such a page, and then frees those.
 */
#include "client/arena_ops.h"

#define PIN_ONE (UINT64_C(1) << ARENA_PIN_SHIFT)
#define PIN_LIMIT ((1u << ARENA_PIN_BITS) - 1)
#define REF_ONE (UINT64_C(1) << ARENA_REF_SHIFT)
#define REF_LIMIT ((1u << ARENA_REF_BITS) - 1)

static enum arena_op misuse(void)
{
#ifdef GMB_DEBUG_ASSERT
    abort();
#endif
    return ARENA_OP_MISUSE;
}

/* Fails when somebody else changed the word, which is then read again. */
static inline bool word_swap(struct arena_table_page *page, uint64_t *word, uint64_t next)
{
    return __atomic_compare_exchange_n(
        &page->word, word, next, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
}

static inline uint64_t word_load(const struct arena_table_page *page)
{
    return __atomic_load_n(&page->word, __ATOMIC_ACQUIRE);
}

static inline bool word_allocated(uint64_t word)
{
    enum arena_page_state state = arena_word_state(word);

    return state != ARENA_PAGE_FREE && state < ARENA_PAGE_STATE_MAX && arena_word_refs(word) > 0;
}

static inline struct arena_table_page *page_at(const struct arena_table *table, uint32_t page)
{
    return page < table->page_count ? &table->pages[page] : NULL;
}

static void page_touch(const struct arena_table *table, uint32_t page, uint32_t now)
{
    struct arena_table_chunk *chunk = &table->chunks[arena_table_chunk_of(table, page)];

    __atomic_store_n(&table->pages[page].last_use, now, __ATOMIC_RELAXED);
    /* All pages of a chunk share this: written once for each tick of the clock. */
    if (__atomic_load_n(&chunk->last_use, __ATOMIC_RELAXED) != now)
        __atomic_store_n(&chunk->last_use, now, __ATOMIC_RELAXED);
}

static bool page_ref(struct arena_table_page *page)
{
    uint64_t word = word_load(page);

    do {
        if (!word_allocated(word) || arena_word_refs(word) == REF_LIMIT)
            return false;
    } while (!word_swap(page, &word, word + REF_ONE));
    return true;
}

/* Drops a reference, the last one of an unpinned page included; tells the references left. */
static bool page_drop(struct arena_table_page *page, uint32_t *ret_left)
{
    uint64_t word = word_load(page);

    do {
        if (!word_allocated(word) || (arena_word_refs(word) == 1 && arena_word_pins(word) > 0))
            return false;
    } while (!word_swap(page, &word, word - REF_ONE));
    *ret_left = arena_word_refs(word) - 1;
    return true;
}

/* What page_drop() did is undone: nobody else can have touched a page without references but the
 * broker, which leaves its counts alone. */
static void page_drop_undo(struct arena_table_page *page)
{
    uint64_t word = word_load(page);

    while (!word_swap(page, &word, word + REF_ONE))
        ;
}

/* Frees a page whose last reference was dropped; nothing if somebody else did that. */
static void page_sweep(const struct arena_table *table, uint32_t page)
{
    struct arena_table_page *at = &table->pages[page];
    uint64_t word = word_load(at);

    do {
        if (arena_word_state(word) == ARENA_PAGE_FREE || arena_word_refs(word) > 0)
            return;
    } while (
        !word_swap(at, &word, arena_word_make(ARENA_PAGE_FREE, 0, 0, arena_word_generation(word))));
    arena_token_put(table, page);
}

/* Drops a reference and frees the page with the last one, in one step. */
static bool page_unref(const struct arena_table *table, uint32_t page)
{
    struct arena_table_page *at = &table->pages[page];
    uint64_t word = word_load(at), next;

    do {
        if (!word_allocated(word))
            return false;
        next = word - REF_ONE;
        if (arena_word_refs(word) == 1) {
            if (arena_word_pins(word) > 0)
                return false;
            next = arena_word_make(ARENA_PAGE_FREE, 0, 0, arena_word_generation(word));
        }
    } while (!word_swap(at, &word, next));
    if (arena_word_state(next) == ARENA_PAGE_FREE)
        arena_token_put(table, page);
    return true;
}

static enum arena_op page_pin(struct arena_table_page *page)
{
    uint64_t word = word_load(page), next;
    enum arena_op op;

    do {
        if (!word_allocated(word) || arena_word_pins(word) == PIN_LIMIT)
            return ARENA_OP_MISUSE;
        next = word + PIN_ONE;
        op = ARENA_OP_OK;
        switch (arena_word_state(word)) {
        case ARENA_PAGE_EVICTING: /* rescued: the copy that is being made is thrown away */
            next = arena_word_with_state(next, ARENA_PAGE_RESIDENT);
            break;
        case ARENA_PAGE_EVICTED:
        case ARENA_PAGE_RESTORING:
            op = ARENA_OP_WAITING;
            break;
        case ARENA_PAGE_LOST:
            return ARENA_OP_LOST;
        case ARENA_PAGE_FREE:
        case ARENA_PAGE_RESIDENT:
        case ARENA_PAGE_STATE_MAX:
            break;
        }
    } while (!word_swap(page, &word, next));
    return op;
}

static bool page_unpin(struct arena_table_page *page)
{
    uint64_t word = word_load(page);

    do {
        if (!word_allocated(word) || arena_word_pins(word) == 0)
            return false;
    } while (!word_swap(page, &word, word - PIN_ONE));
    return true;
}

enum arena_op arena_pages_ref(const struct arena_table *table, size_t n, const uint32_t *pages)
{
    for (size_t i = 0; i < n; i++) {
        struct arena_table_page *page = page_at(table, pages[i]);
        uint32_t left;

        if (page != NULL && page_ref(page))
            continue;
        while (i-- > 0)
            (void) page_drop(&table->pages[pages[i]], &left);
        return misuse();
    }
    return ARENA_OP_OK;
}

static enum arena_op batch_unref(const struct arena_table *table, size_t n, const uint32_t *pages)
{
    bool some = false;

    for (size_t i = 0; i < n; i++) {
        struct arena_table_page *page = page_at(table, pages[i]);
        uint32_t left = 0;

        if (page != NULL && page_drop(page, &left)) {
            some = some || left == 0;
            continue;
        }
        while (i-- > 0)
            page_drop_undo(&table->pages[pages[i]]);
        return misuse();
    }
    for (size_t i = 0; some && i < n; i++)
        page_sweep(table, pages[i]);
    return ARENA_OP_OK;
}

enum arena_op arena_pages_unref(const struct arena_table *table, size_t n, const uint32_t *pages)
{
    if (n != 1)
        return batch_unref(table, n, pages);
    return page_at(table, pages[0]) != NULL && page_unref(table, pages[0]) ? ARENA_OP_OK : misuse();
}

enum arena_op arena_pages_pin(
    const struct arena_table *table, size_t n, const uint32_t *pages, uint32_t now)
{
    enum arena_op result = ARENA_OP_OK;

    for (size_t i = 0; i < n; i++) {
        struct arena_table_page *page = page_at(table, pages[i]);
        enum arena_op op = page != NULL ? page_pin(page) : ARENA_OP_MISUSE;

        if (op == ARENA_OP_WAITING)
            result = op;
        if (op == ARENA_OP_OK || op == ARENA_OP_WAITING)
            continue;
        while (i-- > 0)
            (void) page_unpin(&table->pages[pages[i]]);
        return op == ARENA_OP_LOST ? op : misuse();
    }
    for (size_t i = 0; i < n; i++)
        page_touch(table, pages[i], now);
    return result;
}

enum arena_op arena_pages_unpin(const struct arena_table *table, size_t n, const uint32_t *pages)
{
    for (size_t i = 0; i < n; i++) {
        struct arena_table_page *page = page_at(table, pages[i]);
        uint64_t word;

        if (page != NULL && page_unpin(page))
            continue;
        while (i-- > 0) {
            page = &table->pages[pages[i]];
            word = word_load(page);
            /* Not page_pin(): a page that is LOST gets its pin back, too. */
            while (!word_swap(page, &word, word + PIN_ONE))
                ;
        }
        return misuse();
    }
    return ARENA_OP_OK;
}

enum arena_op arena_pages_touch(
    const struct arena_table *table, size_t n, const uint32_t *pages, uint32_t now)
{
    for (size_t i = 0; i < n; i++) {
        struct arena_table_page *page = page_at(table, pages[i]);

        if (page == NULL || !word_allocated(word_load(page)))
            return misuse();
    }
    for (size_t i = 0; i < n; i++)
        page_touch(table, pages[i], now);
    return ARENA_OP_OK;
}

enum arena_op arena_pages_ready(const struct arena_table *table, size_t n, const uint32_t *pages)
{
    enum arena_op result = ARENA_OP_OK;

    for (size_t i = 0; i < n; i++) {
        struct arena_table_page *page = page_at(table, pages[i]);
        uint64_t word = page != NULL ? word_load(page) : 0;

        if (!word_allocated(word) || arena_word_pins(word) == 0)
            return misuse();
        if (arena_word_state(word) == ARENA_PAGE_LOST)
            result = ARENA_OP_LOST;
        else if (arena_word_state(word) != ARENA_PAGE_RESIDENT && result == ARENA_OP_OK)
            result = ARENA_OP_WAITING;
    }
    return result;
}

enum arena_op arena_page_set_hint(
    const struct arena_table *table, uint32_t number, const struct arena_table_page *hint)
{
    struct arena_table_page *page = page_at(table, number);

    if (page == NULL || !word_allocated(word_load(page)))
        return misuse();
    __atomic_store_n(&page->position, hint->position, __ATOMIC_RELAXED);
    __atomic_store_n(&page->tokens, hint->tokens, __ATOMIC_RELAXED);
    __atomic_store_n(&page->parent, hint->parent, __ATOMIC_RELAXED);
    __atomic_store_n(&page->prefix, hint->prefix, __ATOMIC_RELAXED);
    __atomic_store_n(&page->flags, hint->flags, __ATOMIC_RELEASE);
    return ARENA_OP_OK;
}
