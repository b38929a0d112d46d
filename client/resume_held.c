/*
 * A list made at one moment and sent in parts. What changes afterwards is a request of its own,
 * which is sent behind the last part.
 */
#include "client/resume_held.h"

#include <errno.h>
#include <stdlib.h>

#include "client/arena.h"

/* Of one message: far below what a frame can carry and a receiver is ready to decode. */
#define PART_LEASES 64
#define PART_RUNS 512

struct held_lease {
    uint64_t id;
    uint32_t chunks;
    size_t first_run, run_count; /* in `runs`, pairs */
};

struct resume_held {
    struct held_lease *leases;
    size_t count, room;
    uint32_t *runs; /* first, count, first, count … */
    size_t run_count, run_room;
    size_t next, next_run; /* lease, and run within it, that the next part begins with */
};

struct resume_held *resume_held_free(struct resume_held *held)
{
    if (held != NULL) {
        free(held->leases);
        free(held->runs);
        free(held);
    }
    return NULL;
}

static bool grow(void **array, size_t *room, size_t count, size_t size)
{
    size_t more = MAX(*room * 2, (size_t) 16);
    void *moved;

    if (count < *room)
        return true;
    moved = reallocarray(*array, more, size);
    if (moved == NULL)
        return false;
    *array = moved;
    *room = more;
    return true;
}

static struct held_lease *lease_add(struct resume_held *held, const struct gmb_lease *lease)
{
    void *leases = held->leases;

    if (!grow(&leases, &held->room, held->count, sizeof(*held->leases)))
        return NULL;
    held->leases = leases;
    held->leases[held->count] =
        (struct held_lease){.id = lease->id, .chunks = lease->held, .first_run = held->run_count};
    return &held->leases[held->count++];
}

static bool run_add(struct resume_held *held, uint32_t first, uint32_t count)
{
    void *runs = held->runs;

    if (!grow(&runs, &held->run_room, held->run_count, 2 * sizeof(*held->runs)))
        return false;
    held->runs = runs;
    held->runs[2 * held->run_count] = first;
    held->runs[2 * held->run_count + 1] = count;
    held->run_count++;
    return true;
}

/* A recall ends with the connection: the broker opens the chunk again, or recalls it anew. */
static bool index_held(struct gmb_arena *arena, uint32_t index)
{
    if (arena->local[index] == ARENA_LOCAL_RECALLED) {
        arena->local[index] = ARENA_LOCAL_MAPPED;
        arena->recalled--;
    }
    return arena->local[index] == ARENA_LOCAL_MAPPED || arena->local[index] == ARENA_LOCAL_STUCK;
}

static bool arena_add(struct resume_held *held, struct gmb_arena *arena)
{
    struct held_lease *entry = lease_add(held, &arena->lease);
    uint32_t top = arena->pool.table.layout.max_chunks, count;

    if (entry == NULL)
        return false;
    for (uint32_t first = 0; first < top; first += MAX(count, 1U)) {
        for (count = 0; first + count < top && index_held(arena, first + count); count++)
            ;
        if (count > 0 && !run_add(held, first, count))
            return false;
    }
    held->leases[held->count - 1].run_count =
        held->run_count - held->leases[held->count - 1].first_run;
    return true;
}

int resume_held_take(struct gmb_session *session, struct resume_held **ret)
{
    struct resume_held *held = calloc(1, sizeof(*held));
    bool fits = held != NULL;

    list_for_each(lease, &session->leases, struct gmb_lease, link)
    {
        if (fits && lease->known && !lease->lost)
            fits = lease_add(held, lease) != NULL;
    }
    list_for_each(lease, &session->arenas, struct gmb_lease, link)
    {
        if (fits && lease->known && !lease->lost)
            fits = arena_add(held, arena_from_lease(lease));
    }
    if (!fits) {
        resume_held_free(held);
        return -ENOMEM;
    }
    *ret = held;
    return 0;
}

/* One lease, or as many runs of it as there is room for; the next one begins where it ended. */
static void part_add(struct resume_held *held, Gmb__HeldLease *entry, size_t *runs_left)
{
    const struct held_lease *lease = &held->leases[held->next];
    size_t left = lease->run_count - held->next_run, count = MIN(left, *runs_left);

    gmb__held_lease__init(entry);
    entry->lease = lease->id;
    entry->chunks = lease->chunks;
    entry->n_runs = 2 * count;
    entry->runs = count > 0 ? &held->runs[2 * (lease->first_run + held->next_run)] : NULL;
    *runs_left -= count;
    held->next_run += count;
    if (held->next_run == lease->run_count) {
        held->next++;
        held->next_run = 0;
    }
}

int resume_held_send(struct resume_held *held, struct conn *conn, uint64_t id)
{
    Gmb__ClientMessage message = GMB__CLIENT_MESSAGE__INIT;
    Gmb__HeldLease entries[PART_LEASES], *pointers[PART_LEASES];
    Gmb__Resume body = GMB__RESUME__INIT;
    size_t runs_left = PART_RUNS;
    int r;

    while (held->next < held->count && body.n_held < PART_LEASES && runs_left > 0) {
        pointers[body.n_held] = &entries[body.n_held];
        part_add(held, &entries[body.n_held], &runs_left);
        body.n_held++;
    }
    body.held = pointers;
    body.last = held->next == held->count;
    message.id = id;
    message.body_case = GMB__CLIENT_MESSAGE__BODY_RESUME;
    message.resume = &body;
    r = conn_send_consume(conn, &message.base, NULL);
    return r < 0 ? r : body.last;
}
