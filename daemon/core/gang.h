/* One request for leases on several devices: all of them or none. */
#pragma once

#include "daemon/core/types.h"

/* The requests that stand and fall with this one: its gang's, or it alone. */
static inline uint32_t request_parts(const struct request *request)
{
    return request->gang ? request->gang->count : 1;
}

static inline struct request *request_part(struct request *request, uint32_t index)
{
    return request->gang ? request->gang->parts[index] : request;
}

/* Event of an active client: answers at once or leaves the parts behind, queued. */
void gang_request_event(struct core *core, struct client *client, const struct core_event *event);
/* After its parts are gone. Accepts NULL. */
void gang_free(struct gang *gang);
/* Frees it from under its parts, at the end of everything. Accepts NULL. */
void gang_disband(struct gang *gang);

/* What the request is ranked by on its device: of a gang's part the same as on all the others. */
void gang_rank(
    struct core *core, struct request *request, uint64_t *ret_used, uint64_t *ret_requested);
/* Devices that gangs wait for are drained together, so that all parts are judged in one step. */
void gangs_couple(struct core *core);
/* Whether nothing but its devices holds the other parts back: else this one reserves nothing. */
bool gang_stands(struct core *core, struct request *request);
/* The device has room for the part, behind what is reserved there. */
void gang_fits(struct core *core, struct request *request, uint64_t reserved_bytes);
/* Admits the gangs all of whose parts have been found to fit in this step. */
void gangs_admit(struct core *core);

/* The part that says best why the gang waits; the request itself where it is alone. */
struct request *gang_culprit(struct request *request);
/* Whether every chunk of every part is there. */
bool gang_supplied(struct request *request);
