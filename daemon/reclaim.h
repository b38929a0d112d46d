/*
 * From a shortage to a plan: wishes are collected, the device is surveyed, the policy plans, the
 * plan is logged and carried out.
 *
 * What is being emptied for a tenant already counts against what it wishes again, so that one
 * shortage takes one amount of memory.
 */
#pragma once

#include "base/list.h"
#include "daemon/survey.h"

struct core_action;

/* Shortages that wait for the same survey; those of more tenants come again by themselves. */
#define RECLAIM_WISHES 64

struct reclaim_wish {
    uint32_t tenant;
    bool own;
    uint64_t bytes, wanted;
};

/* An operator's question or order. The owner frees it, before the answer or after. */
struct reclaim_order {
    struct list link; /* reclaim.orders; in no list: answered or never given */
    struct reclaim_request request;
    bool dry_run;
    /* The answer; arrays are borrowed for the call. It may free the order. */
    void (*done)(struct reclaim_order *order, struct hosting *hosting,
        const struct reclaim_step *steps, size_t count, uint64_t planned,
        enum reclaim_shortfall shortfall);
};

struct reclaim {
    struct survey survey;
    size_t wish_count;
    struct reclaim_wish wishes[RECLAIM_WISHES];
    struct list orders;             /* struct reclaim_order.link */
    struct reclaim_tenant *tenants; /* LIMIT_TENANTS, by the core's index */
    struct reclaim_step *steps;
    bool hold;            /* memory is kept back for a mover that isn't there … */
    uint64_t hold_ns;     /* … and when to look whether some lacks */
    uint64_t planned_log; /* hash of what was last logged about a plan of nothing */
};

int reclaim_init(struct reclaim *reclaim) _must_check_;
/* Orders that are left are answered by nothing planned. */
void reclaim_clear(struct hosting *hosting);

/* CORE_ACTION_RECLAIM. */
void reclaim_note(struct hosting *hosting, const struct core_action *action);
/* Whether the core keeps memory back for the mover: where it lacks some, empty chunks are asked
 * back. */
void reclaim_hold(struct hosting *hosting, bool hold);
/* It is answered by its done() from the loop. */
void reclaim_give(struct hosting *hosting, struct reclaim_order *order);
/* Surveys and plans as far as one turn goes. */
void reclaim_turn(struct hosting *hosting);
/* The arena is about to go. */
void reclaim_forget(struct arena *arena);
/* One row for each tenant, with what is on its way counted: valid until the next call. */
const struct reclaim_tenant *reclaim_tenants_read(struct hosting *hosting);
/* The chunk of a plan's row; NULL when it is gone. */
struct arena_chunk *reclaim_chunk_of(struct hosting *hosting, uint32_t row);
