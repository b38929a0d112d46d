/*
 * Watches: an fd that becomes readable when a level is reached, or when enough stall came together
 * within a window, as PSI's triggers (kernel/sched/psi.c).
 * The fd is a bell (bell.h).
 */
#pragma once

#include "daemon/pressure.h"

struct watch_params {
    uint32_t device;
    enum pressure_level level; /* NONE: by stall */
    bool of_device;            /* the device's level */
    enum stall_line line;      /* by stall */
    uint64_t stall_ns, window_ns;
};

/* -EDQUOT: the client, or the tenant, has as many as it may; -ENOMEM; -errno of bell_new().
 * `ret_fd` is the caller's. What holds already makes it readable at once. */
int watch_new(struct session *session, const struct watch_params *params, uint64_t *ret_id,
    int *ret_fd) _must_check_;
/* False when the session has no such watch. */
bool watch_end(struct session *session, uint64_t id);
void watch_end_all(struct session *session);

/* The tenant's figures on the device have changed. */
void watch_look(struct pressure_tenant *tenant, uint32_t device,
    const struct core_pressure_view *view, uint64_t now_ns);
/* Those of which something is due. */
void watch_turn(struct pressure *pressure, uint64_t now_ns);
