/*
 * One fill of each lane is on its way at a time. It is the arena's, not the waiting thread's:
 * whoever waits for memory looks at the pool again when a fill was concluded, and a fill that comes
 * too late for one thread serves the next.
 *
 * Chunks in which the broker restores pages come unasked and may cross a fill for the same indices,
 * which the broker refuses: it has sent its grant before, or waits for the memory itself. Where the
 * chunks didn't come before the refusal, their indices are left alone for a moment, and others are
 * asked for: asked again at once, they would be refused again, as fast as messages go.
 */
#include "client/arena_fill.h"

#include "base/clock.h"
#include "client/arena_own.h"
#include "client/grant.h"
#include "client/request.h"

#define PAUSE_FIRST_NS (50 * NSEC_PER_MSEC)
#define PAUSE_LAST_NS (2 * NSEC_PER_SEC)
/* For so long indices that the broker refused are left to it. */
#define DISPUTE_NS (10 * NSEC_PER_MSEC)

static uint32_t chunks_max(const struct gmb_arena *arena)
{
    return arena->pool.table.layout.max_chunks;
}

static bool index_empty(const struct gmb_arena *arena, uint32_t chunk, bool whole)
{
    const struct arena_table *table = &arena->pool.table;

    if (arena->local[chunk] != ARENA_LOCAL_EMPTY)
        return false;
    /* Others may have it still, or have it already. */
    if (arena_table_shared(table) && arena_chunk_state(table, chunk) != ARENA_CHUNK_EMPTY)
        return false;
    return whole ? arena_chunk_free(table, chunk) == table->layout.pages_per_chunk
                 : arena_chunk_free(table, chunk) > 0;
}

/* The lowest run of `count` empty indices, or the longest there is; 0 when none is empty. What is
 * asked for in one piece is granted in one piece: parts of it would lie idle and be taken back
 * before the rest has come. */
static uint32_t run_find(
    const struct gmb_arena *arena, bool whole, uint32_t count, uint32_t *ret_first)
{
    uint32_t longest = 0, length = 0;

    for (uint32_t i = 0; i < chunks_max(arena) && longest < count; i++) {
        length = index_empty(arena, i, whole) ? length + 1 : 0;
        if (length > longest) {
            longest = length;
            *ret_first = i + 1 - length;
        }
    }
    return longest;
}

int arena_fill_start(struct gmb_arena *arena, enum arena_lane_name lane, uint64_t pages,
    uint64_t wait_ns, struct outcome *outcome)
{
    uint32_t per_chunk = arena->pool.table.layout.pages_per_chunk, first = 0, count;
    uint64_t wanted = MIN(pages / per_chunk + (pages % per_chunk != 0), chunks_max(arena));
    struct request *request;
    int r;

    if (arena->lease.lost)
        return outcome_set(
            outcome, GMB_E_DISCONNECTED, "the broker lost this arena when it restarted");
    count = run_find(arena, true, (uint32_t) wanted, &first);
    if (count == 0)
        count = run_find(arena, false, (uint32_t) wanted, &first);
    if (count == 0)
        return outcome_set(outcome, GMB_E_EXHAUSTED, "every chunk of the arena is in use");
    request = request_new(REQUEST_FILL, REQUEST_OWNER_ARENA);
    if (request == NULL)
        return outcome_set(outcome, GMB_E_INTERNAL, "no host memory for a request");
    request->lease = &arena->lease;
    request->first_chunk = first;
    request->bytes = count * arena->lease.chunk_bytes;
    request->wait_ns = wait_ns;
    request->urgent = lane == ARENA_LANE_GROWTH;
    r = request_submit(arena->lease.session, request, outcome);
    if (r < 0) {
        request_free(request);
        return r;
    }
    for (uint32_t i = first; i < first + count; i++)
        arena->local[i] = ARENA_LOCAL_FILLING;
    arena->lanes[lane].request = request;
    return 0;
}

static int span_enable(
    struct gmb_arena *arena, uint32_t first, uint32_t count, struct outcome *outcome)
{
    struct gmb_lease *lease = &arena->lease;
    struct gpu *gpu = lease->session->gpu;
    struct gpu_error error = {0};
    int r = gpu->ops->span_set_access(gpu, lease->device->gpu,
        lease->address + first * lease->chunk_bytes, count * lease->chunk_bytes,
        GPU_ACCESS_READ_WRITE, &error);

    return r == 0 ? 0 : outcome_set(outcome, GMB_E_GPU, "%s", error.text);
}

/* The chunks are mapped and accessible: pages may be allocated and restored there. */
static void run_open(struct gmb_arena *arena, uint32_t first, uint32_t count)
{
    for (uint32_t i = first; i < first + count; i++) {
        arena->local[i] = ARENA_LOCAL_MAPPED;
        arena->vacant_since_ns[i] = 0;
        if (arena->pool.table.own != NULL)
            arena_own_set_mapped(&arena->pool.table, i, true);
        arena_chunk_open(&arena->pool, i);
    }
    arena_tell(arena, REQUEST_MAPPED, first, count);
}

/* The chunks aren't to be had. `mapped` of them the driver kept. */
static void run_forget(
    struct gmb_arena *arena, enum arena_local from, uint32_t first, uint32_t count, uint32_t mapped)
{
    for (uint32_t i = 0; i < count; i++) {
        if (arena->local[first + i] == from)
            arena->local[first + i] =
                (uint8_t) (i < mapped ? ARENA_LOCAL_STUCK : ARENA_LOCAL_EMPTY);
    }
}

/* The indices of a refused fill that the broker fills itself. */
static void run_dispute(
    struct gmb_arena *arena, uint32_t first, uint32_t count, const struct outcome *outcome)
{
    if (outcome->code != GMB_E_INVALID && outcome->code != GMB_E_CONFLICT)
        return;
    for (uint32_t i = first; i < first + count; i++) {
        if (arena->local[i] == ARENA_LOCAL_EMPTY)
            arena->local[i] = ARENA_LOCAL_DISPUTED;
    }
    arena->disputed_until_ns = clock_now(&clock_monotonic) + DISPUTE_NS;
}

void arena_fill_disputes_end(struct gmb_arena *arena, uint64_t now_ns)
{
    if (now_ns < arena->disputed_until_ns)
        return;
    arena->disputed_until_ns = CLOCK_NEVER;
    for (uint32_t i = 0; i < chunks_max(arena); i++) {
        if (arena->local[i] == ARENA_LOCAL_DISPUTED)
            arena->local[i] = ARENA_LOCAL_EMPTY;
    }
}

/* The longer the device has been full, the later it is asked again ahead of need. */
static void prefetch_pause(struct gmb_arena *arena)
{
    uint64_t pause_ns = MIN(2 * arena->prefetch_pause_ns, PAUSE_LAST_NS);

    arena->prefetch_pause_ns = MAX(pause_ns, PAUSE_FIRST_NS);
    arena->prefetch_after_ns = clock_now(&clock_monotonic) + arena->prefetch_pause_ns;
}

void arena_fill_conclude_consume(struct gmb_session *session, struct request *request)
{
    struct gmb_arena *arena = arena_from_lease(request->lease);
    uint32_t first = request->first_chunk, mapped = request->mapped_chunks, kept = 0;
    uint32_t count = (uint32_t) (request->bytes / arena->lease.chunk_bytes);
    bool granted = request->granted_chunks == count, wanted = !arena->closing;
    struct outcome outcome = request->outcome;
    struct arena_lane *lane;
    bool drop;

    if (outcome.code == 0 && wanted)
        (void) span_enable(arena, first, count, &outcome);
    /* Nobody but the library knew these addresses yet: there is no work to wait for. */
    if ((outcome.code != 0 || !wanted) && mapped > 0 && !arena_unmap(arena, first, mapped))
        kept = mapped;

    (void) pthread_mutex_lock(&session->lock);
    if (outcome.code == 0 && wanted) {
        run_open(arena, first, count);
    } else {
        run_forget(arena, ARENA_LOCAL_FILLING, first, count, kept);
        if (granted && kept == 0)
            arena_tell(arena, REQUEST_RETURN, first, count);
        run_dispute(arena, first, count, &outcome);
    }
    lane = request == arena->lanes[ARENA_LANE_GROWTH].request ? &arena->lanes[ARENA_LANE_GROWTH]
                                                              : &arena->lanes[ARENA_LANE_LARGE];
    lane->request = NULL;
    lane->concluded++;
    lane->outcome = outcome;
    if (outcome.code != 0)
        prefetch_pause(arena);
    else
        arena->prefetch_pause_ns = arena->prefetch_after_ns = 0;
    session->arenas_due_ns = 0;
    request_free(request);
    drop = arena->dropped && !arena_filling(arena);
    (void) pthread_mutex_unlock(&session->lock);
    if (drop)
        arena_drop_consume(arena);
}

static struct gmb_arena *arena_find(struct gmb_session *session, uint64_t id)
{
    list_for_each(lease, &session->arenas, struct gmb_lease, link)
    {
        if (lease->id == id)
            return arena_from_lease(lease);
    }
    return NULL;
}

static int grant_check(const struct gmb_arena *arena, const Gmb__Grant *grant, struct outcome *why)
{
    if (grant->chunk_bytes != arena->lease.chunk_bytes ||
        grant->first_chunk + grant->n_chunks > chunks_max(arena))
        return outcome_set(why, GMB_E_PROTOCOL, "the broker sent chunks that don't fit the arena");
    for (size_t i = 0; i < grant->n_chunks; i++) {
        uint8_t local = arena->local[grant->first_chunk + i];

        if (local != ARENA_LOCAL_EMPTY && local != ARENA_LOCAL_FILLING &&
            local != ARENA_LOCAL_DISPUTED)
            return outcome_set(why, GMB_E_PROTOCOL,
                "the broker sent a chunk for index %zu, where one is", grant->first_chunk + i);
    }
    return grant_belongs(&arena->lease, grant, why);
}

/* Without the lock. */
static bool run_map(
    struct gmb_arena *arena, uint32_t first, struct fdset *fds, uint32_t *ret_mapped)
{
    struct outcome ignored = OUTCOME_OK;
    uint32_t count = (uint32_t) fds->count;

    for (*ret_mapped = 0; *ret_mapped < count; ++*ret_mapped) {
        _cleanup_close_ int fd = fdset_take(fds, *ret_mapped);

        if (grant_chunk_map(
                arena->lease.session, &arena->lease, first + *ret_mapped, fd, &ignored) < 0)
            return false;
    }
    return span_enable(arena, first, count, &ignored) == 0;
}

int arena_grant_take(
    struct gmb_session *session, const Gmb__Grant *grant, struct fdset *fds, struct outcome *why)
{
    struct gmb_arena *arena = arena_find(session, grant->lease);
    uint32_t first = grant->first_chunk, count = (uint32_t) grant->n_chunks, mapped, kept = 0;
    bool done;
    int r;

    /* An arena that was just given up: its release is on the way and takes the chunks along. */
    if (arena == NULL || arena->closing)
        return 0;
    r = grant_check(arena, grant, why);
    if (r < 0)
        return r;
    for (uint32_t i = first; i < first + count; i++)
        arena->local[i] = ARENA_LOCAL_ARRIVING;
    arena->serving = true;
    (void) pthread_mutex_unlock(&session->lock);
    done = run_map(arena, first, fds, &mapped);
    if (!done && mapped > 0 && !arena_unmap(arena, first, mapped))
        kept = mapped;
    (void) pthread_mutex_lock(&session->lock);
    arena->serving = false;
    if (done) {
        run_open(arena, first, count);
    } else {
        run_forget(arena, ARENA_LOCAL_ARRIVING, first, count, kept);
        if (kept == 0)
            arena_tell(arena, REQUEST_RETURN, first, count);
    }
    return 0;
}

int arena_recall_take(
    struct gmb_session *session, const Gmb__ChunkRecall *recall, struct outcome *why)
{
    struct gmb_arena *arena = arena_find(session, recall->lease);

    if (arena == NULL || arena->closing)
        return 0;
    for (size_t i = 0; i < recall->n_chunks; i++) {
        uint32_t chunk = recall->chunks[i];

        if (chunk >= chunks_max(arena))
            return outcome_set(why, GMB_E_PROTOCOL,
                "the broker recalled chunk %u of an arena of %u", chunk, chunks_max(arena));
        /* One that isn't mapped has been given back meanwhile, or the driver keeps it. */
        if (arena->local[chunk] != ARENA_LOCAL_MAPPED)
            continue;
        /* What another process has made of a shared table is not the broker's word: the chunk
         * stays mapped as long as a page lives there. */
        if (!arena_table_shared(&arena->pool.table) &&
            (arena_chunk_state(&arena->pool.table, chunk) != ARENA_CHUNK_CLOSED ||
                arena_table_chunk_vacant(&arena->pool.table, chunk) == ARENA_OCCUPIED))
            return outcome_set(why, GMB_E_PROTOCOL,
                "the broker recalled chunk %u of an arena while pages live there", chunk);
        arena->local[chunk] = ARENA_LOCAL_RECALLED;
        arena->recalled++;
    }
    /* Somebody needs the memory now: what was got ahead of need would be recalled, too. */
    prefetch_pause(arena);
    session->arenas_due_ns = 0;
    return 0;
}
