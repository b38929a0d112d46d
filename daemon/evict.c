/*
 * A chunk goes round: everything that may leave is handed to the mover; when that is done the chunk
 * is looked at again, since pages were rescued, freed or unpinned meanwhile. It is through when it
 * is vacant, and given up when a round finds nothing to move and it still isn't.
 *
 * Only the broker makes a page EVICTING, and none whose record a job names: so a page that is
 * EVICTING when its copy is done is the page that was copied.
 */
#include "daemon/evict.h"

#include "base/log.h"
#include "daemon/arena_holder.h"
#include "daemon/broker.h"
#include "daemon/drop.h"
#include "daemon/recall.h"

/* Chunks looked at in one turn: each may have 4,096 pages, which take some ten microseconds. */
#define TURN_CHUNKS 64
/* A worker that pins and unpins for ever is not waited for. */
#define ROUNDS_MAX 16
/* A thread that holds a token puts it back at once, unless it was put aside by the kernel. */
#define WAIT_PAUSE_NS NSEC_PER_MSEC
#define WAIT_ROUNDS 200
/* A chunk that could not be emptied isn't chosen again before. */
#define REST_NS NSEC_PER_SEC
#define LINES 10
#define LINES_INTERVAL_NS (5 * NSEC_PER_SEC)

/* What a round found in a chunk. */
struct round {
    uint32_t copied, dropped, pinned, first_pinned;
    enum tier_outcome tier; /* why a page found no slot */
    bool later;             /* the turn has dropped enough */
};

static struct hosting *hosting_of(const struct arena_chunk *chunk)
{
    return chunk->arena->broker->hosting[chunk->arena->device];
}

/* On its way: it counts for who is to get it, and against who has it. */
static void chunk_count(struct arena_chunk *chunk, bool counted)
{
    struct hosting *hosting = hosting_of(chunk);
    uint64_t bytes = chunk->arena->table.layout.chunk_bytes;

    if (chunk->counted == counted)
        return;
    chunk->counted = counted;
    hosting->leaving[chunk->arena->tenant] += counted ? bytes : -bytes;
    if (chunk->beneficiary < LIMIT_TENANTS)
        hosting->coming[chunk->beneficiary] += counted ? bytes : -bytes;
}

bool evict_start(struct arena_chunk *chunk, uint32_t drops, uint32_t beneficiary)
{
    struct hosting *hosting = hosting_of(chunk);

    if (chunk->phase != ARENA_MAPPED || chunk->opening ||
        !arena_chunk_swap(chunk, ARENA_CHUNK_LIVE, ARENA_CHUNK_CLOSED))
        return false;
    chunk->phase = ARENA_CLOSING;
    chunk->drops = drops;
    chunk->rounds = 0;
    chunk->beneficiary = beneficiary;
    chunk_count(chunk, true);
    list_append(&hosting->closing, &chunk->link);
    hosting_kick(hosting);
    return true;
}

void evict_leave(struct arena_chunk *chunk)
{
    chunk_count(chunk, false);
    list_remove(&chunk->link);
}

void evict_reopen(struct arena_chunk *chunk)
{
    evict_leave(chunk);
    chunk->phase = ARENA_MAPPED;
    chunk->due_ns = clock_now(chunk->arena->broker->clock) + REST_NS;
    if (!chunk->opening && !arena_chunk_swap(chunk, ARENA_CHUNK_CLOSED, ARENA_CHUNK_LIVE))
        arena_blame(chunk->arena, chunk, "somebody else opened it while it was closed");
}

/* ------------------------------------------------------------------ one round */

/* The tier has no room for a page, and the plan counted on some: what lies there for nothing on the
 * device goes first, then the page itself with what continues it, and last what pages on the device
 * continue. As long as copies are on their way the last two wait: those may be what continues it.
 * The outcome of another try for a slot; `r` where nothing has changed. */
static int room_make(
    struct arena_chunk *chunk, uint32_t page, uint64_t word, int r, struct round *round)
{
    enum drop_outcome outcome;

    if (arena_slots_drop(chunk->arena, false))
        return arena_slot_take(chunk, page);
    if (round->copied > 0 || chunk->jobs > 0)
        return r;
    outcome = drop_allows(chunk, page, word) ? drop_page(chunk, page) : DROP_REFUSED;
    if (outcome == DROP_REFUSED)
        return arena_slots_drop(chunk->arena, true) ? arena_slot_take(chunk, page) : r;
    if (outcome == DROP_DONE)
        round->dropped++;
    round->later = round->later || outcome == DROP_LATER;
    return r;
}

static void page_evict(struct arena_chunk *chunk, uint32_t page, uint64_t word, struct round *round)
{
    struct arena_page *record = chunk->pages != NULL ? &chunk->pages[page] : NULL;
    int r;

    if (record != NULL && record->job != ARENA_PAGE_IDLE) {
        round->copied++; /* an earlier job still names it: it is looked at after that */
        return;
    }
    if (record != NULL)
        arena_slot_give(chunk, page);
    r = arena_slot_take(chunk, page);
    if (r != TIER_OK && chunk->drops == 0)
        r = room_make(chunk, page, word, r, round);
    if (r != TIER_OK) {
        if (round->tier == TIER_OK)
            round->tier = r < 0 ? TIER_FULL : (enum tier_outcome) r;
        round->later = round->later || hosting_of(chunk)->drop_budget == 0;
        return;
    }
    record = &chunk->pages[page];
    record->generation = arena_word_generation(word);
    if (!arena_page_swap(chunk, page, word, ARENA_PAGE_EVICTING)) {
        arena_slot_give(chunk, page);
        return;
    }
    if (move_add(hosting_of(chunk), MOVER_EVICT, chunk, page))
        round->copied++;
    else
        evict_page_done(chunk, page, NULL);
}

static void page_round(struct arena_chunk *chunk, uint32_t page, struct round *round)
{
    uint64_t word = __atomic_load_n(arena_page_word(chunk, page), __ATOMIC_SEQ_CST);

    if (arena_word_state(word) != ARENA_PAGE_RESIDENT)
        return;
    if (arena_word_pins(word) > 0) {
        if (round->pinned++ == 0)
            round->first_pinned = page;
    } else if (arena_word_refs(word) > 0) {
        page_evict(chunk, page, word, round);
    }
}

static int by_drop_order(const void *a, const void *b)
{
    return drop_order_compare(
        *(const struct drop_page *const *) a, *(const struct drop_page *const *) b);
}

/* Into `sorted`, pages_per_chunk of them: those that go first come last. Returns the first page's
 * entry. */
static const struct drop_page *chunk_sort(
    const struct arena_chunk *chunk, const struct drop_page **sorted)
{
    uint32_t count = chunk->arena->table.layout.pages_per_chunk;
    const struct drop_page *first = &chunk->arena->order[(size_t) chunk->index * count];

    for (uint32_t i = 0; i < count; i++)
        sorted[i] = &first[i];
    qsort(sorted, count, sizeof(*sorted), by_drop_order);
    return first;
}

/* Some pages find no slot and the plan allows to drop them: so those that go first are copied last,
 * and what is left of them without a slot is dropped. */
static void chunk_round_dropping(struct arena_chunk *chunk, struct round *round)
{
    const struct drop_page *sorted[ARENA_PAGES_PER_CHUNK_MAX] = {NULL};
    const struct drop_page *first = chunk_sort(chunk, sorted);
    uint32_t count = chunk->arena->table.layout.pages_per_chunk;

    for (uint32_t i = 0; i < count; i++)
        page_round(chunk, (uint32_t) (sorted[i] - first), round);
    for (uint32_t i = count; i-- > 0 && round->tier != TIER_OK && chunk->drops > 0;) {
        uint32_t page = (uint32_t) (sorted[i] - first);
        uint64_t word = __atomic_load_n(arena_page_word(chunk, page), __ATOMIC_SEQ_CST);
        enum drop_outcome outcome;

        if (arena_word_state(word) != ARENA_PAGE_RESIDENT || !drop_allows(chunk, page, word))
            continue;
        outcome = drop_page(chunk, page);
        if (outcome == DROP_DONE) {
            chunk->drops--;
            round->dropped++;
        } else if (outcome == DROP_LATER) {
            round->later = true;
            break;
        }
    }
}

static struct round chunk_round(struct arena_chunk *chunk)
{
    uint32_t count = chunk->arena->table.layout.pages_per_chunk;
    struct round round = {.tier = TIER_OK};

    if (chunk->drops > 0 && chunk->arena->order != NULL) {
        chunk_round_dropping(chunk, &round);
        return round;
    }
    for (uint32_t page = 0; page < count; page++)
        page_round(chunk, page, &round);
    return round;
}

static void obstacle_log(const struct arena_chunk *chunk, const struct round *round)
{
    const struct arena *arena = chunk->arena;
    struct hosting *hosting = hosting_of(chunk);
    const struct client *client = arena_client(arena);
    uint64_t now = clock_now(arena->broker->clock);
    uint32_t held;

    if (!ratelimit_pass(&hosting->obstacles, now, LINES_INTERVAL_NS, LINES, &held))
        return;
    if (held > 0)
        log_info("device %u: %u more chunks could not be emptied", arena->device, held);
    if (round->pinned > 0)
        log_info("chunk %u of arena %llu (tenant %s, pid %d) stays: %u pages are pinned, first "
                 "page %u",
            chunk->index, (unsigned long long) arena->lease, client != NULL ? client->tenant : "?",
            client != NULL ? (int) client->identity.pid : 0, round->pinned,
            chunk->index * arena->table.layout.pages_per_chunk + round->first_pinned);
    else
        log_info("chunk %u of arena %llu (tenant %s) stays: %s", chunk->index,
            (unsigned long long) arena->lease, client != NULL ? client->tenant : "?",
            round->tier == TIER_HOST_MAX ? "its tenant has all of its HostMax="
            : round->tier != TIER_FULL   ? "its pages are in use"
            : disk_failing(hosting)      ? "the host tier is full but for a disk that fails"
                                         : "the host tier is full");
}

/* The chunk is vacant but for tokens in some thread's hands, or this turn has dropped enough: it
 * stays in the queue, not at once. */
static void chunk_wait(struct arena_chunk *chunk)
{
    struct hosting *hosting = hosting_of(chunk);

    if (chunk->rounds++ >= WAIT_ROUNDS) {
        evict_reopen(chunk);
        return;
    }
    chunk->due_ns = clock_now(chunk->arena->broker->clock) + WAIT_PAUSE_NS;
    list_remove(&chunk->link);
    list_append(&hosting->closing, &chunk->link);
    hosting_at(hosting, chunk->due_ns);
}

static void chunk_judge(struct arena_chunk *chunk, const struct round *round)
{
    switch (arena_table_chunk_vacant(&chunk->arena->table, chunk->index)) {
    case ARENA_VACANT:
        list_remove(&chunk->link);
        observers_evicted(
            &chunk->arena->broker->observers, &(struct broker_taking){
                                                  .device = chunk->arena->device,
                                                  .tenant = chunk->arena->tenant,
                                                  .beneficiary = chunk->beneficiary,
                                                  .bytes = chunk->arena->table.layout.chunk_bytes,
                                              });
        recall_add(chunk);
        break;
    case ARENA_VACANT_SOON:
        chunk_wait(chunk);
        break;
    case ARENA_OCCUPIED:
    case ARENA_VACANCY_MAX:
        obstacle_log(chunk, round);
        evict_reopen(chunk);
        break;
    }
}

void evict_turn(struct hosting *hosting)
{
    uint64_t now = clock_now(hosting->broker->clock);
    struct arena_chunk *chunk;
    unsigned done = 0;

    hosting->drop_budget = DROP_TURN_PAGES;
    while ((chunk = list_first(&hosting->closing, struct arena_chunk, link)) != NULL) {
        struct round round;

        if (chunk->due_ns > now) {
            hosting_at(hosting, chunk->due_ns);
            break;
        }
        if (done++ == TURN_CHUNKS) {
            hosting_kick(hosting);
            break;
        }
        if (hosting->mover != NULL && !move_room(hosting))
            break; /* some job's end brings the next turn */
        round = chunk_round(chunk);
        if (round.copied > 0 || chunk->jobs > 0)
            list_remove(&chunk->link); /* its jobs bring it back */
        else if (round.later)
            chunk_wait(chunk);
        else if (round.dropped == 0)
            chunk_judge(chunk, &round);
    }
    move_flush(hosting);
}

/* ------------------------------------------------------------------ what comes back */

void evict_page_done(struct arena_chunk *chunk, uint32_t page, const uint64_t *checksum)
{
    struct arena_page *record = &chunk->pages[page];
    bool evicted = checksum != NULL;
    uint64_t word;

    record->job = ARENA_PAGE_IDLE;
    /* A successor believes the word only where this says that the bytes are there. */
    if (evicted) {
        record->checksum = *checksum;
        __atomic_store_n(&record->kept, true, __ATOMIC_RELEASE);
    }
    /* A word that changes meanwhile may only have got or lost a reference. */
    do {
        word = __atomic_load_n(arena_page_word(chunk, page), __ATOMIC_SEQ_CST);
        if (arena_word_state(word) != ARENA_PAGE_EVICTING ||
            arena_word_generation(word) != record->generation) {
            evicted = false; /* the worker rescued or freed it */
            break;
        }
    } while (
        !arena_page_swap(chunk, page, word, evicted ? ARENA_PAGE_EVICTED : ARENA_PAGE_RESIDENT));
    if (!evicted) {
        arena_slot_give(chunk, page);
        return;
    }
    (void) __atomic_add_fetch(&chunk->arena->table.shared->evictions, 1, __ATOMIC_RELAXED);
}

void evict_chunk_done(struct arena_chunk *chunk)
{
    struct hosting *hosting = hosting_of(chunk);

    if (chunk->jobs > 0)
        return;
    if (chunk->phase != ARENA_CLOSING) {
        arena_chunk_settle(chunk);
        return;
    }
    if (chunk->rounds++ >= ROUNDS_MAX) {
        evict_reopen(chunk);
        return;
    }
    chunk->due_ns = 0;
    if (!list_linked(&chunk->link))
        list_append(&hosting->closing, &chunk->link);
}
