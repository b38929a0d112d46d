/* How a second process of a tenant comes to an arena: by the name under which it is shared. */
#pragma once

#include "daemon/arena.h"
#include "daemon/request.h"
#include "proto/gmb.pb-c.h"

/* A shared arena is found by its name from now on, among those of its tenant. -ENOMEM. */
int arena_name_publish(struct arena *arena) _must_check_;
void arena_name_withdraw(struct arena *arena);
/* NULL when the tenant shares none of that name. */
struct arena *arena_named(const struct broker *broker, uint32_t tenant, const char *name);

void on_arena_attach(struct session *session, const Gmb__ClientMessage *message);
void on_arena_ready(struct session *session, const Gmb__ClientMessage *message);
/* The core has granted an ArenaAttach. Consumes the request. */
void arena_attached(
    struct session *session, const struct core_action *action, struct request *request);

/* From now on the holder takes part in fills, and it is sent what others have. Steps the core. */
void arena_holder_open(struct arena_holder *holder);
/* Chunks of the run that others have and this holder hasn't, and that aren't being given back. Each
 * run of them is a Grant that nobody asked for. Steps the core. */
void arena_share(struct arena_holder *holder, uint32_t first, uint32_t end);
/* Chunks of pages that the holder wants, where others have them: it could not map them earlier. */
void arena_share_pages(struct arena_holder *holder, const uint32_t *pages, size_t count);
