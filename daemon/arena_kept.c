/*
 * See arena_kept.h. A name in the store is used again only behind its removal, as one thread does
 * both: hence the device in it.
 */
#include "daemon/arena_kept.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "base/memfile.h"
#include "daemon/arena_holder.h"
#include "daemon/arena_message.h"
#include "daemon/broker.h"
#include "daemon/ledger/ledger.h"

#define PAGE UINT64_C(4096)
/* So many that each holder of an arena on each device has one. */
#define NAMES_OF_DEVICE (UINT32_MAX / (LIMIT_DEVICES * ARENA_HOLDERS_MAX))

/* An ArenaCreated that waits for the store. */
struct kept_answer {
    struct list link; /* broker.kept_answers */
    uint64_t tag, request;
    core_id lease, client;
};

static uint64_t kept_bytes(const struct arena_table_header *layout)
{
    return ARENA_KEPT_HEAD +
           (uint64_t) layout->max_chunks * layout->pages_per_chunk * sizeof(struct arena_page);
}

/* ------------------------------------------------------------------ the memfd */

int arena_kept_map(struct arena *arena, int fd)
{
    uint64_t bytes = kept_bytes(&arena->table.layout);
    int r = memfile_check(fd, bytes);
    void *memory;

    if (r < 0)
        return r;
    memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (memory == MAP_FAILED)
        return -errno;
    arena->kept = memory;
    arena->kept_bytes = bytes;
    return 0;
}

int arena_kept_new(struct arena *arena)
{
    int r;

    arena->kept_fd = memfile_new("gmbd-arena-pages", kept_bytes(&arena->table.layout));
    if (arena->kept_fd < 0)
        return arena->kept_fd;
    r = arena_kept_map(arena, arena->kept_fd);
    if (arena->broker->store == NULL)
        close_fd(&arena->kept_fd);
    return r;
}

void arena_kept_write(struct arena *arena)
{
    struct arena_kept *kept = arena->kept;

    kept->lease = arena->lease;
    kept->page_bytes = arena->table.layout.page_bytes;
    kept->chunk_bytes = arena->table.layout.chunk_bytes;
    kept->max_chunks = arena->table.layout.max_chunks;
    kept->flags = arena->table.layout.flags;
    kept->element = arena->element;
    kept->format = arena->format;
    kept->memory_bytes = hosting_memory_bytes(arena->broker->hosting[arena->device]);
    (void) snprintf(kept->name, sizeof(kept->name), "%s", arena->name);
    __atomic_store_n(&kept->magic, ARENA_KEPT_MAGIC, __ATOMIC_RELEASE);
}

struct arena_page *arena_kept_pages(const struct arena *arena, uint32_t index)
{
    struct arena_page *records =
        (struct arena_page *) (void *) ((char *) arena->kept + ARENA_KEPT_HEAD);

    return &records[(size_t) index * arena->table.layout.pages_per_chunk];
}

void arena_kept_clear(const struct arena *arena, uint32_t index)
{
    char *first = (char *) arena_kept_pages(arena, index);
    uint64_t bytes = arena->table.layout.pages_per_chunk * sizeof(struct arena_page);
    uint64_t before = -(uintptr_t) first % PAGE, whole;

    if (before < bytes) {
        whole = (bytes - before) / PAGE * PAGE;
        /* Where the kernel doesn't, they are zero all the same. */
        if (whole > 0 && madvise(first + before, whole, MADV_REMOVE) < 0)
            memset(first + before, 0, whole);
        memset(first, 0, before);
        memset(first + before + whole, 0, bytes - before - whole);
    } else {
        memset(first, 0, bytes);
    }
}

void arena_kept_number(struct arena *arena, uint32_t number, core_id client)
{
    __atomic_store_n(&arena->kept->holders[number], client, __ATOMIC_RELEASE);
}

/* ------------------------------------------------------------------ the store */

bool arena_kept_name(const struct broker *broker, core_id lease, uint32_t device, uint32_t *ret)
{
    uint32_t slot = (uint32_t) lease - 1;

    if (slot >= NAMES_OF_DEVICE)
        return false;
    *ret = ledger_device(broker->ledger, device) * NAMES_OF_DEVICE + slot;
    return true;
}

static bool name_of(const struct arena *arena, uint32_t *ret)
{
    return arena_kept_name(arena->broker, arena->lease, arena->device, ret);
}

static int arena_put(struct arena *arena)
{
    const struct executor_keep keeps[] = {
        {FDSTORE_TABLE, arena->table_fd},
        {FDSTORE_PAGES, arena->kept_fd},
    };
    uint32_t name;
    int r = -EOVERFLOW;

    if (name_of(arena, &name))
        r = executor_keep(
            arena->broker->executor, arena->device, keeps, ARRAY_SIZE(keeps), name, 0);
    arena->stored = r == 0;
    close_fd(&arena->kept_fd);
    return r;
}

static int holder_put(struct arena_holder *holder, uint64_t tag)
{
    const struct executor_keep keep = {FDSTORE_EVENT, holder->event_fd};
    struct arena *arena = holder->arena;
    uint32_t name;
    int r = -EOVERFLOW;

    if (name_of(arena, &name))
        r = executor_keep(arena->broker->executor, arena->device, &keep, 1,
            arena_kept_name_of(name, holder->number), tag);
    holder->stored = r == 0;
    return r;
}

/* False: it isn't kept, or can't be waited for. */
static bool answer_wait(
    struct session *session, uint64_t request, struct arena_holder *holder, bool first)
{
    struct broker *broker = session->broker;
    struct kept_answer *answer = broker->store != NULL ? malloc(sizeof(*answer)) : NULL;

    if (answer == NULL)
        return false;
    *answer = (struct kept_answer){
        .tag = ++broker->kept_tags,
        .request = request,
        .lease = holder->arena->lease,
        .client = holder->client,
    };
    if ((first && arena_put(holder->arena) < 0) || holder_put(holder, answer->tag) < 0) {
        free(answer);
        return false;
    }
    list_init(&answer->link);
    list_append(&broker->kept_answers, &answer->link);
    return true;
}

int arena_kept_answer(
    struct session *session, uint64_t request, struct arena_holder *holder, bool first)
{
    if (answer_wait(session, request, holder, first))
        return 0;
    return arena_created_send(session, request, holder);
}

static struct kept_answer *answer_find(const struct broker *broker, uint64_t tag)
{
    list_for_each(answer, &broker->kept_answers, struct kept_answer, link)
    {
        if (answer->tag == tag)
            return answer;
    }
    return NULL;
}

static void answer_send(struct broker *broker, const struct kept_answer *answer)
{
    const struct arena *arena = arena_find(broker, answer->lease);
    struct arena_holder *holder = arena != NULL ? arena_holder_find(arena, answer->client) : NULL;
    struct session *session = holder != NULL ? arena_holder_session(holder) : NULL;
    int r;

    /* Who came back meanwhile has said that it has no such arena, and asks anew. */
    if (session == NULL)
        return;
    r = arena_created_send(session, answer->request, holder);
    if (r < 0)
        session_doom(session,
            r == -EPIPE || r == -ECONNRESET ? NULL : "the broker has no room for its arena");
}

void arena_kept_done(struct broker *broker, const struct executor_done *done)
{
    struct kept_answer *answer = answer_find(broker, done->tag);

    if (answer == NULL)
        return;
    list_remove(&answer->link);
    answer_send(broker, answer);
    free(answer);
}

void arena_kept_forget_holder(const struct arena_holder *holder)
{
    static const enum fdstore_kind kind = FDSTORE_EVENT;
    const struct arena *arena = holder->arena;
    uint32_t name;

    if (holder->stored && !arena->broker->kept_closed && name_of(arena, &name))
        executor_unkeep(arena->broker->executor, arena->device, &kind, 1,
            arena_kept_name_of(name, holder->number));
}

void arena_kept_forget(const struct arena *arena)
{
    static const enum fdstore_kind kinds[] = {FDSTORE_TABLE, FDSTORE_PAGES};

    uint32_t name;

    if (arena->stored && !arena->broker->kept_closed && name_of(arena, &name))
        executor_unkeep(arena->broker->executor, arena->device, kinds, ARRAY_SIZE(kinds), name);
}

void arena_kept_close(struct broker *broker)
{
    broker->kept_closed = true;
    list_for_each_safe(answer, &broker->kept_answers, struct kept_answer, link)
    {
        list_remove(&answer->link);
        free(answer);
    }
}
