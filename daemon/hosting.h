/*
 * What a device has for memory that moves: its host tier, its mover, the arenas on it, what each
 * tenant may take of the tier, and what is being done to make room.
 *
 * Nothing is moved from within a message or an action: those leave a note and kick, and the
 * device's turn comes from the loop. A turn does a bounded amount of each kind of work and takes
 * another if some is left.
 */
#pragma once

#include "base/limits.h"
#include "base/list.h"
#include "daemon/disk.h"
#include "daemon/move.h"
#include "daemon/ratelimit.h"
#include "daemon/reclaim.h"
#include "daemon/revoke.h"
#include "daemon/tier.h"

struct arena;
struct broker;
struct event;

struct hosting {
    struct broker *broker;
    uint32_t device;
    struct tier *tier;           /* NULL: HostTier=0, and no disk */
    bool tier_kept;              /* it is that of the broker before … */
    bool tier_left;              /* … of whose movers one may still write there */
    struct disk disk;            /* behind it */
    struct mover_control *mover; /* NULL: the same */
    struct event *turn;
    uint32_t arena_count;   /* that are bound and not dropped */
    uint32_t segment_count; /* that are sealed: a mover is kept for them, too */
    struct list arenas;     /* struct arena.device_link */
    struct list closing;    /* struct arena_chunk.link: waits for its turn to be emptied */
    struct list unsent;     /* … is empty, and its worker not told yet */
    struct list recalled;   /* … and was told, by deadline */
    struct list losing;     /* … or nobody has it, and its pages are told so */
    uint32_t lost_pages;    /* that were looked at for it since the last turn */
    struct list wanting;    /* struct arena.wanted_link */
    struct list departed;   /* struct arena.departed_link: holders are gone whose bits are there */
    uint64_t due_ns;        /* when there is something to look at; CLOCK_NEVER */
    struct tier_account accounts[LIMIT_TENANTS]; /* by the core's index */
    uint64_t evicted[LIMIT_TENANTS];             /* bytes of pages in the tier */
    uint64_t coming[LIMIT_TENANTS];  /* bytes that are being made free for each tenant … */
    uint64_t leaving[LIMIT_TENANTS]; /* … and of each */
    bool kicked;                     /* the turn comes before the loop waits again */
    uint32_t forgetting;             /* chunks that wait for the mover to let go of them … */
    uint32_t looks;       /* … and looks at free memory that were asked for after their release */
    uint32_t drop_budget; /* pages that this turn may still drop */
    bool draining;
    uint64_t drain_ns;          /* when the drain goes on */
    core_id dying;              /* client that was killed, until it is gone; 0 */
    uint64_t killed_ns;         /* when somebody was; 0: never */
    struct ratelimit obstacles; /* lines about chunks that can't be emptied */
    struct ratelimit overdue;   /* … or are not given back */
    struct reclaim reclaim;
    struct revoker revoker;
    struct move move; /* scratch of one turn */
};

/* With a tier as was left or is configured, where memory can move. -ENOMEM, -errno. */
int hosting_new(
    struct broker *broker, uint32_t device, bool movable, struct hosting **ret) _must_check_;
/* Arenas of the broker before are there again: what every device has begins. -ENOMEM, -errno. */
int hostings_begin(struct broker *broker) _must_check_;
/* Ends the mover (blocks at most a second): every job is answered. Idempotent. */
void hosting_mover_end(struct hosting *hosting);
/* The same, and frees every arena. Accepts NULL, returns NULL. */
struct hosting *hosting_free(struct hosting *hosting);

/* There is an arena or a segment less that a mover is kept for. */
void hosting_mover_spare(struct hosting *hosting);

/* The device's turn comes before the loop waits again. */
void hosting_kick(struct hosting *hosting);
/* … or at that time. */
void hosting_at(struct hosting *hosting, uint64_t at_ns);

/* Whether such pages of the tenant can be evicted: a slot lies within a slab. True without tier. */
bool hosting_page_fits(
    const struct hosting *hosting, const char *tenant, uint32_t element, uint64_t page_bytes);
/* Of its tier that isn't on a disk; 0 without a tier. */
uint64_t hosting_memory_bytes(const struct hosting *hosting);
/* Gives an arena that is being bound its place in the tier, if there is a tier. -ENOMEM. */
int hosting_space_new(struct hosting *hosting, struct arena *arena) _must_check_;
/* Whether pages are on their way, or a worker is to be told that they were. */
bool hosting_busy(const struct hosting *hosting);
/* Takes over what the core keeps of the tenants' values. */
void hosting_configure(struct hosting *hosting);

/* The core lets go of a chunk: to the executor, once the mover has. */
void hosting_release(struct hosting *hosting, uint32_t chunk, uint32_t generation);
/* A look at free memory: it comes after the releases that were asked for before it. */
void hosting_observe(struct hosting *hosting);
