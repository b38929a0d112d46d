/*
 * What the keeper says to its own service manager, if it has one: that the broker is ready, and its
 * line of state. libsystemd's sender waits while the manager's queue is full, and meanwhile nothing
 * would be held for the broker; this one tries again later, with what is true then.
 *
 * Not thread-safe. Nothing here blocks or logs.
 */
#pragma once

#include "base/clock.h"
#include "daemon/keeper/notify.h"

struct manager {
    int fd; /* connected; -1: there is none */
    bool ready, due;
    uint64_t again_ns; /* when what is due is tried again; CLOCK_NEVER: nothing is */
    char status[NOTIFY_BYTES];
};

/* Connects to NOTIFY_SOCKET. Without it, or where that can't be done, nobody is told. */
void manager_open(struct manager *manager);
void manager_close(struct manager *manager);

/* What the broker said: READY=1, and STATUS= unless NULL. */
void manager_tell(struct manager *manager, bool ready, const char *status, uint64_t now_ns);
/* Tries what is due by now. */
void manager_step(struct manager *manager, uint64_t now_ns);
