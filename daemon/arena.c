/*
 * See arena.h. Records are made for what is there, not for what an arena might have: an arena that
 * names 65,536 chunks and fills none costs its table's head and an array of pointers.
 */
#include "daemon/arena.h"

#include <errno.h>
#include <search.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/log.h"
#include "base/memfile.h"
#include "daemon/arena_attach.h"
#include "daemon/arena_holder.h"
#include "daemon/arena_kept.h"
#include "daemon/arena_message.h"
#include "daemon/bell.h"
#include "daemon/broker.h"
#include "daemon/drop.h"
#include "daemon/evict.h"
#include "daemon/hosting.h"
#include "daemon/reclaim.h"
#include "daemon/restore.h"

static const char *const phases[] = {
    [ARENA_EMPTY] = "empty",
    [ARENA_MAPPED] = "mapped",
    [ARENA_CLOSING] = "closing",
    [ARENA_RECALLED] = "recalled",
    [ARENA_LOSING] = "losing",
};
static_assert(ARRAY_SIZE(phases) == ARENA_PHASE_MAX, "every phase has a name");

const char *arena_phase_name(enum arena_phase phase)
{
    return (unsigned) phase < ARENA_PHASE_MAX ? phases[phase] : "unknown";
}

/* ------------------------------------------------------------------ life */

static int table_make(struct arena *arena, const struct arena_table_header *layout)
{
    void *memory;

    arena->table_fd = memfile_new("gmbd-arena", layout->table_bytes);
    if (arena->table_fd < 0)
        return arena->table_fd;
    memory =
        mmap(NULL, layout->table_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, arena->table_fd, 0);
    if (memory == MAP_FAILED)
        return -errno;
    arena_table_format(memory, layout, &arena->table);
    return 0;
}

struct arena *arena_blank(
    struct broker *broker, uint32_t device, uint32_t element, const char *name)
{
    struct arena *arena = calloc(1, sizeof(*arena));

    if (arena == NULL)
        return NULL;
    arena->broker = broker;
    arena->device = device;
    arena->element = element;
    arena->table_fd = arena->kept_fd = -1;
    (void) snprintf(arena->name, sizeof(arena->name), "%s", name);
    list_init(&arena->holders);
    list_init(&arena->departed_link);
    list_init(&arena->device_link);
    list_init(&arena->fills);
    list_init(&arena->wanted);
    list_init(&arena->wanted_link);
    list_init(&arena->held);
    return arena;
}

int arena_new(struct client *client, uint32_t device, const struct arena_table_header *layout,
    uint32_t element, const char *name, struct arena **ret)
{
    struct arena *arena = arena_blank(client->broker, device, element, name);
    struct arena_holder *holder;
    int r;

    if (arena == NULL)
        return -ENOMEM;
    r = table_make(arena, layout);
    if (r == 0)
        r = arena_kept_new(arena);
    if (r == 0)
        r = arena_holder_new(arena, client->id, &holder);
    if (r == 0)
        holder->ready = true;
    if (r == 0) {
        arena->chunks = calloc(layout->max_chunks, sizeof(*arena->chunks));
        r = arena->chunks == NULL ? -ENOMEM : 0;
    }
    if (r < 0) {
        (void) arena_free(arena);
        return r;
    }
    *ret = arena;
    return 0;
}

static struct tier_account *account_of(const struct arena_chunk *chunk)
{
    const struct arena *arena = chunk->arena;

    return &arena->broker->hosting[arena->device]->accounts[arena->tenant];
}

static uint64_t pages_bytes(const struct arena_chunk *chunk)
{
    return chunk->arena->table.layout.pages_per_chunk * sizeof(*chunk->pages);
}

static void pages_free(struct arena_chunk *chunk)
{
    if (chunk->pages == NULL)
        return;
    account_of(chunk)->record_bytes -= pages_bytes(chunk);
    chunk->pages = NULL;
    /* What the broker leaves behind when it ends is its successor's. */
    if (!chunk->arena->broker->kept_closed)
        arena_kept_clear(chunk->arena, chunk->index);
}

/* `bytes` more, or less, of its tenant lie in the tier. */
static void evicted_count(const struct arena_chunk *chunk, uint64_t bytes)
{
    const struct arena *arena = chunk->arena;

    arena->broker->hosting[arena->device]->evicted[arena->tenant] += bytes;
}

static void chunk_free(struct arena_chunk *chunk)
{
    evicted_count(chunk, -(chunk->slots * chunk->arena->table.layout.page_bytes));
    evict_leave(chunk);
    list_remove(&chunk->wanted);
    chunk->arena->chunks[chunk->index] = NULL;
    pages_free(chunk);
    free(chunk);
}

struct arena *arena_free(struct arena *arena)
{
    if (arena == NULL)
        return NULL;
    for (uint32_t i = 0; i < arena->top; i++) {
        if (arena->chunks[i] != NULL)
            chunk_free(arena->chunks[i]);
    }
    free(arena->chunks);
    free(arena->order);
    arena_held_drop_all(arena);
    arena->space = tier_space_free(arena->space);
    close_fd(&arena->table_fd);
    close_fd(&arena->kept_fd);
    closer_unmap(arena->broker->closer, arena->table.shared, arena->table.layout.table_bytes);
    list_for_each_safe(holder, &arena->holders, struct arena_holder, link)(void)
        arena_holder_free(holder);
    list_remove(&arena->departed_link);
    reclaim_forget(arena);
    list_remove(&arena->device_link);
    list_remove(&arena->wanted_link);
    closer_unmap(arena->broker->closer, arena->kept, arena->kept_bytes);
    free(arena);
    return NULL;
}

static int lease_compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *) a, y = *(const uint64_t *) b;

    return x < y ? -1 : x > y;
}

int arena_enlist(struct arena *arena)
{
    struct broker *broker = arena->broker;

    if (tsearch(arena, &broker->arenas, lease_compare) == NULL)
        return -ENOMEM;
    if (arena->name[0] != '\0' && arena_name_publish(arena) < 0) {
        (void) tdelete(arena, &broker->arenas, lease_compare);
        return -ENOMEM;
    }
    list_append(&broker->hosting[arena->device]->arenas, &arena->device_link);
    broker->hosting[arena->device]->arena_count++;
    return 0;
}

int arena_bind(struct arena *arena, core_id lease)
{
    struct broker *broker = arena->broker;
    struct arena_holder *holder = list_first(&arena->holders, struct arena_holder, link);
    struct client *client = client_find(broker, holder->client);
    struct core_lease_view view;
    int r;

    if (client == NULL || !core_lease_get(broker->core, lease, &view))
        return -ESTALE;
    arena->lease = lease;
    arena->tenant = view.tenant;
    r = hosting_space_new(broker->hosting[arena->device], arena);
    if (r == 0)
        r = arena_enlist(arena);
    if (r < 0)
        return r;
    arena_holder_enter(holder, client);
    arena_kept_write(arena);
    return 0;
}

void arena_drop(struct arena *arena)
{
    struct hosting *hosting = arena->broker->hosting[arena->device];

    if (arena->dropped)
        return;
    arena->dropped = true;
    arena_kept_forget(arena);
    hosting->arena_count--;
    hosting_mover_spare(hosting);
    (void) tdelete(arena, &arena->broker->arenas, lease_compare);
    arena_name_withdraw(arena);
    list_for_each_safe(holder, &arena->holders, struct arena_holder, link)(void)
        arena_holder_free(holder);
    list_remove(&arena->departed_link);
    list_remove(&arena->wanted_link);
    restore_cancel(arena);
    for (uint32_t i = 0; i < arena->top; i++) {
        if (arena->chunks[i] != NULL)
            evict_leave(arena->chunks[i]);
    }
    if (arena->jobs == 0)
        (void) arena_free(arena);
}

struct arena *arena_find(const struct broker *broker, core_id lease)
{
    void *node = tfind(&lease, &broker->arenas, lease_compare);

    return node != NULL ? *(struct arena **) node : NULL;
}

/* ------------------------------------------------------------------ chunks */

struct arena_chunk *arena_chunk_find(const struct arena *arena, uint32_t index)
{
    return index < arena->table.layout.max_chunks ? arena->chunks[index] : NULL;
}

struct arena_chunk *arena_chunk_get(struct arena *arena, uint32_t index)
{
    struct arena_chunk *chunk = arena_chunk_find(arena, index);

    if (chunk != NULL || index >= arena->table.layout.max_chunks)
        return chunk;
    chunk = calloc(1, sizeof(*chunk));
    if (chunk == NULL)
        return NULL;
    list_init(&chunk->link);
    list_init(&chunk->wanted);
    chunk->arena = arena;
    chunk->index = index;
    arena->chunks[index] = chunk;
    arena->top = arena->kept->top = MAX(arena->top, index + 1);
    return chunk;
}

int arena_chunk_adopt(struct arena *arena, uint32_t index, uint32_t slots)
{
    struct arena_chunk *chunk = arena_chunk_get(arena, index);

    if (chunk == NULL)
        return -ENOMEM;
    chunk->pages = arena_kept_pages(arena, index);
    account_of(chunk)->record_bytes += pages_bytes(chunk);
    chunk->slots = slots;
    evicted_count(chunk, slots * arena->table.layout.page_bytes);
    return 0;
}

void arena_chunk_settle(struct arena_chunk *chunk)
{
    if (chunk->slots == 0 && chunk->jobs == 0)
        pages_free(chunk);
    if (chunk->phase == ARENA_EMPTY && chunk->pages == NULL)
        chunk_free(chunk);
}

bool arena_chunk_swap(
    struct arena_chunk *chunk, enum arena_chunk_state from, enum arena_chunk_state to)
{
    uint32_t expected = from;

    return __atomic_compare_exchange_n(&chunk->arena->table.chunks[chunk->index].state, &expected,
        (uint32_t) to, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

/* ------------------------------------------------------------------ pages */

uint64_t *arena_page_word(const struct arena_chunk *chunk, uint32_t page)
{
    const struct arena_table *table = &chunk->arena->table;

    return &table->pages[(size_t) chunk->index * table->layout.pages_per_chunk + page].word;
}

bool arena_page_swap(
    const struct arena_chunk *chunk, uint32_t page, uint64_t word, enum arena_page_state state)
{
    return __atomic_compare_exchange_n(arena_page_word(chunk, page), &word,
        arena_word_with_state(word, state), false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

/* Records are for all pages of a chunk, though only one may lie in the tier. The smallest pages
 * that chunks of 2 MiB can have, 512 bytes, take a 21st of what lies there when all do. */
#define RECORD_SHARE 16
#define RECORD_FLOOR (UINT64_C(1) << 20)

/* An enum tier_outcome or -ENOMEM. */
static int pages_make(struct arena_chunk *chunk)
{
    uint32_t count = chunk->arena->table.layout.pages_per_chunk;
    const struct hosting *hosting = chunk->arena->broker->hosting[chunk->arena->device];
    struct tier_account *account = account_of(chunk);
    uint64_t most = MIN(account->max_bytes, tier_bytes(hosting->tier)) / RECORD_SHARE;

    if (sub_saturate(MAX(most, RECORD_FLOOR), account->record_bytes) < pages_bytes(chunk))
        return TIER_HOST_MAX;
    chunk->pages = arena_kept_pages(chunk->arena, chunk->index);
    account->record_bytes += pages_bytes(chunk);
    for (uint32_t i = 0; i < count; i++)
        chunk->pages[i].slot = ARENA_NO_SLOT;
    return TIER_OK;
}

int arena_slot_take(struct arena_chunk *chunk, uint32_t page)
{
    int r;

    if (chunk->arena->space == NULL)
        return TIER_FULL;
    if (chunk->pages == NULL) {
        r = pages_make(chunk);
        if (r != TIER_OK)
            return r;
    }
    r = tier_slot_alloc(chunk->arena->space, &chunk->pages[page].slot);
    if (r != TIER_OK) {
        chunk->pages[page].slot = ARENA_NO_SLOT;
        return r;
    }
    chunk->slots++;
    evicted_count(chunk, chunk->arena->table.layout.page_bytes);
    return TIER_OK;
}

void arena_slot_give(struct arena_chunk *chunk, uint32_t page)
{
    struct arena_page *record = &chunk->pages[page];

    if (record->slot == ARENA_NO_SLOT)
        return;
    /* Before the slot can be another page's. */
    __atomic_store_n(&record->kept, false, __ATOMIC_RELEASE);
    if (tier_slot_free(chunk->arena->space, record->slot) < 0)
        log_error("arena %llu: a slot that was never taken is given back",
            (unsigned long long) chunk->arena->lease);
    if (record->wanted && --chunk->wants == 0)
        list_remove(&chunk->wanted);
    *record = (struct arena_page){.slot = ARENA_NO_SLOT};
    chunk->slots--;
    evicted_count(chunk, -chunk->arena->table.layout.page_bytes);
}

void arena_slots_sweep(struct arena_chunk *chunk)
{
    uint32_t count = chunk->arena->table.layout.pages_per_chunk;

    chunk->spare = 0;
    chunk->carrying = 0;
    for (uint32_t i = 0; chunk->slots > 0 && i < count; i++) {
        const struct arena_page *record = &chunk->pages[i];
        uint64_t word;

        if (record->slot == ARENA_NO_SLOT || record->job != ARENA_PAGE_IDLE)
            continue;
        word = __atomic_load_n(arena_page_word(chunk, i), __ATOMIC_SEQ_CST);
        if (arena_word_state(word) != ARENA_PAGE_EVICTED ||
            arena_word_generation(word) != record->generation)
            arena_slot_give(chunk, i);
        else if (drop_allows(chunk, i, word))
            *(drop_carries(chunk, i) ? &chunk->carrying : &chunk->spare) += 1;
    }
}

static bool chunk_spares_drop(struct arena_chunk *chunk, bool carrying)
{
    uint32_t count = chunk->arena->table.layout.pages_per_chunk, before = chunk->slots;

    for (uint32_t i = 0; chunk->slots > 0 && i < count; i++) {
        uint64_t word = __atomic_load_n(arena_page_word(chunk, i), __ATOMIC_SEQ_CST);

        if (arena_word_state(word) == ARENA_PAGE_EVICTED && drop_allows(chunk, i, word) &&
            (carrying || !drop_carries(chunk, i)) && drop_page(chunk, i) == DROP_LATER)
            return chunk->slots < before; /* it still has some */
    }
    chunk->spare = 0;
    if (carrying)
        chunk->carrying = 0;
    return chunk->slots < before;
}

/* The chunk with spares that was used longest ago; NULL when there is none. */
static struct arena_chunk *spares_oldest(const struct arena *arena, bool carrying)
{
    uint32_t now = (uint32_t) (clock_now(arena->broker->clock) / ARENA_TICK_NS), oldest_age = 0;
    struct arena_chunk *oldest = NULL;

    for (uint32_t i = 0; i < arena->top; i++) {
        struct arena_chunk *chunk = arena->chunks[i];
        uint32_t age = now - __atomic_load_n(&arena->table.chunks[i].last_use, __ATOMIC_RELAXED);

        if (chunk == NULL || chunk->spare + (carrying ? chunk->carrying : 0) == 0 ||
            (oldest != NULL && age <= oldest_age))
            continue;
        oldest = chunk;
        oldest_age = age;
    }
    return oldest;
}

bool arena_slots_drop(struct arena *arena, bool carrying)
{
    const struct hosting *hosting = arena->broker->hosting[arena->device];
    struct arena_chunk *chunk;

    while (hosting->drop_budget > 0 && (chunk = spares_oldest(arena, carrying)) != NULL) {
        bool some = chunk_spares_drop(chunk, carrying);

        if (chunk->phase == ARENA_EMPTY)
            arena_chunk_settle(chunk);
        if (some)
            return true;
    }
    return false;
}

/* ------------------------------------------------------------------ to the worker and the log */

void arena_notify(const struct arena *arena)
{
    list_for_each(holder, &arena->holders, struct arena_holder, link) bell_ring(holder->event_fd);
}

void arena_blame(struct arena *arena, const struct arena_chunk *chunk, const char *what)
{
    const struct client *client = arena_client(arena);

    if (arena->nonsense)
        return;
    arena->nonsense = true;
    log_warning("arena %llu of tenant %s (pid %d): the page table makes no sense: chunk %u, %s",
        (unsigned long long) arena->lease, client != NULL ? client->tenant : "?",
        client != NULL ? (int) client->identity.pid : 0, chunk->index, what);
}
