/*
 * Who wants to hear what becomes of the broker, besides its clients: the service manager, the bus.
 * An observer tells others, later: it changes nothing, and calls nothing that steps the core.
 */
#pragma once

#include <sys/types.h>

#include "base/error.h"
#include "base/list.h"

/* An Error that a client got; strings are borrowed for the call. */
struct broker_refusal {
    const char *tenant; /* "": a process that belongs to none, or said no Hello yet */
    pid_t pid;
    enum gmb_status status;
    enum gmb_limit limit;
    uint64_t requested_bytes, available_bytes;
    const char *text;
};

/* Memory that was taken from an arena, or a process that was ended for it. Tenants are the core's
 * indices; the beneficiary is UINT32_MAX for an operator. */
struct broker_taking {
    uint32_t device, tenant, beneficiary;
    uint64_t bytes; /* emptied on the device */
    pid_t pid;      /* killed */
};

/* A segment whose bytes have changed since it was sealed; strings are borrowed for the call. */
struct broker_quarantine {
    uint32_t device, tenant; /* the core's indices; the tenant may be a share group */
    const char *segment, *text;
};

/* Callbacks that aren't wanted are NULL. All are to be cheap, and are called from the loop. */
struct broker_observer {
    struct list link; /* broker.observers */
    /* Something may have changed; at the end of every callback of the loop. */
    void (*settled)(struct broker_observer *observer);
    void (*refused)(struct broker_observer *observer, const struct broker_refusal *refusal);
    void (*evicted)(struct broker_observer *observer, const struct broker_taking *taking);
    void (*killed)(struct broker_observer *observer, const struct broker_taking *taking);
    void (*quarantined)(
        struct broker_observer *observer, const struct broker_quarantine *quarantine);
    /* A tenant's level on a device may be another, by the core's indices: core_pressure_get() has
     * it. Comes as often as it changes; who tells somebody gathers. */
    void (*pressed)(struct broker_observer *observer, uint32_t tenant, uint32_t device);
};

/* Tell every observer in the list. */
void observers_settled(const struct list *observers);
void observers_refused(const struct list *observers, const struct broker_refusal *refusal);
void observers_evicted(const struct list *observers, const struct broker_taking *taking);
void observers_killed(const struct list *observers, const struct broker_taking *taking);
void observers_quarantined(
    const struct list *observers, const struct broker_quarantine *quarantine);
void observers_pressed(const struct list *observers, uint32_t tenant, uint32_t device);
