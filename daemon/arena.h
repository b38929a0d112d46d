/*
 * An arena as the broker sees it: the page table that it shares with its holders (arena_holder.h),
 * one worker or several of a tenant, and what the broker itself has to know of chunks and pages, in
 * its own memory.
 *
 * The table is written by the worker at any time, and may hold anything. It is read word by word,
 * each copied once; nothing here follows an index, offset or count that stands there. A page is
 * moved by what its record says, and its word only decides whether that still holds.
 *
 * A chunk's record exists from the moment its worker has mapped it until the index is empty and
 * none of its pages lies in the host tier.
 *
 *   EMPTY     nothing mapped behind the index, or nothing known of it
 *   MAPPED    the worker allocates pages there
 *   CLOSING   chosen by a plan: closed in the table, its pages on their way to the tier
 *   RECALLED  empty; the worker was told to give it back
 */
#pragma once

#include "base/clock.h"
#include "base/list.h"
#include "daemon/core/core.h"
#include "daemon/tier.h"
#include "policies/drop_order.h"
#include "proto/arena_table.h"

struct broker;
struct client;
struct arena;

enum arena_phase {
    ARENA_EMPTY,
    ARENA_MAPPED,
    ARENA_CLOSING,
    ARENA_RECALLED,
    ARENA_LOSING, /* nobody has it; pages that had bytes there are told that they are lost */
    ARENA_PHASE_MAX
};

const char *arena_phase_name(enum arena_phase phase);

/* What the broker does with a page. */
enum arena_page_job { ARENA_PAGE_IDLE, ARENA_PAGE_LEAVES, ARENA_PAGE_COMES, ARENA_PAGE_JOB_MAX };

/* The clock of last_use in the table. */
#define ARENA_TICK_NS (NSEC_PER_SEC / 16)

#define ARENA_NO_SLOT UINT64_MAX

struct arena_page {
    uint64_t slot;       /* offset in the tier; ARENA_NO_SLOT: none */
    uint64_t checksum;   /* of the slot's bytes, once the page is there */
    uint32_t generation; /* of the page whose bytes they are */
    uint8_t job;         /* enum arena_page_job */
    bool wanted;         /* the worker waits for it */
    uint8_t failures;    /* jobs that could not restore it */
    bool kept;           /* the slot has its bytes, and the checksum is theirs */
};

struct arena_chunk {
    struct list link;   /* of its device: closing, unsent, recalled or losing */
    struct list wanted; /* arena.wanted: some of its pages are */
    struct arena *arena;
    uint32_t index;
    uint8_t phase;     /* enum arena_phase */
    uint8_t rounds;    /* that were made to empty it */
    bool overdue;      /* wasn't given back by its deadline */
    bool counted;      /* in the device's bytes that are coming */
    bool filling;      /* the broker has asked for it, or sent it unasked */
    bool opening;      /* closed for restores: to be opened after the last one */
    uint32_t jobs;     /* of the mover that name it and are unanswered … */
    uint32_t restores; /* … and those of them that write to it */
    uint32_t slots;    /* of its pages */
    uint32_t wants;    /* wanted pages */
    uint32_t spare;    /* of its pages in the tier, those that may be dropped, as last seen … */
    uint32_t carrying; /* … and those that may, and would take pages on the device along */
    uint32_t drops;    /* pages that may be dropped instead of copied */
    uint32_t beneficiary; /* CLOSING, RECALLED: index of the tenant, UINT32_MAX an operator */
    uint32_t lose_at;     /* LOSING: from this page of the chunk on */
    bool mapped_early;    /* LOSING: it was filled again meanwhile, and is mapped */
    uint64_t came_ns;     /* when it was mapped */
    uint64_t due_ns;      /* CLOSING: look again; RECALLED: deadline; MAPPED: not chosen before */
    struct arena_page *pages; /* by page of the chunk; NULL: none has a slot */
};

struct arena {
    core_id lease; /* first: the key of broker.arenas */
    struct broker *broker;
    uint32_t device, tenant;         /* the core's indices */
    struct list holders;             /* struct arena_holder.link */
    uint32_t numbers;                /* of holders, a bit each, and of those who are gone and … */
    uint32_t departed;               /* … whose bits still stand in the words of pages, or … */
    uint32_t forgetting;             /* … are being cleared there, … */
    uint32_t forget_at;              /* … from this page on */
    struct list departed_link;       /* device's departed */
    char name[LIMIT_NAME_BYTES + 1]; /* under which it is shared; "": it isn't */
    struct list device_link;         /* device's arenas, also after it was dropped */
    struct list wanted;              /* struct arena_chunk.wanted */
    struct list wanted_link;         /* device's wanting: has some */
    struct list fills;               /* struct fill.link: the broker's own requests */
    struct list held;                /* struct held.link: what waits for jobs to end */
    uint32_t held_count;
    struct arena_table table;
    int table_fd;     /* until it is sent, or as long as others may attach */
    uint32_t element; /* enum mover_element */
    uint32_t format;  /* enum mover_format, of the bytes in the tier */
    uint64_t slot_bytes;
    struct tier_space *space; /* NULL: this device has no tier */
    struct arena_kept *kept;  /* arena_kept.h … */
    uint64_t kept_bytes;
    int kept_fd; /* … until it is stored, or known that it isn't; else -1 */
    bool stored; /* a successor finds the arena */
    struct arena_chunk **chunks;
    struct drop_page *order; /* by page, as last counted (drop.h); NULL: none may be dropped */
    uint32_t top;            /* no index from here on has a record */
    uint32_t jobs;           /* of the mover, unanswered … */
    uint32_t restores;       /* … and a count for each chunk that one of them writes to */
    uint32_t fill_count;
    uint64_t fill_after_ns; /* a fill was refused: not before */
    bool dropped;           /* the lease is gone; kept until its last job is */
    bool waits;             /* a worker waits for pages of it to be restored */
    bool nonsense;          /* its table was found to make none; said once */
};

/*
 * Makes table and first holder of an arena that the core doesn't know yet; `name` is "" unless the
 * layout is that of a shared one. -EINVAL for a geometry
 * that makes no sense, -ENOMEM, -errno.
 */
int arena_new(struct client *client, uint32_t device, const struct arena_table_header *layout,
    uint32_t element, const char *name, struct arena **ret) _must_check_;
/* One without table, records, holders and chunks, for arena_recover.h. NULL without memory. */
struct arena *arena_blank(
    struct broker *broker, uint32_t device, uint32_t element, const char *name);
/* At once; no job may be left. Accepts NULL, returns NULL. */
struct arena *arena_free(struct arena *arena);

/* The core has granted it: it is found by its lease from now on. -ENOMEM. */
int arena_bind(struct arena *arena, core_id lease) _must_check_;
/* The part of that which is left when lease, tenant and space are known. -ENOMEM. */
int arena_enlist(struct arena *arena) _must_check_;
/* The lease has ended: nobody finds it any more, and it is freed once its last job has ended. */
void arena_drop(struct arena *arena);
/* NULL when there is none, or it was dropped. */
struct arena *arena_find(const struct broker *broker, core_id lease);

/* NULL when there is none. */
struct arena_chunk *arena_chunk_find(const struct arena *arena, uint32_t index);
/* Makes it if there is none: NULL without memory. */
struct arena_chunk *arena_chunk_get(struct arena *arena, uint32_t index);
/* Makes one of a chunk of which so many pages have slots, by their records. -ENOMEM. */
int arena_chunk_adopt(struct arena *arena, uint32_t index, uint32_t slots) _must_check_;
/* Frees the record if nothing is left to know of the chunk. */
void arena_chunk_settle(struct arena_chunk *chunk);
/* CAS of the chunk's state in the table. False if it was another. */
bool arena_chunk_swap(
    struct arena_chunk *chunk, enum arena_chunk_state from, enum arena_chunk_state to);

/* Word and record of page `page` of the chunk (below pages_per_chunk). */
uint64_t *arena_page_word(const struct arena_chunk *chunk, uint32_t page);
/* One that was read before becomes `state`, if it still is what it was. */
bool arena_page_swap(
    const struct arena_chunk *chunk, uint32_t page, uint64_t word, enum arena_page_state state);
/* Gives the page a slot of the tier: an enum tier_outcome or -ENOMEM. */
int arena_slot_take(struct arena_chunk *chunk, uint32_t page) _must_check_;
void arena_slot_give(struct arena_chunk *chunk, uint32_t page);
/* Slots of pages that the worker freed meanwhile go back, if no job names them. Counts those that
 * may be dropped. */
void arena_slots_sweep(struct arena_chunk *chunk);
/* Makes room among the arena's slots: what can be computed again and nobody waits for is dropped,
 * of the chunk that was used longest ago, and what continues it before; `carrying`: also where that
 * is on the device. False when there is nothing, or the turn has dropped enough. */
bool arena_slots_drop(struct arena *arena, bool carrying);

/* Tells whoever waits for pages to look, every holder. Never blocks. */
void arena_notify(const struct arena *arena);
/* Says once that the table makes no sense. */
void arena_blame(struct arena *arena, const struct arena_chunk *chunk, const char *what);
