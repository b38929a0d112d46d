/*
 * One message names all chunks of an arena that were emptied in a turn. A worker that lets the
 * deadline pass is slow, stopped or hostile: its chunks no longer count as coming, so that the next
 * plan goes on with another victim, and while a strictly entitled tenant still waits for them it
 * may be killed.
 */
#include "daemon/recall.h"

#include "base/log.h"
#include "daemon/arena_holder.h"
#include "daemon/broker.h"
#include "daemon/evict.h"
#include "daemon/last_resort.h"
#include "daemon/message.h"
#include "policies/reclaim.h"

#define LINES 5
#define LINES_INTERVAL_NS (10 * NSEC_PER_SEC)

static struct hosting *hosting_of(const struct arena_chunk *chunk)
{
    return chunk->arena->broker->hosting[chunk->arena->device];
}

void recall_add(struct arena_chunk *chunk)
{
    struct hosting *hosting = hosting_of(chunk);

    chunk->phase = ARENA_RECALLED;
    chunk->overdue = false;
    list_append(&hosting->unsent, &chunk->link);
    hosting_kick(hosting);
}

/* The worker unmaps the chunk now; the mover does the same beside it, not after it. What goes to
 * its own tenant is recycled, and may be needed there again. */
static void mover_unmap(struct hosting *hosting, const struct arena_chunk *chunk)
{
    uint32_t number, generation;

    if (hosting->mover != NULL && chunk->beneficiary != chunk->arena->tenant &&
        core_lease_chunk(
            hosting->broker->core, chunk->arena->lease, chunk->index, &number, &generation))
        mover_let_go(hosting->mover, number, generation);
}

/* Moves the first arena's chunks to the recalled ones and names them; how many. */
static size_t recall_gather(struct hosting *hosting, uint64_t due_ns, uint32_t *ret)
{
    const struct arena *arena = list_first(&hosting->unsent, struct arena_chunk, link)->arena;
    size_t count = 0;

    list_for_each_safe(chunk, &hosting->unsent, struct arena_chunk, link)
    {
        if (chunk->arena != arena || count == LIMIT_RECALL_CHUNKS)
            break;
        ret[count++] = chunk->index;
        chunk->due_ns = due_ns;
        mover_unmap(hosting, chunk);
        list_remove(&chunk->link);
        list_append(&hosting->recalled, &chunk->link);
    }
    return count;
}

/* Names to a holder those of the chunks that it has. One without a connection can't be told: its
 * chunks come back when it is dead, or are overdue. */
static void holder_tell(
    const struct arena_holder *holder, const uint32_t *indices, size_t count, uint64_t timeout_ns)
{
    const struct arena *arena = holder->arena;
    struct session *session = arena_holder_session(holder);
    Gmb__BrokerMessage message = GMB__BROKER_MESSAGE__INIT;
    Gmb__ChunkRecall body = GMB__CHUNK_RECALL__INIT;
    uint32_t chunks[LIMIT_RECALL_CHUNKS];

    for (size_t i = 0; session != NULL && i < count; i++) {
        if (core_holder_has(arena->broker->core, arena->lease, holder->client, indices[i]))
            chunks[body.n_chunks++] = indices[i];
    }
    if (body.n_chunks == 0)
        return;
    body.chunks = chunks;
    body.lease = arena->lease;
    body.deadline_ns = timeout_ns;
    message.body_case = GMB__BROKER_MESSAGE__BODY_CHUNK_RECALL;
    message.chunk_recall = &body;
    message_send(session, &message);
}

static void recall_send(struct hosting *hosting, uint64_t now)
{
    uint64_t timeout_ns = hosting->broker->config->recall_timeout_ns;
    const struct arena *arena = list_first(&hosting->unsent, struct arena_chunk, link)->arena;
    uint32_t indices[LIMIT_RECALL_CHUNKS];
    size_t count = recall_gather(hosting, add_saturate(now, timeout_ns), indices);

    log_debug("arena %llu: %zu chunks are recalled", (unsigned long long) arena->lease, count);
    list_for_each(holder, &arena->holders, struct arena_holder, link)
        holder_tell(holder, indices, count, timeout_ns);
    hosting_at(hosting, add_saturate(now, timeout_ns));
}

/* ------------------------------------------------------------------ deadlines */

static void overdue_log(struct hosting *hosting, const struct arena_chunk *chunk, const char *what)
{
    const struct client *client = arena_chunk_client(chunk);
    uint64_t now = clock_now(hosting->broker->clock);
    uint32_t held;

    if (!ratelimit_pass(&hosting->overdue, now, LINES_INTERVAL_NS, LINES, &held))
        return;
    log_warning("chunk %u of arena %llu (tenant %s, pid %d) was recalled and isn't given back: %s",
        chunk->index, (unsigned long long) chunk->arena->lease,
        client != NULL ? client->tenant : "?", client != NULL ? (int) client->identity.pid : 0,
        what);
}

/* The deadline passed: first it counts no more, then the last resort is looked at, again and again.
 */
static void chunk_overdue(struct hosting *hosting, struct arena_chunk *chunk, uint64_t now)
{
    bool first = !chunk->overdue;
    enum reclaim_kill_verdict verdict;

    evict_leave(chunk);
    chunk->overdue = true;
    chunk->due_ns = add_saturate(now, hosting->broker->config->recall_timeout_ns);
    list_append(&hosting->recalled, &chunk->link);
    if (first) {
        overdue_log(hosting, chunk, "others are asked instead");
        return;
    }
    if (chunk->beneficiary < LIMIT_TENANTS && !last_resort_wanted(hosting, chunk->beneficiary))
        return;
    verdict = last_resort_try(hosting, arena_chunk_client(chunk), chunk->arena->tenant,
        chunk->beneficiary, "recalled chunks");
    if (verdict != RECLAIM_KILL_YES)
        overdue_log(hosting, chunk, reclaim_kill_verdict_name(verdict));
}

void recall_turn(struct hosting *hosting)
{
    uint64_t now = clock_now(hosting->broker->clock);
    struct arena_chunk *chunk;

    while (!list_empty(&hosting->unsent))
        recall_send(hosting, now);
    while ((chunk = list_first(&hosting->recalled, struct arena_chunk, link)) != NULL) {
        if (chunk->due_ns > now) {
            hosting_at(hosting, chunk->due_ns);
            return;
        }
        chunk_overdue(hosting, chunk, now);
    }
}
