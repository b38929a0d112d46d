/*
 * Pressure, as tenants hear of it: the status page, events on the socket, watches and advice.
 *
 * One record for each tenant that has a client. A session that listens has a bit for each device
 * whose state it is to be told: marking one costs no memory, sending goes on while its socket takes
 * it, and what is sent is what holds then. So nothing is queued twice or lost, and a client that
 * doesn't read costs its bits.
 *
 * All of it belongs to the loop's thread.
 */
#pragma once

#include <assert.h>

#include "base/clock.h"
#include "base/list.h"
#include "daemon/advice.h"
#include "daemon/core/core.h"
#include "daemon/status.h"

struct broker;
struct event;
struct session;

/* Pressure events for one tenant's state on one device are at least so far apart. */
#define PRESSURE_EVENT_NS (100 * NSEC_PER_MSEC)

/* A session's part. */
struct listener {
    struct pressure_tenant *tenant; /* NULL: not greeted, or over */
    struct list link;               /* pressure_tenant.listeners, while it is subscribed */
    struct list pending_link;       /* pressure.pending: something may be sent */
    uint64_t devices;               /* whose state is to be sent, a bit each */
    bool advice;                    /* the advice is to be sent */
    uint8_t watches;
    uint8_t outcomes[LADDER_ACTION_MAX]; /* 1 + enum advice_outcome, of the advice … */
    uint64_t acked;                      /* … with this id */
};
static_assert(LIMIT_DEVICES <= 64, "devices fit in a word");

struct pressure_device {
    struct list late_link; /* pressure.late: changed too soon after the last event */
    struct pressure_tenant *tenant;
    uint64_t event_ns; /* when the last event was due; 0: never */
};

struct pressure_tenant {
    uint32_t index; /* the core's */
    struct status *status;
    struct list listeners; /* struct listener.link */
    struct list watches;   /* struct watch.link */
    uint32_t listener_count, watch_count;
    struct advice advice;
    struct pressure_device devices[]; /* by index */
};

struct pressure {
    struct broker *broker;
    struct pressure_tenant *tenants[LIMIT_TENANTS]; /* by the core's index */
    struct list pending;                            /* struct listener.pending_link */
    struct list late;                               /* struct pressure_device.late_link */
    struct event *turn; /* late events, watches, and what didn't fit into the last turn */
    uint64_t due_ns;    /* when that comes; CLOCK_NEVER */
    uint32_t watch_count;
    uint64_t watch_ids;
};

/* -ENOMEM. */
int pressure_new(struct broker *broker, struct pressure **ret) _must_check_;
/* Every session must be gone. Accepts NULL, returns NULL. */
struct pressure *pressure_free(struct pressure *pressure);

/* The record of a tenant that has a client, made if there is none; its page is up to date then.
 * -errno of status_new(). */
int pressure_tenant_get(
    struct pressure *pressure, uint32_t tenant, struct pressure_tenant **ret) _must_check_;
/* NULL when it has none. */
struct pressure_tenant *pressure_tenant_find(const struct pressure *pressure, uint32_t tenant);
/* Ends the record if the tenant has no client any more. */
void pressure_tenant_settle(struct pressure *pressure, uint32_t tenant);

/* CORE_ACTION_PRESSURE and CORE_ACTION_ADVICE. */
void pressure_changed(struct pressure *pressure, const struct core_action *action);
void pressure_advised(struct pressure *pressure, const struct core_action *action);
/* The device went out of service, or is back. */
void pressure_health_changed(struct pressure *pressure, uint32_t device);

/* The session is greeted: it belongs to this tenant. */
void pressure_join(struct session *session, struct pressure_tenant *tenant);
/* From now on the session hears events, the present state first; idempotent. */
void pressure_subscribe(struct session *session);
void pressure_unsubscribe(struct session *session);
/* The session ends. */
void pressure_leave(struct session *session);
/* Its socket takes more. */
void pressure_resume(struct session *session);
/* Sends what waits, a bounded number of frames; the rest comes with the next turn of the loop. */
void pressure_pump(struct pressure *pressure);
/* There is something to look at by then. */
void pressure_at(struct pressure *pressure, uint64_t at_ns);
