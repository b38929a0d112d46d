/*
 * Segments: memory that one process of a tenant writes, seals, and any number of them read
 * (docs/segments.md). The core knows a segment as a lease with several holders; what stands here is
 * its name, its checksums, and where its bytes are.
 *
 *   ASKED        its memory is being waited for
 *   WRITING      one process has it, writable; without that process it is gone
 *   SEALING      … has said that it is written; the mover sums it up
 *   SEALED       the tenant's steward holds it, and whoever opened it
 *   DEMOTING     nobody but the steward holds it; its bytes are on their way to the host tier
 *   DEMOTED      … are there, and there is no device memory behind it
 *   FILLING      it waits for device memory …
 *   RESTORING    … and is being copied back
 *   QUARANTINED  its bytes are not those that were sealed: it is never served again
 *   REMOVED      nobody finds it; it is kept until its last holder and its last job have gone
 *
 * A space is what has names: one for each tenant and share group that has segments, by the core's
 * index. Its steward is a client of the core's that is no process.
 *
 * Nothing here steps the core within an action: those note a space, and segments_settle() looks at
 * it when the step is over. All of it belongs to the loop's thread; nothing blocks.
 */
#pragma once

#include "base/heap.h"
#include "base/list.h"
#include "daemon/core/core.h"
#include "daemon/tier.h"

struct broker;
struct event;
struct session;

/* Numbers stay what they are: what is kept of segments holds them (segment_kept.h). */
enum segment_state {
    SEGMENT_ASKED,
    SEGMENT_WRITING,
    SEGMENT_SEALING,
    SEGMENT_SEALED,
    SEGMENT_DEMOTING,
    SEGMENT_DEMOTED,
    SEGMENT_FILLING,
    SEGMENT_RESTORING,
    SEGMENT_QUARANTINED,
    SEGMENT_REMOVED,
    SEGMENT_STATE_MAX
};

const char *segment_state_name(enum segment_state state);
bool segment_state_legal(enum segment_state from, enum segment_state to);

/* What the mover goes through a segment's pieces for. */
enum segment_walk_kind {
    SEGMENT_WALK_NONE,
    SEGMENT_WALK_SEAL,
    SEGMENT_WALK_VERIFY,
    SEGMENT_WALK_DEMOTE,
    SEGMENT_WALK_RESTORE,
    SEGMENT_WALK_KIND_MAX
};

struct segment_walk {
    enum segment_walk_kind kind;
    uint32_t next;               /* piece that is to be named in a job */
    uint32_t jobs;               /* unanswered */
    int error;                   /* of the first job that failed: nothing more is submitted */
    bool stopped;                /* it is to end without a result */
    bool changed;                /* a piece was not what was sealed … */
    uint32_t bad;                /* … this one */
    char text[LIMIT_TEXT_BYTES]; /* what the mover said of `error` */
};

struct segment_space {
    struct list noted_link; /* segments.noted */
    struct broker *broker;
    uint32_t tenant;      /* the core's index of the tenant or share group */
    struct list segments; /* struct segment.link */
    uint32_t count;
    struct list unserved;  /* struct segment_waiter.link: to be looked at, in their order */
    uint32_t waiter_count; /* these, and those of its segments */
    core_id steward;       /* 0: none */
};

struct segment {
    struct list link;     /* space.segments */
    struct list all_link; /* segments.all */
    struct segment_space *space;
    uint64_t number; /* grows: order of lists */
    char name[LIMIT_NAME_BYTES + 1];
    uint32_t device;
    enum segment_state state;
    core_id lease;       /* 0 before it is granted, and when it has ended */
    core_id writer;      /* client; 0 once it is sealed */
    uint64_t request;    /* of the writer: that asked for it, then that seals it */
    uint64_t size_bytes; /* as asked for */
    uint64_t chunk_bytes;
    uint32_t chunks;
    uint64_t piece_bytes; /* what has one checksum; a chunk has a whole number of them */
    uint32_t pieces;
    uint64_t *sums;           /* by piece; NULL: it has none */
    struct tier_space *store; /* in the host tier; NULL: nothing of it is there */
    uint64_t *slots;          /* … by piece */
    bool stored;              /* all of it is there */
    bool summed;              /* it is sealed, and has checksums: a mover is kept for it */
    struct segment_walk walk;
    uint64_t fill; /* the steward's request for its memory; 0: none … */
    int filled;    /* … 1: granted, −1: refused, with `refusal` */
    struct core_action refusal;
    uint32_t beneficiary; /* DEMOTING: index of the tenant, UINT32_MAX an operator */
    bool counted;         /* … in the device's bytes that are coming */
    struct list waiters;  /* struct segment_waiter.link: until its state says more */
    uint32_t waiter_count;
    uint32_t readers; /* holders but the steward */
    uint64_t asked_ns, idle_ns,
        verified_ns;    /* idle: since; CLOCK_NEVER: it isn't, or wasn't ever */
    uint64_t verify_ns; /* when the next look at its checksums is due */
    uint64_t verifications;
    char text[LIMIT_TEXT_BYTES]; /* what was found wrong with it */
    struct segment_kept *kept;   /* what outlives the broker, mapped; NULL: nothing does */
    uint64_t kept_tag;           /* of the job that stores it: 0 when it is done … */
    bool kept_stored;            /* … and whether it is in the store then */
};

struct segments {
    struct broker *broker;
    struct segment_space *spaces[LIMIT_TENANTS];
    uint32_t
        waiting[LIMIT_TENANTS]; /* requests, by the tenant of who asked: for its share group, too */
    struct list all;            /* struct segment.all_link, by number */
    struct list noted;          /* struct segment_space.noted_link */
    struct heap deadlines;      /* struct segment_waiter.deadline */
    struct event *timer;
    uint64_t due_ns;   /* when something is due; CLOCK_NEVER */
    uint64_t timer_ns; /* when it fires; the same */
    uint64_t last_number;
    bool closing; /* the broker ends: nothing is asked of the core any more */
    bool refused; /* the steward's request that was made last */
    struct core_action refusal;
};

/* -ENOMEM. */
int segments_new(struct broker *broker, struct segments **ret) _must_check_;
/* No job may be left. Accepts NULL, returns NULL. */
struct segments *segments_free(struct segments *segments);

/* Something may have changed for the segments of this tenant or group (the core's index). */
void segments_note(struct broker *broker, uint32_t tenant);
/* Acts on what was noted. Steps the core. */
void segments_settle(struct broker *broker);
/* GRANT, DONE or REFUSE of a request of a steward's; false: it is none of theirs. */
bool segments_answer(struct broker *broker, const struct core_action *action);

/* The tenant's, made if need be. NULL without memory. */
struct segment_space *segment_space_get(struct broker *broker, uint32_t tenant);
/* By name and device: NULL when there is none that can be found by them. */
struct segment *segment_named(const struct segment_space *space, uint32_t device, const char *name);
/* NULL when the lease is no segment of the tenant's. */
struct segment *segment_of_lease(const struct broker *broker, uint32_t tenant, core_id lease);
/* One in ASKED. NULL without memory, or when the space has as many as it may. */
struct segment *segment_new(
    struct segment_space *space, uint32_t device, const char *name, uint64_t size_bytes);
void segment_set_state(struct segment *segment, enum segment_state state);
/* Nothing refers to it any more: no lease, no job. Who waited for it is to be looked at anew. */
void segment_free(struct segment *segment);
/* The core has granted its lease. */
void segment_bind(struct segment *segment, core_id lease);

/* A request of the steward's, who is made if need be. False when it was refused at once;
 * segments.refusal says why. */
bool segment_steward_ask(
    struct segment_space *space, struct core_event *event, uint64_t *ret_request);
/* Every chunk becomes the steward's, too. False as above. */
bool segment_steward_attach(struct segment *segment);
/* Whether it holds the segment; and lets go of it, if so. */
bool segment_steward_holds(const struct segment *segment);
void segment_steward_release(struct segment *segment);

/* It is found no more, and ends with its last holder and job. */
void segment_remove(struct segment *segment);
/* Its bytes aren't those that were sealed. */
void segment_quarantine(struct segment *segment, const char *text);
/* Memory for a DEMOTED one is asked for, until `wait_ns` from now. */
void segment_fill(struct segment *segment, uint64_t wait_ns);
/* Who waits for a segment there is told so. */
void segments_device_failed(struct broker *broker, uint32_t device);
/* The configuration is another one: so are the times that it sets. */
void segments_reload(struct broker *broker);
/* When something is due of it, besides what is noted. */
void segments_at(struct segments *segments, uint64_t at_ns);
