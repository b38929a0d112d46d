/* See arena_own.h. */
#include "client/arena_own.h"

#include <errno.h>
#include <sched.h>
#include <string.h>

#define PIN_MASK UINT64_C(0xffff)
#define REF_SHIFT 16
#define REF_MASK UINT64_C(0xffffff)
#define ONE_REF (UINT64_C(1) << REF_SHIFT)
/* A thread is about to change the page's bits, and then sets the count as it is to be. */
#define BUSY (UINT64_C(1) << 63)
/* A thread has dropped the last reference. Its number stands in the bits below: no other thread of
 * the process may end what that one has begun, since the page could be a new one by then. */
#define LEAVING (UINT64_C(1) << 62)
#define THREAD_SHIFT 40
#define THREADS_MAX ((1u << 22) - 1)
#define MARKED (BUSY | LEAVING)
/* Before a thread lets others run: the one that it waits for may have been put aside. */
#define SPINS 64u

static uint64_t pins_of(uint64_t count)
{
    return count & PIN_MASK;
}

static uint64_t refs_of(uint64_t count)
{
    return count >> REF_SHIFT & REF_MASK;
}

static uint64_t leaving_mark(void)
{
    static uint32_t threads;
    static __thread uint32_t own;

    if (own == 0)
        own = 1 + __atomic_fetch_add(&threads, 1, __ATOMIC_RELAXED) % THREADS_MAX;
    return LEAVING | (uint64_t) own << THREAD_SHIFT;
}

int arena_own_new(struct arena_table *table, uint32_t number)
{
    struct arena_own *own = calloc(1, sizeof(*own));

    if (own == NULL)
        return -ENOMEM;
    own->number = number;
    own->mapped = calloc(table->layout.max_chunks, sizeof(*own->mapped));
    own->counts = calloc(table->page_count, sizeof(*own->counts));
    table->own = own;
    if (own->mapped != NULL && own->counts != NULL)
        return 0;
    arena_own_free(table);
    return -ENOMEM;
}

void arena_own_free(struct arena_table *table)
{
    if (table->own == NULL)
        return;
    free(table->own->mapped);
    free(table->own->counts);
    free(table->own);
    table->own = NULL;
}

void arena_own_set_mapped(const struct arena_table *table, uint32_t chunk, bool mapped)
{
    __atomic_store_n(&table->own->mapped[chunk], (uint8_t) mapped, __ATOMIC_RELEASE);
}

/* ------------------------------------------------------------------ words */

static uint64_t pin_bit(const struct arena_own *own)
{
    return UINT64_C(1) << (ARENA_PIN_SHIFT + own->number);
}

static uint64_t ref_bit(const struct arena_own *own)
{
    return UINT64_C(1) << (ARENA_REF_SHIFT + own->number);
}

static uint64_t word_load(const struct arena_table *table, uint32_t page)
{
    return __atomic_load_n(&table->pages[page].word, __ATOMIC_ACQUIRE);
}

static bool word_swap(const struct arena_table *table, uint32_t page, uint64_t *word, uint64_t next)
{
    return __atomic_compare_exchange_n(
        &table->pages[page].word, word, next, false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
}

static bool word_allocated(uint64_t word)
{
    return arena_word_state(word) != ARENA_PAGE_FREE &&
           arena_word_state(word) < ARENA_PAGE_STATE_MAX && arena_word_refs(word) != 0;
}

/* This holder references an allocated page. */
static bool word_ref(const struct arena_table *table, uint32_t page)
{
    uint64_t word = word_load(table, page);

    do {
        if (!word_allocated(word))
            return false;
    } while (!word_swap(table, page, &word, word | ref_bit(table->own)));
    return true;
}

/* It does so no longer, nor does it pin it: the page is free if nobody else does. */
static void word_unref(const struct arena_table *table, uint32_t page)
{
    uint64_t own = ref_bit(table->own), word = word_load(table, page), next;

    do {
        if (arena_word_state(word) == ARENA_PAGE_FREE || (word & own) == 0)
            return; /* somebody writes where nothing is theirs */
        next = word & ~(own | pin_bit(table->own));
        if (arena_word_refs(next) == 0)
            next = arena_word_make(ARENA_PAGE_FREE, 0, 0, arena_word_generation(word));
    } while (!word_swap(table, page, &word, next));
    if (arena_word_state(next) == ARENA_PAGE_FREE)
        arena_token_put(table, page);
}

static enum arena_op state_op(const struct arena_table *table, uint32_t page, uint64_t word)
{
    switch (arena_word_state(word)) {
    case ARENA_PAGE_LOST:
        return ARENA_OP_LOST;
    case ARENA_PAGE_EVICTED:
    case ARENA_PAGE_RESTORING:
        return ARENA_OP_WAITING;
    case ARENA_PAGE_RESIDENT:
    case ARENA_PAGE_EVICTING:
        return arena_own_mapped(table, arena_table_chunk_of(table, page)) ? ARENA_OP_OK
                                                                          : ARENA_OP_WAITING;
    case ARENA_PAGE_FREE:
    case ARENA_PAGE_STATE_MAX:
        break;
    }
    return ARENA_OP_MISUSE;
}

/* The holder's first pin. A page that is being copied out is rescued. */
static enum arena_op word_pin(const struct arena_table *table, uint32_t page)
{
    uint64_t word = word_load(table, page), next;

    do {
        if (!word_allocated(word))
            return ARENA_OP_MISUSE;
        if (arena_word_state(word) == ARENA_PAGE_LOST)
            return ARENA_OP_LOST;
        next = word | pin_bit(table->own);
        if (arena_word_state(word) == ARENA_PAGE_EVICTING)
            next = arena_word_with_state(next, ARENA_PAGE_RESIDENT);
    } while (!word_swap(table, page, &word, next));
    return state_op(table, page, next);
}

static void word_set_pinned(const struct arena_table *table, uint32_t page, bool pinned)
{
    uint64_t own = pin_bit(table->own), word = word_load(table, page);

    do {
        if (arena_word_state(word) == ARENA_PAGE_FREE)
            return;
    } while (!word_swap(table, page, &word, pinned ? word | own : word & ~own));
}

/* ------------------------------------------------------------------ counts */

static uint64_t *count_at(const struct arena_table *table, uint32_t page)
{
    return &table->own->counts[page];
}

static uint64_t count_load(const struct arena_table *table, uint32_t page)
{
    return __atomic_load_n(count_at(table, page), __ATOMIC_ACQUIRE);
}

static bool count_swap(
    const struct arena_table *table, uint32_t page, uint64_t *count, uint64_t next)
{
    return __atomic_compare_exchange_n(
        count_at(table, page), count, next, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

static void count_store(const struct arena_table *table, uint32_t page, uint64_t count)
{
    __atomic_store_n(count_at(table, page), count, __ATOMIC_RELEASE);
}

/* The count, once no other thread is at it. `with_none`: also when that one leaves no reference,
 * else this is misuse and the marked count is given. */
static uint64_t count_settled(const struct arena_table *table, uint32_t page, bool with_none)
{
    uint64_t count;

    for (unsigned turn = 0;; turn++) {
        count = count_load(table, page);
        if ((count & MARKED) == 0 || (!with_none && refs_of(count) == 0))
            return count;
        if (turn >= SPINS)
            (void) sched_yield();
    }
}

bool arena_own_ref(const struct arena_table *table, uint32_t page)
{
    for (;;) {
        uint64_t count = count_settled(table, page, true);
        bool done;

        if (refs_of(count) == REF_MASK)
            return false;
        if (refs_of(count) > 0) {
            if (count_swap(table, page, &count, count + ONE_REF))
                return true;
            continue;
        }
        if (!count_swap(table, page, &count, BUSY))
            continue;
        done = word_ref(table, page);
        count_store(table, page, done ? ONE_REF : 0);
        return done;
    }
}

bool arena_own_drop(const struct arena_table *table, uint32_t page, uint32_t *ret_left)
{
    for (;;) {
        uint64_t count = count_settled(table, page, false);

        if (refs_of(count) == 0 || (refs_of(count) == 1 && pins_of(count) > 0))
            return false;
        if (!count_swap(table, page, &count, refs_of(count) > 1 ? count - ONE_REF : leaving_mark()))
            continue;
        *ret_left = (uint32_t) refs_of(count) - 1;
        return true;
    }
}

void arena_own_drop_undo(const struct arena_table *table, uint32_t page)
{
    uint64_t count;

    do {
        count = count_load(table, page);
        if (count == leaving_mark()) {
            count_store(table, page, ONE_REF);
            return;
        }
        count = count_settled(table, page, false);
    } while (!count_swap(table, page, &count, count + ONE_REF));
}

void arena_own_sweep(const struct arena_table *table, uint32_t page)
{
    /* Named twice in one call it may be gone; or it is another thread's to sweep. */
    if (count_load(table, page) != leaving_mark())
        return;
    word_unref(table, page);
    count_store(table, page, 0);
}

enum arena_op arena_own_pin(const struct arena_table *table, uint32_t page)
{
    for (;;) {
        uint64_t count = count_settled(table, page, false), word;
        enum arena_op op;

        if (refs_of(count) == 0 || pins_of(count) == PIN_MASK)
            return ARENA_OP_MISUSE;
        if (pins_of(count) > 0) {
            word = word_load(table, page);
            op = state_op(table, page, word);
            if (op == ARENA_OP_LOST || op == ARENA_OP_MISUSE ||
                count_swap(table, page, &count, count + 1))
                return op;
            continue;
        }
        if (!count_swap(table, page, &count, count | BUSY))
            continue;
        op = word_pin(table, page);
        count_store(table, page, op == ARENA_OP_OK || op == ARENA_OP_WAITING ? count + 1 : count);
        return op;
    }
}

bool arena_own_unpin(const struct arena_table *table, uint32_t page)
{
    for (;;) {
        uint64_t count = count_settled(table, page, false);

        if (pins_of(count) == 0)
            return false;
        if (pins_of(count) > 1) {
            if (count_swap(table, page, &count, count - 1))
                return true;
            continue;
        }
        if (!count_swap(table, page, &count, count | BUSY))
            continue;
        word_set_pinned(table, page, false);
        count_store(table, page, count - 1);
        return true;
    }
}

void arena_own_repin(const struct arena_table *table, uint32_t page)
{
    for (;;) {
        uint64_t count = count_settled(table, page, false);

        if (!count_swap(table, page, &count, count | BUSY))
            continue;
        word_set_pinned(table, page, true);
        count_store(table, page, count + 1);
        return;
    }
}

bool arena_own_referenced(const struct arena_table *table, uint32_t page)
{
    return refs_of(count_load(table, page)) > 0;
}

bool arena_own_pinned(const struct arena_table *table, uint32_t page)
{
    return pins_of(count_load(table, page)) > 0;
}

bool arena_own_sole(const struct arena_table *table, uint32_t page)
{
    return count_load(table, page) == ONE_REF &&
           arena_word_refs(word_load(table, page)) == 1u << table->own->number;
}

/* ------------------------------------------------------------------ allocation */

/* What is left of an earlier page of that number must not be taken for this one's while the broker
 * may look; and it looks at no page that is pinned. */
static bool begin_pinned(
    const struct arena_table *table, uint32_t page, uint64_t word, uint64_t next)
{
    if (!word_swap(table, page, &word, next | pin_bit(table->own)))
        return false;
    __atomic_store_n(&table->pages[page].flags, 0, __ATOMIC_RELEASE);
    word_set_pinned(table, page, false);
    return true;
}

bool arena_own_begin(const struct arena_table *table, uint32_t page, uint32_t now)
{
    struct arena_table_page *at = &table->pages[page];
    uint64_t word, next, count = 0;
    bool done;

    /* Marked before it is allocated: a thread here that looks for an earlier page of that number
     * must not take this one's reference for its own. */
    while (!count_swap(table, page, &count, BUSY)) {
        count = count_settled(table, page, true);
        if (refs_of(count) > 0)
            return false;
    }
    word = word_load(table, page);
    next = arena_word_make(ARENA_PAGE_RESIDENT, 0, 0, arena_word_generation(word) + 1);
    if (arena_word_state(word) != ARENA_PAGE_FREE)
        done = false;
    else if (__atomic_load_n(&at->flags, __ATOMIC_RELAXED) != 0)
        done = begin_pinned(table, page, word, next | ref_bit(table->own));
    else
        done = word_swap(table, page, &word, next | ref_bit(table->own));
    count_store(table, page, done ? ONE_REF : 0);
    if (done && __atomic_load_n(&at->last_use, __ATOMIC_RELAXED) != now)
        __atomic_store_n(&at->last_use, now, __ATOMIC_RELAXED);
    return done;
}
