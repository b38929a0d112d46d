/*
 * What the files of an arena share. An arena is a lease with holes: it has a lease's identity,
 * device and addresses, and a state of its own for each chunk.
 *
 * The page table is shared with the broker; what decides about this process's mappings is private
 * (`local`). Page functions touch the pool alone; everything else is guarded by the session's lock,
 * and mappings change in the seat or, once the arena is being freed, in whoever frees it.
 */
#pragma once

#include "client/arena_ops.h"
#include "client/session.h"

/* What is behind an index, as this process knows. */
enum arena_local {
    ARENA_LOCAL_EMPTY = 0,
    ARENA_LOCAL_FILLING = 1,  /* asked for */
    ARENA_LOCAL_ARRIVING = 2, /* granted unasked, being mapped */
    ARENA_LOCAL_DISPUTED = 3, /* refused: the broker fills it itself */
    ARENA_LOCAL_MAPPED = 4,
    ARENA_LOCAL_RECALLED = 5, /* mapped, and the broker wants it back */
    ARENA_LOCAL_STUCK = 6,    /* mapped, and the driver doesn't unmap it */
    ARENA_LOCAL_MAX
};

/*
 * Fills are on their way in two lanes, one in each. A lack of less than a chunk's worth of pages is
 * growth: whoever asks for it holds memory already, and goes before those that are about to begin,
 * here and in its tenant's queue at the broker.
 */
enum arena_lane_name { ARENA_LANE_GROWTH, ARENA_LANE_LARGE, ARENA_LANE_MAX };

struct arena_lane {
    struct request *request; /* NULL: none is on its way */
    uint64_t concluded;      /* fills so far */
    struct outcome outcome;  /* of the last one */
};

struct arena_after;

/* What an arena is made of. */
struct arena_geometry {
    uint64_t page_bytes, chunk_bytes, max_bytes;
    uint32_t max_chunks;
    bool shared;
    uint32_t holder; /* this process's number, where it is shared */
};

struct gmb_arena {
    struct gmb_lease lease;
    struct arena_pool pool;
    void *table_memory;
    uint64_t table_bytes;
    int event_fd;

    uint64_t prefetch_pages, idle_ns;
    _Atomic uint32_t now;      /* coarse clock, as of the last look after the arena */
    _Atomic uint64_t waits;    /* pins that had to wait */
    _Atomic uint64_t deferred; /* what waits for streams */
    pthread_mutex_t after_lock;
    struct list after;
    void **events; /* CUevents that are unused */
    size_t event_count;

    /* By the session's lock. */
    uint8_t *local;            /* enum arena_local */
    uint64_t *vacant_since_ns; /* when a chunk was first seen vacant; 0: it isn't */
    struct arena_lane lanes[ARENA_LANE_MAX];
    uint64_t prefetch_after_ns, prefetch_pause_ns;
    uint64_t disputed_until_ns; /* then DISPUTED indices are EMPTY again; CLOCK_NEVER: none is */
    unsigned recalled;          /* chunks that are RECALLED */
    bool serving;               /* the seat is at work on it */
    bool closing;               /* it is being freed */
    bool dropped;               /* … and goes when its fill is settled */
};

static inline struct gmb_arena *arena_from_lease(struct gmb_lease *lease)
{
    return container_of(lease, struct gmb_arena, lease);
}

static inline bool arena_filling(const struct gmb_arena *arena)
{
    return arena->lanes[ARENA_LANE_GROWTH].request != NULL ||
           arena->lanes[ARENA_LANE_LARGE].request != NULL;
}

/* 1/16 s, never 0. */
uint32_t arena_clock(void);

/* An object without device, geometry or table. INTERNAL. */
int arena_new_object(struct gmb_session *session, struct gmb_arena **ret, struct outcome *outcome);
/* Everything that is made in this process, of what the broker has sent. Consumes the request; on
 * failure the arena, too. */
int arena_make_consume(struct gmb_arena *arena, struct request *request,
    const struct arena_geometry *geometry, struct outcome *outcome);
/* From the params' prefetch_bytes and idle_ns. */
void arena_settings(struct gmb_arena *arena, uint64_t prefetch_bytes, uint64_t idle_ns);

/* Frees what is in this process. Touches neither driver nor broker. Takes the session's lock. */
void arena_destroy(struct gmb_arena *arena);

/* Waits for the device, unmaps everything, tells the broker without waiting for its answer, and
 * frees the arena. Without the session's lock. */
void arena_drop_consume(struct gmb_arena *arena);

/* Withdraws what arenas have asked for. The session's lock is held. */
void arenas_withdraw(struct gmb_session *session);

/* Unmaps whole chunks [first, first + count); the device was waited for, where it had to be. False
 * when the driver didn't do it. Without the session's lock. */
bool arena_unmap(struct gmb_arena *arena, uint32_t first, uint32_t count);
/* Waits for the device. GPU. */
int arena_synchronize(struct gmb_arena *arena, struct outcome *outcome);

/* Tells the broker of a run of chunks (RETURN or MAPPED). The session's lock is held. */
void arena_tell(struct gmb_arena *arena, enum request_kind kind, uint32_t first, uint32_t count);

/* Applies what streams have passed. True if something was. Never waits. */
bool arena_after_apply(struct gmb_arena *arena);
/* Drops what waits for streams, and the events. */
void arena_after_drop(struct gmb_arena *arena);
