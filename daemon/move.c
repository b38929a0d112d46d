/*
 * A job's owner says which indices of which arena its chunks are; the pages follow from the copies'
 * offsets. Records are marked as long as a job names them, so that no page is in two jobs and no
 * slot is given away that the mover may still read or write.
 */
#include "daemon/move.h"

#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "daemon/arena_message.h"
#include "daemon/broker.h"
#include "daemon/evict.h"
#include "daemon/restore.h"

/* Less than a job may have. Somebody waits for evicted chunks: those of one job are recalled,
 * released and made anew while the next ones are copied, so that little is left after the last. A
 * millisecond of a fast bus, to which starting a job adds a hundredth. */
#define EVICT_BYTES (UINT64_C(16) << 20)
#define RESTORE_BYTES (UINT64_C(64) << 20)

struct mover_ticket {
    struct job_owner owner; /* first */
    struct arena *arena;
    size_t chunk_count;
    uint32_t indices[];
};

bool move_room(const struct hosting *hosting)
{
    struct mover_stats stats;

    if (hosting->mover == NULL)
        return false;
    mover_stats_get(hosting->mover, &stats);
    return stats.queued + stats.in_flight + 1 < MOVER_QUEUE_JOBS;
}

/* Index of the chunk in the job; false when it isn't there and can't be. */
static bool chunk_add(struct move *move, const struct arena_chunk *chunk, uint32_t *ret)
{
    const struct arena *arena = chunk->arena;
    struct mover_chunk *entry = &move->chunks[move->chunk_count];

    if (move->chunk_count > 0 && move->indices[move->chunk_count - 1] == chunk->index) {
        *ret = (uint32_t) move->chunk_count - 1;
        return true;
    }
    if (!core_lease_chunk(
            arena->broker->core, arena->lease, chunk->index, &entry->number, &entry->generation))
        return false;
    entry->bytes = arena->table.layout.chunk_bytes;
    move->indices[move->chunk_count] = chunk->index;
    *ret = (uint32_t) move->chunk_count++;
    return true;
}

static bool move_full(const struct move *move, const struct arena_chunk *chunk)
{
    uint64_t bytes = move->copy_count * move->arena->table.layout.page_bytes;
    uint64_t most = move->kind == MOVER_EVICT ? EVICT_BYTES : RESTORE_BYTES;

    return move->copy_count == MOVER_JOB_COPIES || bytes >= most ||
           (move->chunk_count == MOVER_JOB_CHUNKS &&
               move->indices[move->chunk_count - 1] != chunk->index);
}

bool move_add(
    struct hosting *hosting, enum mover_kind kind, struct arena_chunk *chunk, uint32_t page)
{
    struct arena_page *record = &chunk->pages[page];
    struct move *move = &hosting->move;
    uint32_t index;

    if (move->arena != NULL &&
        (move->arena != chunk->arena || move->kind != kind || move_full(move, chunk)))
        move_flush(hosting);
    if (move->arena == NULL) {
        move->arena = chunk->arena;
        move->kind = kind;
        move->chunk_count = move->copy_count = 0;
    }
    if (!chunk_add(move, chunk, &index))
        return false;
    move->copies[move->copy_count++] = (struct mover_copy){
        .chunk = index,
        .chunk_offset = page * chunk->arena->table.layout.page_bytes,
        .tier_offset = record->slot,
        .checksum = record->checksum,
    };
    record->job = kind == MOVER_EVICT ? ARENA_PAGE_LEAVES : ARENA_PAGE_COMES;
    return true;
}

/* What became of each page; `copies` carry the results. */
static void pages_settle(struct arena *arena, enum mover_kind kind, const uint32_t *indices,
    const struct mover_copy *copies, size_t count, int error)
{
    for (size_t i = 0; i < count; i++) {
        struct arena_chunk *chunk = arena->chunks[indices[copies[i].chunk]];
        uint32_t page = (uint32_t) (copies[i].chunk_offset / arena->table.layout.page_bytes);

        chunk->pages[page].job = ARENA_PAGE_IDLE;
        if (kind == MOVER_EVICT)
            evict_page_done(chunk, page, error == 0 ? &copies[i].checksum : NULL);
        else
            restore_page_done(chunk, page, error, copies[i].damaged);
    }
}

static void chunks_count(
    struct arena *arena, enum mover_kind kind, const uint32_t *indices, size_t count, int by)
{
    for (size_t i = 0; i < count; i++) {
        struct arena_chunk *chunk = arena->chunks[indices[i]];

        chunk->jobs += (uint32_t) by;
        if (kind == MOVER_RESTORE) {
            chunk->restores += (uint32_t) by;
            chunk->arena->restores += (uint32_t) by;
        }
    }
    arena->jobs += (uint32_t) by;
}

static void chunks_settle(
    struct arena *arena, enum mover_kind kind, const uint32_t *indices, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct arena_chunk *chunk = arena->chunks[indices[i]];

        if (chunk == NULL)
            continue;
        if (kind == MOVER_EVICT)
            evict_chunk_done(chunk);
        else
            restore_chunk_done(chunk);
    }
}

static void job_done(struct hosting *hosting, const struct mover_result *result)
{
    struct mover_ticket *ticket = result->job.owner;
    struct arena *arena = ticket->arena;
    enum mover_kind kind = result->job.kind;

    disk_judge(hosting, result);
    if (result->error == -EIO || result->error == -EINVAL)
        log_error("device %u: the mover gave up a job of %zu pages: %s", hosting->device,
            result->job.copy_count, result->text);
    pages_settle(
        arena, kind, ticket->indices, result->job.copies, result->job.copy_count, result->error);
    chunks_count(arena, kind, ticket->indices, ticket->chunk_count, -1);
    if (!arena->dropped)
        chunks_settle(arena, kind, ticket->indices, ticket->chunk_count);
    else if (arena->jobs == 0)
        (void) arena_free(arena);
    free(ticket);
    hosting_kick(hosting);
}

void move_flush(struct hosting *hosting)
{
    struct move *move = &hosting->move;
    struct arena *arena = TAKE_PTR(move->arena);
    struct mover_ticket *ticket;
    struct mover_job job = {
        .kind = move->kind,
        .urgent = move->kind == MOVER_RESTORE,
        .chunk_count = move->chunk_count,
        .copy_count = move->copy_count,
        .chunks = move->chunks,
        .copies = move->copies,
    };
    int r = -ENOMEM;

    if (arena == NULL || move->copy_count == 0)
        return;
    job.format = (enum mover_format) arena->format;
    job.element = (enum mover_element) arena->element;
    job.page_bytes = arena->table.layout.page_bytes;
    ticket = malloc(sizeof(*ticket) + move->chunk_count * sizeof(ticket->indices[0]));
    if (ticket != NULL) {
        ticket->owner.done = job_done;
        ticket->arena = arena;
        ticket->chunk_count = move->chunk_count;
        memcpy(ticket->indices, move->indices, move->chunk_count * sizeof(move->indices[0]));
        job.owner = ticket;
        r = mover_submit(hosting->mover, &job);
    }
    if (r == 0) {
        chunks_count(arena, move->kind, move->indices, move->chunk_count, 1);
        return;
    }
    free(ticket);
    log_error("device %u: a job for the mover is refused: %s", hosting->device, strerror(-r));
    pages_settle(arena, move->kind, move->indices, move->copies, move->copy_count, r);
    chunks_settle(arena, move->kind, move->indices, move->chunk_count);
}
