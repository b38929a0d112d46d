/* Clients: connected processes, from greeting to death. */
#pragma once

#include "daemon/core/types.h"

/* The table of clients, each with a place for every device: before there is any client. */
void client_slots_init(struct core *core);
void client_add_event(struct core *core, const struct core_event *event);
void client_detach_event(struct core *core, struct client *client, const struct core_event *event);
/* Of a DETACHED one: it may ask again. */
void client_attach_event(struct core *core, struct client *client);
void client_dead_event(struct core *core, struct client *client);
/* One of its tenant's more, or less. */
void client_count(struct core *core, const struct client *client, int by);
