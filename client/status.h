/* The tenant's status page, as this process has it mapped. */
#pragma once

#include "client/session.h"
#include "proto/status_page.h"

/*
 * Maps the page that came with Welcome, for `entries` devices. Only one that can neither shrink nor
 * lose bytes under us is touched. `fd` stays the caller's. PROTOCOL for a page of another shape,
 * INTERNAL when it can't be mapped; then nothing is mapped.
 */
int status_map(struct status_view *view, int fd, unsigned entries, struct outcome *outcome);
/* The page of a broker that came back, in the place of the one before, which others may be reading.
 * Where there was none nothing happens. Errors as above, with the old page in its place. */
int status_remap(struct status_view *view, int fd, struct outcome *outcome);
/* Idempotent. */
void status_unmap(struct status_view *view);

/*
 * All figures of one device as of one moment. UNSUPPORTED without a page, or while the entry was
 * never written; PROTOCOL for a page that never holds still; INVALID for no device, FORKED. No
 * system call.
 */
int status_pressure_read(const struct gmb_session *session, unsigned device,
    struct gmb_pressure *ret, struct outcome *outcome);

/* What of a device that hands out `capacity_bytes` is free to the tenant, and in all: free ≤ total
 * ≤ capacity, whatever the figures are. */
void status_memory(const struct gmb_pressure *pressure, uint64_t capacity_bytes, uint64_t *ret_free,
    uint64_t *ret_total);
