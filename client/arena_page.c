/*
 * One compare-and-swap for each page, of the process's own counts where the arena is shared. What a
 * batch has done is undone when a later page of it refuses.
 *
 * The last reference is dropped in one step by a call for one page. A batch can't: a page that is
 * free may be somebody else's at once and can't be taken back. It drops all references first, down
 * to none, which can be undone since nobody pins or references such a page, and then frees those.
 */
#include "client/arena_ops.h"
#include "client/arena_own.h"

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

static inline bool page_exists(const struct arena_table *table, uint32_t page)
{
    return page < table->page_count;
}

/* One that exists and that this process, where it counts for itself, has a reference to. */
static bool page_held(const struct arena_table *table, uint32_t page)
{
    if (!page_exists(table, page) || !word_allocated(word_load(&table->pages[page])))
        return false;
    return table->own == NULL || arena_own_referenced(table, page);
}

static void page_touch(const struct arena_table *table, uint32_t page, uint32_t now)
{
    struct arena_table_chunk *chunk = &table->chunks[arena_table_chunk_of(table, page)];

    __atomic_store_n(&table->pages[page].last_use, now, __ATOMIC_RELAXED);
    /* All pages of a chunk share this: written once for each tick of the clock. */
    if (__atomic_load_n(&chunk->last_use, __ATOMIC_RELAXED) != now)
        __atomic_store_n(&chunk->last_use, now, __ATOMIC_RELAXED);
}

static bool page_ref(const struct arena_table *table, uint32_t number)
{
    struct arena_table_page *page = &table->pages[number];
    uint64_t word;

    if (table->own != NULL)
        return arena_own_ref(table, number);
    word = word_load(page);

    do {
        if (!word_allocated(word) || arena_word_refs(word) == REF_LIMIT)
            return false;
    } while (!word_swap(page, &word, word + REF_ONE));
    return true;
}

/* Drops a reference, the last one of an unpinned page included; tells the references left. */
static bool page_drop(const struct arena_table *table, uint32_t number, uint32_t *ret_left)
{
    struct arena_table_page *page = &table->pages[number];
    uint64_t word;

    if (table->own != NULL)
        return arena_own_drop(table, number, ret_left);
    word = word_load(page);

    do {
        if (!word_allocated(word) || (arena_word_refs(word) == 1 && arena_word_pins(word) > 0))
            return false;
    } while (!word_swap(page, &word, word - REF_ONE));
    *ret_left = arena_word_refs(word) - 1;
    return true;
}

/* What page_drop() did is undone: nobody else can have touched a page without references but the
 * broker, which leaves its counts alone. */
static void page_drop_undo(const struct arena_table *table, uint32_t number)
{
    struct arena_table_page *page = &table->pages[number];
    uint64_t word;

    if (table->own != NULL) {
        arena_own_drop_undo(table, number);
        return;
    }
    word = word_load(page);

    while (!word_swap(page, &word, word + REF_ONE))
        ;
}

/* Frees a page whose last reference was dropped; nothing if somebody else did that. */
static void page_sweep(const struct arena_table *table, uint32_t page)
{
    struct arena_table_page *at = &table->pages[page];
    uint64_t word;

    if (table->own != NULL) {
        arena_own_sweep(table, page);
        return;
    }
    word = word_load(at);
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

static enum arena_op page_pin(const struct arena_table *table, uint32_t number)
{
    struct arena_table_page *page = &table->pages[number];
    uint64_t word, next;
    enum arena_op op;

    if (table->own != NULL)
        return arena_own_pin(table, number);
    word = word_load(page);

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

static bool page_unpin(const struct arena_table *table, uint32_t number)
{
    struct arena_table_page *page = &table->pages[number];
    uint64_t word;

    if (table->own != NULL)
        return arena_own_unpin(table, number);
    word = word_load(page);

    do {
        if (!word_allocated(word) || arena_word_pins(word) == 0)
            return false;
    } while (!word_swap(page, &word, word - PIN_ONE));
    return true;
}

/* Not page_pin(): a page that is LOST gets its pin back, too. */
static void page_repin(const struct arena_table *table, uint32_t number)
{
    struct arena_table_page *page = &table->pages[number];
    uint64_t word;

    if (table->own != NULL) {
        arena_own_repin(table, number);
        return;
    }
    word = word_load(page);
    while (!word_swap(page, &word, word + PIN_ONE))
        ;
}

static enum arena_op batch_unref(const struct arena_table *table, size_t n, const uint32_t *pages)
{
    bool some = false;

    for (size_t i = 0; i < n; i++) {
        uint32_t left = 0;

        if (page_exists(table, pages[i]) && page_drop(table, pages[i], &left)) {
            some = some || left == 0;
            continue;
        }
        while (i-- > 0)
            page_drop_undo(table, pages[i]);
        return misuse();
    }
    for (size_t i = 0; some && i < n; i++)
        page_sweep(table, pages[i]);
    return ARENA_OP_OK;
}

enum arena_op arena_pages_ref(const struct arena_table *table, size_t n, const uint32_t *pages)
{
    for (size_t i = 0; i < n; i++) {
        if (page_exists(table, pages[i]) && page_ref(table, pages[i]))
            continue;
        (void) batch_unref(table, i, pages);
        return misuse();
    }
    return ARENA_OP_OK;
}

enum arena_op arena_pages_unref(const struct arena_table *table, size_t n, const uint32_t *pages)
{
    if (n != 1 || table->own != NULL)
        return batch_unref(table, n, pages);
    return page_exists(table, pages[0]) && page_unref(table, pages[0]) ? ARENA_OP_OK : misuse();
}

enum arena_op arena_pages_pin(
    const struct arena_table *table, size_t n, const uint32_t *pages, uint32_t now)
{
    enum arena_op result = ARENA_OP_OK;

    for (size_t i = 0; i < n; i++) {
        enum arena_op op =
            page_exists(table, pages[i]) ? page_pin(table, pages[i]) : ARENA_OP_MISUSE;

        if (op == ARENA_OP_WAITING)
            result = op;
        if (op == ARENA_OP_OK || op == ARENA_OP_WAITING)
            continue;
        while (i-- > 0)
            (void) page_unpin(table, pages[i]);
        return op == ARENA_OP_LOST ? op : misuse();
    }
    for (size_t i = 0; i < n; i++)
        page_touch(table, pages[i], now);
    return result;
}

enum arena_op arena_pages_unpin(const struct arena_table *table, size_t n, const uint32_t *pages)
{
    for (size_t i = 0; i < n; i++) {
        if (page_exists(table, pages[i]) && page_unpin(table, pages[i]))
            continue;
        while (i-- > 0)
            page_repin(table, pages[i]);
        return misuse();
    }
    return ARENA_OP_OK;
}

enum arena_op arena_pages_touch(
    const struct arena_table *table, size_t n, const uint32_t *pages, uint32_t now)
{
    for (size_t i = 0; i < n; i++) {
        if (!page_held(table, pages[i]))
            return misuse();
    }
    for (size_t i = 0; i < n; i++)
        page_touch(table, pages[i], now);
    return ARENA_OP_OK;
}

static bool page_pinned(const struct arena_table *table, uint32_t page, uint64_t word)
{
    return table->own != NULL ? arena_own_pinned(table, page) : arena_word_pins(word) > 0;
}

/* Resident, and mapped in this process. */
static bool page_here(const struct arena_table *table, uint32_t page, uint64_t word)
{
    return arena_word_state(word) == ARENA_PAGE_RESIDENT &&
           (table->own == NULL || arena_own_mapped(table, arena_table_chunk_of(table, page)));
}

bool arena_page_held(const struct arena_table *table, uint32_t page, bool pinned)
{
    return page_held(table, page) &&
           (!pinned || page_pinned(table, page, word_load(&table->pages[page])));
}

bool arena_page_away(const struct arena_table *table, uint32_t page)
{
    uint64_t word = word_load(&table->pages[page]);

    return arena_word_state(word) == ARENA_PAGE_EVICTED ||
           (arena_word_state(word) == ARENA_PAGE_RESIDENT && !page_here(table, page, word));
}

bool arena_page_movable(const struct arena_table *table, uint32_t page)
{
    uint64_t word = __atomic_load_n(&table->pages[page].word, __ATOMIC_RELAXED);

    if (arena_word_state(word) != ARENA_PAGE_RESIDENT || arena_word_pins(word) > 0)
        return false;
    return table->own != NULL ? arena_own_sole(table, page) : arena_word_refs(word) == 1;
}

enum arena_op arena_pages_ready(const struct arena_table *table, size_t n, const uint32_t *pages)
{
    enum arena_op result = ARENA_OP_OK;

    for (size_t i = 0; i < n; i++) {
        uint64_t word = page_exists(table, pages[i]) ? word_load(&table->pages[pages[i]]) : 0;

        if (!word_allocated(word) || !page_pinned(table, pages[i], word))
            return misuse();
        if (arena_word_state(word) == ARENA_PAGE_LOST)
            result = ARENA_OP_LOST;
        else if (!page_here(table, pages[i], word) && result == ARENA_OP_OK)
            result = ARENA_OP_WAITING;
    }
    return result;
}

static void parent_store(const struct arena_table *table, uint32_t page, uint32_t parent)
{
    struct arena_table_page *at = &table->pages[page];

    __atomic_store_n(&at->parent, parent, __ATOMIC_RELAXED);
    __atomic_store_n(&at->parent_generation,
        arena_word_generation(word_load(&table->pages[parent])), __ATOMIC_RELAXED);
}

void arena_page_set_parent(const struct arena_table *table, uint32_t page, uint32_t parent)
{
    parent_store(table, page, parent);
    (void) __atomic_fetch_or(&table->pages[page].flags, ARENA_PAGE_LINKED, __ATOMIC_RELEASE);
}

bool arena_page_parent(const struct arena_table *table, uint32_t page, uint32_t *ret_parent)
{
    const struct arena_table_page *at = &table->pages[page];
    uint32_t parent = __atomic_load_n(&at->parent, __ATOMIC_RELAXED);

    if ((__atomic_load_n(&at->flags, __ATOMIC_ACQUIRE) & ARENA_PAGE_LINKED) == 0 ||
        !page_exists(table, parent) ||
        __atomic_load_n(&at->parent_generation, __ATOMIC_RELAXED) !=
            arena_word_generation(word_load(&table->pages[parent])))
        return false;
    *ret_parent = parent;
    return true;
}

void arena_page_replace_parent(
    const struct arena_table *table, uint32_t page, uint32_t parent, uint32_t next)
{
    struct arena_table_page *at = &table->pages[page];

    if (__atomic_compare_exchange_n(
            &at->parent, &parent, next, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
        __atomic_store_n(&at->parent_generation,
            arena_word_generation(word_load(&table->pages[next])), __ATOMIC_RELEASE);
}

/* The link as it is, with the generation that was meant: what it names may be gone. */
void arena_page_copy_hint(const struct arena_table *table, uint32_t from, uint32_t to)
{
    const struct arena_table_page *old = &table->pages[from];
    struct arena_table_page *page = &table->pages[to];
    uint32_t flags = __atomic_load_n(&old->flags, __ATOMIC_ACQUIRE);

    __atomic_store_n(&page->position, old->position, __ATOMIC_RELAXED);
    __atomic_store_n(&page->tokens, old->tokens, __ATOMIC_RELAXED);
    __atomic_store_n(&page->prefix, old->prefix, __ATOMIC_RELAXED);
    __atomic_store_n(&page->parent, old->parent, __ATOMIC_RELAXED);
    __atomic_store_n(&page->parent_generation, old->parent_generation, __ATOMIC_RELAXED);
    __atomic_store_n(&page->flags, flags, __ATOMIC_RELEASE);
}

enum arena_op arena_page_set_hint(
    const struct arena_table *table, uint32_t number, const struct arena_table_page *hint)
{
    struct arena_table_page *page;
    uint32_t linked = 0, flags;

    if (!page_held(table, number))
        return misuse();
    page = &table->pages[number];
    flags = __atomic_load_n(&page->flags, __ATOMIC_RELAXED);
    __atomic_store_n(&page->position, hint->position, __ATOMIC_RELAXED);
    __atomic_store_n(&page->tokens, hint->tokens, __ATOMIC_RELAXED);
    if (arena_word_refs(word_load(page)) >> ARENA_HOLDER_INDEX != 0 && table->own != NULL) {
        linked = flags & ARENA_PAGE_LINKED; /* what the index says of a published page stands */
    } else if ((hint->flags & ARENA_PAGE_HINTED) != 0 && page_exists(table, hint->parent)) {
        parent_store(table, number, hint->parent);
        linked = ARENA_PAGE_LINKED;
    }
    __atomic_store_n(&page->prefix, hint->prefix, __ATOMIC_RELAXED);
    __atomic_store_n(&page->flags, (hint->flags & ~ARENA_PAGE_LINKED) | linked, __ATOMIC_RELEASE);
    return ARENA_OP_OK;
}
