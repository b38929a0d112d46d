/* Leases: which chunks a client holds, and how they come back. */
#pragma once

#include "daemon/core/types.h"

/* NULL without host memory. */
struct lease *lease_new_pending(
    struct core *core, struct client *client, uint32_t device, uint64_t chunk_bytes);
/* A lease that was never granted. */
void lease_drop_pending(struct core *core, struct lease *lease);
/* The request's chunks are granted; a pending lease becomes an active one. */
void lease_extend(struct core *core, const struct request *request);
/* An arena is active from the start. NULL without host memory. */
struct lease *lease_new_arena(struct core *core, struct client *client, uint32_t device,
    uint64_t chunk_bytes, uint32_t max_chunks);
/* PENDING, with `chunks` indices, all of which its request fills. NULL without host memory. */
struct lease *lease_new_segment(struct core *core, struct client *client, uint32_t device,
    uint64_t chunk_bytes, uint32_t chunks);
/* Its indices are counted, by 1 or −1, as long as it exists, whether they are filled or not. */
void lease_count_indices(struct lease *lease, int by);
/* Whether any of these indices of an arena is filled or asked for. */
bool lease_overlaps(const struct lease *lease, uint32_t first, uint32_t count);
/* An active lease; NULL when there is none or the client is no holder of it. */
struct lease *lease_find(struct core *core, const struct client *client, core_id id);
/* One holder less, none of whose requests for the lease may be in flight. The lease ends with its
 * last one. */
void lease_let_go(struct core *core, struct holder *holder);
/* One that has no holder and no chunk. */
void lease_end(struct core *core, struct lease *lease);

void lease_shrink_event(struct core *core, struct client *client, const struct core_event *event);
void lease_return_event(struct core *core, struct client *client, const struct core_event *event);
void lease_release_event(struct core *core, struct client *client, const struct core_event *event);
