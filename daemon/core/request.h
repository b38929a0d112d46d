/* Life of a request, from its event to its one answer. */
#pragma once

#include "daemon/core/types.h"

/* Events of active clients; each answers at once or leaves a request behind. */
void request_new_lease(struct core *core, struct client *client, const struct core_event *event);
void request_new_segment(struct core *core, struct client *client, const struct core_event *event);
void request_new_arena(struct core *core, struct client *client, const struct core_event *event);
void request_fill(struct core *core, struct client *client, const struct core_event *event);
void request_grow(struct core *core, struct client *client, const struct core_event *event);
void request_cancel_event(struct core *core, struct client *client, const struct core_event *event);

/*
 * What may refuse an event that asks for memory, in parts of itself; `count`: requests or leases
 * that it would become. Each answers when it says no.
 */
bool request_allowed(
    struct core *core, const struct client *client, const struct core_event *event, uint32_t count);
bool request_leases_allowed(
    struct core *core, struct client *client, const struct core_event *event, uint32_t count);
/* Size of the chunks of a new lease of `wanted` bytes; 0 after an answer. */
uint64_t request_chunk_bytes(struct core *core, const struct device *device,
    const struct core_event *event, uint64_t wanted, uint64_t asked);
/* Answers that the host has none for a lease. */
void request_no_memory(struct core *core, const struct core_event *event);
/* One that no queue has yet. NULL after an answer; a PENDING lease is gone then. */
struct request *request_make(struct core *core, struct client *client, struct lease *lease,
    const struct core_event *event, uint32_t first, uint64_t bytes, uint64_t wait_ns);

/* These take any part of a gang for all of it. */
/* All chunks are there: answers GRANT and ends the request. */
void request_grant(struct core *core, struct request *request);
/* Answers REFUSE with the request's limit and ends it; its chunks must have been given back.
 * What its answer says is of this part of a gang. */
void request_refuse(struct core *core, struct request *request, enum gmb_status status);
/* Ends it without an answer: its client can't hear any more. */
void request_drop(struct core *core, struct request *request);
