/* Life of a request, from its event to its one answer. */
#pragma once

#include "daemon/core/types.h"

/* Events of active clients; each answers at once or leaves a request behind. */
void request_new_lease(struct core *core, struct client *client, const struct core_event *event);
void request_new_arena(struct core *core, struct client *client, const struct core_event *event);
void request_fill(struct core *core, struct client *client, const struct core_event *event);
void request_grow(struct core *core, struct client *client, const struct core_event *event);
/* What may refuse a request before its size is looked at: false after an answer. */
bool request_allowed(
    struct core *core, const struct client *client, const struct core_event *event);
void request_cancel_event(struct core *core, struct client *client, const struct core_event *event);

/* All chunks are there: answers GRANT and ends the request. */
void request_grant(struct core *core, struct request *request);
/* Answers REFUSE with the request's limit and ends it; its chunks must have been given back. */
void request_refuse(struct core *core, struct request *request, enum gmb_status status);
/* Ends it without an answer: its client can't hear any more. */
void request_drop(struct core *core, struct request *request);
