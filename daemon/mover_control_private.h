/*
 * Inside of the mover's control: what its files share. mover_control.c has the interface and the
 * loop's events, mover_life.c the process, mover_dispatch.c jobs and answers,
 * mover_ahead.c what is done before it is asked for.
 *
 * Every callback of the loop ends in control_settle(), which alone calls the owner's handler,
 * starts movers and sends.
 */
#pragma once

#include "daemon/mover_control.h"
#include "daemon/mover_held.h"
#include "daemon/mover_process.h"
#include "daemon/mover_record.h"

struct event;

/* Jobs on their way at once: two for each lane of the mover. */
#define FLIGHT_JOBS 6

/* Slabs of the tier that are made ready before a job needs them. */
struct mover_ahead {
    uint64_t *locked;  /* a bit for each slab of memory: the mover has it, or is about to */
    unsigned failures; /* of PREPAREs in a row, by whatever mover */
};

struct mover_control {
    struct event_base *base;
    const struct clock *clock;
    struct tier *tier;
    uint8_t uuid[16];
    struct mover_options options;
    struct mover_handler handler;

    enum mover_state state;
    struct mover_process process;
    struct conn *conn; /* NULL but in STARTING and READY */
    bool end_wanted;   /* ENDING because we said so */
    struct mover_holdings holdings;
    struct list gone; /* struct mover_held: forgotten, the owner isn't told yet */

    struct list urgent, normal; /* struct mover_record: to be sent */
    struct list suspects;       /* to be sent again, alone */
    struct list flight, done;
    struct mover_ahead ahead;
    size_t queued, in_flight; /* queued: in the first three */
    uint64_t flight_bytes;
    uint64_t last_id;

    unsigned failures;      /* starts and deaths in a row without an answer in between */
    unsigned failed_starts; /* in a row, no MoverReady among them … */
    unsigned starved;       /* … for want of device memory */
    uint64_t wanted_bytes;  /* as the owner was told last */
    uint64_t start_at_ns;   /* not before */
    uint64_t hold_until_ns; /* no suspect is sent before */
    uint64_t deadline_ns;   /* of what the state waits for */
    uint64_t look_ns;       /* whether it is stopped; CLOCK_NEVER: nothing is expected of it */
    uint64_t idle_at_ns;    /* when the mover is ended if nothing comes */
    bool keep;              /* also without work … */
    bool dismissed;         /* … and no longer: it ends with the work that is left */
    uint64_t keep_at_ns;    /* without work none is started before */
    uint64_t trim_at_ns;    /* CLOCK_NEVER: the tier has nothing to give back */
    struct event *read_event, *write_event, *exit_event, *timer;
    struct mover_stats stats;
    char last_text[LIMIT_TEXT_BYTES + 1]; /* what went wrong last */
};

/* ---- mover_control.c ---- */

uint64_t control_now(const struct mover_control *control);
/* Watches the connection and the process that there are now. False without memory. */
bool control_watch(struct mover_control *control);
/* The connection and, once it is reaped, the process. */
void control_unwatch(struct mover_control *control);
void control_unwatch_process(struct mover_control *control);
/* The job is over: its owner is told by control_settle(). It must be in no list. */
void control_finish(struct mover_control *control, struct mover_record *record, int error);

/* ---- mover_life.c ---- */

/* Starts a mover if there is work and it is time. */
void life_start_if_due(struct mover_control *control);
/* The mover is of no use any more: it is killed, and reaped once it has ended. `why` is NULL when
 * it hung up, which its exit status explains better. */
void life_fail(struct mover_control *control, const char *why);
/* Ends an idle one in good order. */
void life_end(struct mover_control *control);
/* The process may have ended. */
void life_reap(struct mover_control *control);
/* Device memory that the next mover needs; 0 while one is there or none is to be. */
uint64_t life_memory_wanted(const struct mover_control *control);
/* Said by MoverReady. */
void life_ready(struct mover_control *control, uint64_t context_bytes);
/* Acts on whatever deadline has passed; when to be called again. */
uint64_t life_tick(struct mover_control *control);

/* ---- mover_ahead.c ---- */

/* -ENOMEM. */
int ahead_init(struct mover_control *control) _must_check_;
void ahead_clear(struct mover_control *control);
/* Another mover: it has nothing yet. */
void ahead_forget(struct mover_control *control);
/* The mover is sent the job: it will have the slabs that this one names. */
void ahead_note(struct mover_control *control, const struct mover_record *record);
/* A PREPARE to be sent now; NULL: none. */
struct mover_record *ahead_next(struct mover_control *control);
/* One failed, or its mover died. */
void ahead_failed(struct mover_control *control, const char *text);

/* ---- mover_dispatch.c ---- */

/* Sends what may be sent. */
void dispatch_send(struct mover_control *control);
/* Reads answers until there is none; fails the mover if it breaks the protocol or is gone. */
void dispatch_receive(struct mover_control *control);
/* The mover is gone: what was on its way goes back into the queue or fails. */
void dispatch_recall(struct mover_control *control);
/* The control ends: everything is over. */
void dispatch_cancel(struct mover_control *control);
/* Fails everything that is queued. */
void dispatch_give_up(struct mover_control *control, int error, const char *text);
bool dispatch_has_work(const struct mover_control *control);
/* Some answer came, or the first job went out: the time for the next one begins. */
void dispatch_progress(struct mover_control *control);
