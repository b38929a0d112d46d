/*
 * Who holds an arena goes on all the while: words of pages change under our eyes, and the table may
 * say anything. What is believed is the broker's own record of a page; the word only says whether
 * it still counts:
 *
 *   EVICTING    its copy was not through: RESIDENT
 *   RESTORING   its slot still has the bytes: EVICTED
 *   EVICTED     with a record of its generation whose bytes are there: goes on; else LOST
 *
 * Chunks are in nobody's hands yet: each is mapped again when a holder says that it has it.
 */
#include "daemon/arena_recover.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memfile.h"
#include "daemon/arena_forget.h"
#include "daemon/arena_holder.h"
#include "daemon/arena_kept.h"
#include "daemon/bell.h"
#include "daemon/broker.h"

/* `holder`: of an EVENT. */
static struct fdstore_item *item_of(const struct broker *broker, enum fdstore_kind kind,
    core_id lease, uint32_t device, uint32_t holder)
{
    struct fdstore_item *item = NULL;
    uint32_t name;

    if (arena_kept_name(broker, lease, device, &name))
        item = fdstore_find(
            broker->store, kind, kind == FDSTORE_EVENT ? arena_kept_name_of(name, holder) : name);
    return item != NULL && !item->ambiguous ? item : NULL;
}

/* ------------------------------------------------------------------ what it is */

static bool kept_read(const struct core_lease_view *lease, int fd, struct arena_kept *ret,
    struct arena_table_header *ret_layout)
{
    return pread(fd, ret, sizeof(*ret), 0) == (ssize_t) sizeof(*ret) &&
           ret->magic == ARENA_KEPT_MAGIC && ret->lease == lease->id &&
           ret->max_chunks == lease->max_chunks && ret->chunk_bytes == lease->chunk_bytes &&
           ret->element < MOVER_ELEMENT_MAX && ret->format < MOVER_FORMAT_MAX &&
           ret->top <= ret->max_chunks && memchr(ret->name, '\0', sizeof(ret->name)) != NULL &&
           arena_table_layout(
               ret->page_bytes, ret->chunk_bytes, ret->max_chunks, ret->flags, ret_layout) == 0;
}

/* Its own holders may write there, and nobody can make it shorter. */
static int table_map(struct arena *arena, int fd, const struct arena_table_header *layout)
{
    int r = memfile_check(fd, layout->table_bytes);
    void *memory;

    if (r < 0)
        return r;
    memory = mmap(NULL, layout->table_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        return -errno;
    arena_table_bind(memory, layout, &arena->table);
    if (arena->name[0] == '\0')
        return 0;
    arena->table_fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
    return arena->table_fd < 0 ? -errno : 0;
}

int arena_space_make(struct arena *arena, uint32_t format)
{
    struct hosting *hosting = arena->broker->hosting[arena->device];
    uint64_t page_bytes = arena->table.layout.page_bytes;
    int r;

    arena->format = format;
    arena->slot_bytes = mover_slot_bytes(
        (enum mover_format) format, (enum mover_element) arena->element, page_bytes);
    if (arena->slot_bytes == 0)
        arena->slot_bytes = page_bytes;
    arena->kept->memory_bytes = hosting_memory_bytes(hosting);
    if (hosting->tier == NULL)
        return 0;
    r = tier_space_new(
        hosting->tier, &hosting->accounts[arena->tenant], arena->slot_bytes, &arena->space);
    return r == -EFBIG ? 0 : r;
}

/* ------------------------------------------------------------------ holders */

static int holder_recover(struct arena *arena, uint32_t number, core_id client)
{
    struct broker *broker = arena->broker;
    const struct fdstore_item *item =
        item_of(broker, FDSTORE_EVENT, arena->lease, arena->device, number);
    int fd = -1;

    if (item != NULL && !bell_is(item->fd))
        return -EINVAL;
    if (item != NULL)
        fd = fcntl(item->fd, F_DUPFD_CLOEXEC, 3);
    if (fd < 0)
        return item != NULL ? -errno : -ENOENT;
    return arena_holder_restore_consume(arena, client, number, fd);
}

static int holders_recover(struct arena *arena)
{
    struct broker *broker = arena->broker;
    uint32_t found = 0;
    int r = 0;

    for (uint32_t i = 0; r == 0 && i < ARENA_HOLDERS_MAX; i++) {
        core_id client = arena->kept->holders[i];

        if (client == 0)
            continue;
        if (client_find(broker, client) != NULL &&
            core_holder_find(broker->core, arena->lease, client)) {
            r = holder_recover(arena, i, client);
            found++;
        } else {
            /* It died with the broker, or let go: its bits are to be cleared. */
            arena->numbers |= 1u << i;
            arena->departed |= 1u << i;
        }
    }
    return r == 0 && found == 0 ? -ENOENT : r;
}

/* ------------------------------------------------------------------ pages */

struct finding {
    bool other_tier; /* its slots aren't in the tier that there is now */
    uint32_t lost;   /* pages that were in it */
};

/* Whether the record counts; the word is brought to where a page is that nobody moves. Counts what
 * the record says lies in the tier, and doesn't. */
static bool page_recover(
    struct arena *arena, uint64_t *at, const struct arena_page *record, struct finding *finding)
{
    uint64_t word = __atomic_load_n(at, __ATOMIC_SEQ_CST);
    bool claimed = false;

    for (;;) {
        enum arena_page_state state = arena_word_state(word), next;

        if (state == ARENA_PAGE_EVICTED || state == ARENA_PAGE_RESTORING) {
            claimed =
                claimed || (record->kept && record->generation == arena_word_generation(word) &&
                               arena->space != NULL && !finding->other_tier &&
                               tier_slot_claim(arena->space, record->slot) == 0);
            next = claimed ? ARENA_PAGE_EVICTED : ARENA_PAGE_LOST;
        } else if (state == ARENA_PAGE_EVICTING) {
            next = ARENA_PAGE_RESIDENT;
        } else {
            return claimed; /* freed meanwhile: the slot goes with the next sweep */
        }
        if (next == state ||
            __atomic_compare_exchange_n(at, &word, arena_word_with_state(word, next), false,
                __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
            finding->lost += next == ARENA_PAGE_LOST && record->kept &&
                             record->generation == arena_word_generation(word);
            return claimed;
        }
    }
}

static int chunk_recover(struct arena *arena, uint32_t index, struct finding *finding)
{
    uint32_t count = arena->table.layout.pages_per_chunk, slots = 0;
    struct arena_page *records = arena_kept_pages(arena, index);
    struct arena_table_page *pages = &arena->table.pages[(size_t) index * count];

    for (uint32_t i = 0; i < count; i++) {
        bool counts = page_recover(arena, &pages[i].word, &records[i], finding);

        if (!counts)
            records[i] = (struct arena_page){.slot = ARENA_NO_SLOT};
        records[i].job = ARENA_PAGE_IDLE;
        records[i].wanted = false;
        records[i].failures = 0;
        slots += counts;
    }
    if (slots == 0) {
        arena_kept_clear(arena, index);
        return 0;
    }
    return arena_chunk_adopt(arena, index, slots);
}

/* Chunks whose last holder died with the broker have nobody's bytes behind them. */
static void chunks_lose(struct arena *arena)
{
    uint32_t number, generation;

    for (uint32_t i = 0; arena_table_shared(&arena->table) && i < arena->top; i++) {
        if (!core_lease_chunk(arena->broker->core, arena->lease, i, &number, &generation) &&
            __atomic_load_n(&arena->table.chunks[i].state, __ATOMIC_SEQ_CST) != ARENA_CHUNK_EMPTY)
            arena_index_emptied(arena, i);
    }
}

/* ------------------------------------------------------------------ all of it */

static int arena_fill_in(struct arena *arena, const struct arena_kept *kept,
    const struct arena_table_header *layout, int table_fd, int pages_fd, struct finding *finding)
{
    int r = table_map(arena, table_fd, layout);

    if (r == 0)
        r = arena_kept_map(arena, pages_fd);
    finding->other_tier =
        kept->memory_bytes != 0 &&
        kept->memory_bytes != hosting_memory_bytes(arena->broker->hosting[arena->device]);
    if (r == 0)
        r = arena_space_make(arena, kept->format);
    if (r == 0) {
        arena->chunks = calloc(layout->max_chunks, sizeof(struct arena_chunk *));
        r = arena->chunks != NULL ? holders_recover(arena) : -ENOMEM;
    }
    arena->top = r == 0 ? kept->top : 0;
    for (uint32_t i = 0; r == 0 && i < kept->top; i++)
        r = chunk_recover(arena, i, finding);
    if (r == 0)
        r = arena_enlist(arena);
    return r;
}

/* The fds are this arena's from now on. */
static void items_close(const struct arena *arena)
{
    struct broker *broker = arena->broker;

    fdstore_close(item_of(broker, FDSTORE_TABLE, arena->lease, arena->device, 0));
    fdstore_close(item_of(broker, FDSTORE_PAGES, arena->lease, arena->device, 0));
    list_for_each(holder, &arena->holders, struct arena_holder, link)
        fdstore_close(item_of(broker, FDSTORE_EVENT, arena->lease, arena->device, holder->number));
}

static void arena_go_on(struct arena *arena)
{
    struct hosting *hosting = arena->broker->hosting[arena->device];

    arena->stored = true;
    list_for_each(holder, &arena->holders, struct arena_holder, link)
    {
        holder->stored = true;
        arena_holder_enter(holder, client_find(arena->broker, holder->client));
    }
    if (arena->departed != 0)
        list_append(&hosting->departed, &arena->departed_link);
    chunks_lose(arena);
    hosting_kick(hosting);
}

/* False: it isn't to be had. */
static bool arena_recover(struct broker *broker, const struct core_lease_view *lease)
{
    const struct fdstore_item *table = item_of(broker, FDSTORE_TABLE, lease->id, lease->device, 0),
                              *pages = item_of(broker, FDSTORE_PAGES, lease->id, lease->device, 0);
    struct arena_table_header layout;
    struct arena_kept kept;
    struct arena *arena;
    struct finding finding = {0};
    int r;

    if (table == NULL || pages == NULL || !kept_read(lease, pages->fd, &kept, &layout))
        return false;
    arena = arena_blank(broker, lease->device, kept.element, kept.name);
    if (arena == NULL)
        return false;
    arena->lease = lease->id;
    arena->tenant = lease->tenant;
    r = arena_fill_in(arena, &kept, &layout, table->fd, pages->fd, &finding);
    if (r < 0) {
        log_warning("arena %llu can't be gone on with: %s", (unsigned long long) lease->id,
            r == -ENOENT ? "a holder's fd is missing" : strerror(-r));
        (void) arena_free(arena);
        return false;
    }
    items_close(arena);
    arena_go_on(arena);
    if (finding.lost > 0)
        log_warning("arena %llu goes on without %u page%s that lay in the host tier",
            (unsigned long long) lease->id, finding.lost, PLURAL_S(finding.lost));
    broker->recovery.lost_pages += finding.lost;
    return true;
}

void arenas_recover(struct broker *broker)
{
    struct core_lease_view lease = {0};

    while (core_lease_next(broker->core, lease.id, &lease)) {
        if (lease.kind != CORE_LEASE_ARENA)
            continue;
        if (arena_recover(broker, &lease))
            broker->recovery.arenas++;
        else
            broker->recovery.lost_arenas++;
    }
}
