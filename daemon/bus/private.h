/* What the parts of the bus share. All of it belongs to the loop's thread. */
#pragma once

#include <event2/event.h>
#include <systemd/sd-bus.h>

#include "base/list.h"
#include "daemon/broker.h"
#include "daemon/report.h"

#define BUS_NAME "org.gmbd.Broker1"
#define BUS_PATH "/org/gmbd/Broker1"
#define BUS_PATH_DEVICES BUS_PATH "/device"
#define BUS_PATH_TENANTS BUS_PATH "/tenant"
#define BUS_MANAGER BUS_NAME ".Manager"
#define BUS_DEVICE BUS_NAME ".Device"
#define BUS_TENANT BUS_NAME ".Tenant"

/* Properties of one interface that emit changes. */
#define BUS_PROPERTIES 20
/* Evictions that are told together, by who gave, who gets and where. */
#define BUS_EVICTIONS 32

struct bus_row {
    uint64_t values[BUS_PROPERTIES]; /* as last told */
};

struct bus_tenant_row {
    char name[LIMIT_NAME_BYTES + 1]; /* "": not told of */
    struct bus_row row;
};

/* What was told, so that only what differs is told again. */
struct bus_told {
    struct bus_row manager;
    struct bus_row devices[LIMIT_DEVICES];
    struct bus_tenant_row tenants[LIMIT_TENANTS];
    uint32_t next_tenant; /* the pass goes on there */
};

/* A tenant's levels, as PressureChanged tells of them. */
struct bus_pressed {
    struct list link; /* bus.pressed, while there are … */
    uint64_t devices; /* … whose level may be another, a bit each */
};
/* One of them as it was told last. */
struct bus_level {
    uint64_t told_ns; /* 0: not by a signal */
    enum pressure_level level;
};
static_assert(LIMIT_DEVICES <= 64, "devices fit in a word");

struct bus {
    struct broker_observer observer;
    struct broker *broker;
    sd_bus *sd;   /* NULL while there is none */
    bool named;   /* callers find us */
    bool lost;    /* to be given up once sd-bus has returned */
    bool excused; /* that there is no bus has been said */
    struct event *io, *timer, *retry, *tell, *press;
    short watched; /* what `io` waits for */
    bool telling;  /* `tell` is armed */
    bool woken;    /* `timer` is due at once */
    unsigned retry_ms;
    struct list calls; /* struct call.link */
    size_t call_count;
    struct ratelimit refusals;
    struct broker_taking evictions[BUS_EVICTIONS];
    size_t eviction_count;
    struct bus_told told;
    struct list pressed;     /* struct bus_pressed.link */
    uint64_t pressed_due_ns; /* when `press` comes; CLOCK_NEVER */
    struct bus_pressed pressures[LIMIT_TENANTS];
    struct bus_level *levels; /* of each tenant on each device: pressure.c */
    struct report report;     /* scratch; what find callbacks give points into it */
};

/* ------------------------------------------------------------------ connection.c */

/* sd-bus was called: what it wants to be woken for may have changed. Gives the connection up when
 * it is lost or more is queued than a bus that reads would leave. */
void bus_settle(struct bus *bus);

/* ------------------------------------------------------------------ object.c */

extern const sd_bus_vtable bus_manager_vtable[], bus_device_vtable[], bus_tenant_vtable[];

/* One number for all that a property with a getter of its own says of the object. */
uint64_t bus_special_number(
    const struct bus *bus, const sd_bus_vtable *property, const void *object);

int bus_objects_add(struct bus *bus);
/* The object path, the caller's to free; NULL without memory. */
char *bus_device_path(const struct broker *broker, uint32_t device);
char *bus_tenant_path(const char *name);
/* Text of a device's UUID, for signals. */
const char *bus_device_text(const struct broker *broker, uint32_t device, char text[UUID_TEXT_MAX]);
/* Name of a tenant; "" for none. `view` holds it. */
const char *bus_tenant_name(
    const struct broker *broker, uint32_t tenant, struct core_tenant_view *view);

/* ------------------------------------------------------------------ change.c */

/* Takes what there is as told. */
void bus_told_init(struct bus *bus);
/* Tells what changed since, a bounded part of it; false when there is more to look at. */
bool bus_changes_tell(struct bus *bus);

/* ------------------------------------------------------------------ signal.c */

void bus_refused(struct broker_observer *observer, const struct broker_refusal *refusal);
void bus_evicted(struct broker_observer *observer, const struct broker_taking *taking);
void bus_killed(struct broker_observer *observer, const struct broker_taking *taking);
void bus_quarantined(struct broker_observer *observer, const struct broker_quarantine *quarantine);
/* Evictions that were gathered. */
void bus_evictions_tell(struct bus *bus);

/* ------------------------------------------------------------------ pressure.c */

/* -ENOMEM. The broker's devices are there. */
int bus_pressure_new(struct bus *bus) _must_check_;
/* Takes the levels that there are as told. */
void bus_pressure_init(struct bus *bus);
/* Nothing waits any more. */
void bus_pressure_drop(struct bus *bus);
void bus_pressed(struct broker_observer *observer, uint32_t tenant, uint32_t device);
/* Accepts what bus_pressure_new() left half-made. */
void bus_pressure_free(struct bus *bus);

/* ------------------------------------------------------------------ call.c */

/* Handler of every method that changes something. */
int bus_call(sd_bus_message *message, void *userdata, sd_bus_error *error);
/* Ends every call without an answer. */
void bus_calls_drop(struct bus *bus);
