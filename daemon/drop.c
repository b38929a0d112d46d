/* See drop.h. A page is dropped by what its word says at that moment: RESIDENT or EVICTED, in no
 * job, waited for by nobody, and pinned by nobody. */
#include "daemon/drop.h"

#include "daemon/broker.h"

static const struct arena_table_page *entry_of(const struct arena_chunk *chunk, uint32_t page)
{
    const struct arena_table *table = &chunk->arena->table;

    return &table->pages[(size_t) chunk->index * table->layout.pages_per_chunk + page];
}

static uint32_t number_of(const struct arena_chunk *chunk, uint32_t page)
{
    return chunk->index * chunk->arena->table.layout.pages_per_chunk + page;
}

static bool word_live(uint64_t word)
{
    enum arena_page_state state = arena_word_state(word);

    return state == ARENA_PAGE_RESIDENT || state == ARENA_PAGE_EVICTING ||
           state == ARENA_PAGE_EVICTED || state == ARENA_PAGE_RESTORING;
}

/* In no job, and nobody needs it now. */
static bool page_idle(const struct arena_chunk *chunk, uint32_t page, uint64_t word)
{
    enum arena_page_state state = arena_word_state(word);
    const struct arena_page *record = chunk->pages != NULL ? &chunk->pages[page] : NULL;

    if (arena_word_pins(word) > 0 ||
        (record != NULL && (record->job != ARENA_PAGE_IDLE || record->wanted)))
        return false;
    if (state == ARENA_PAGE_EVICTED)
        return record != NULL && record->slot != ARENA_NO_SLOT;
    return state == ARENA_PAGE_RESIDENT;
}

/* DROP_NONE unless it still is the page that was meant, and something is known of it. */
static uint32_t parent_of(
    const struct arena *arena, const struct arena_table_page *entry, uint32_t flags)
{
    uint32_t parent = __atomic_load_n(&entry->parent, __ATOMIC_RELAXED);
    uint64_t word;

    if ((flags & ARENA_PAGE_LINKED) == 0 || parent >= arena->table.page_count ||
        arena_chunk_find(arena, arena_table_chunk_of(&arena->table, parent)) == NULL)
        return DROP_NONE;
    word = __atomic_load_n(&arena->table.pages[parent].word, __ATOMIC_RELAXED);
    return word_live(word) && arena_word_generation(word) ==
                                  __atomic_load_n(&entry->parent_generation, __ATOMIC_RELAXED)
               ? parent
               : DROP_NONE;
}

uint32_t drop_count(const struct arena_chunk *chunk, struct drop_page **order)
{
    const struct arena *arena = chunk->arena;
    uint32_t count = arena->table.layout.pages_per_chunk, steps = count, parent;

    for (uint32_t i = 0; i < count; i++) {
        const struct arena_table_page *entry = entry_of(chunk, i);
        uint64_t word = __atomic_load_n(&entry->word, __ATOMIC_RELAXED);
        uint32_t flags = __atomic_load_n(&entry->flags, __ATOMIC_ACQUIRE);

        if (!word_live(word) || (flags & (ARENA_PAGE_RECOMPUTABLE | ARENA_PAGE_LINKED)) == 0)
            continue;
        if (*order == NULL)
            *order = calloc(arena->table.page_count, sizeof(**order));
        if (*order == NULL)
            break;
        parent = parent_of(arena, entry, flags);
        steps += drop_order_add(*order, arena->table.page_count, number_of(chunk, i), parent,
            &(struct drop_page){
                .generation = arena_word_generation(word),
                .position = __atomic_load_n(&entry->position, __ATOMIC_RELAXED),
                .droppable = (flags & ARENA_PAGE_RECOMPUTABLE) != 0 && page_idle(chunk, i, word),
                .resident = arena_word_state(word) != ARENA_PAGE_EVICTED,
                .apart = parent / count != chunk->index,
            });
    }
    return steps;
}

bool drop_allows(const struct arena_chunk *chunk, uint32_t page, uint64_t word)
{
    const struct drop_page *order = chunk->arena->order;

    return order != NULL && page_idle(chunk, page, word) &&
           drop_order_allows(order, number_of(chunk, page), arena_word_generation(word)) &&
           (__atomic_load_n(&entry_of(chunk, page)->flags, __ATOMIC_RELAXED) &
               ARENA_PAGE_RECOMPUTABLE) != 0;
}

bool drop_carries(const struct arena_chunk *chunk, uint32_t page)
{
    const struct drop_page *order = chunk->arena->order;

    return order != NULL && order[number_of(chunk, page)].carries;
}

bool drop_torn(const struct arena_chunk *chunk, uint32_t page)
{
    const struct drop_page *order = chunk->arena->order;

    return order != NULL && order[number_of(chunk, page)].torn;
}

/* False if it must stay. One that isn't there any more, or is another by now, is as good as
 * dropped. */
static bool one_drop(struct arena_chunk *chunk, uint32_t page)
{
    const struct drop_page *known = &chunk->arena->order[number_of(chunk, page)];
    uint64_t word = __atomic_load_n(arena_page_word(chunk, page), __ATOMIC_SEQ_CST);

    if (!word_live(word) || arena_word_generation(word) != known->generation)
        return true;
    if (!drop_allows(chunk, page, word) || !arena_page_swap(chunk, page, word, ARENA_PAGE_LOST))
        return false;
    if (chunk->pages != NULL)
        arena_slot_give(chunk, page);
    return true;
}

enum drop_outcome drop_page(struct arena_chunk *chunk, uint32_t page)
{
    const struct arena *arena = chunk->arena;
    uint32_t per_chunk = arena->table.layout.pages_per_chunk, whole = number_of(chunk, page);
    uint32_t *budget = &arena->broker->hosting[arena->device]->drop_budget;

    for (uint32_t at = whole;; at = arena->order[at].parent - 1) {
        struct arena_chunk *holds;

        if (*budget == 0)
            return DROP_LATER;
        --*budget;
        at = drop_order_first(arena->order, at, whole);
        if (at == DROP_NONE)
            return DROP_REFUSED;
        holds = arena_chunk_find(arena, at / per_chunk);
        if (holds != NULL && !one_drop(holds, at % per_chunk)) {
            drop_order_refused(arena->order, at, whole);
            return DROP_REFUSED;
        }
        drop_order_gone(arena->order, at);
        if (at == whole)
            return DROP_DONE;
    }
}
