/* What clients say about arenas, and what they are answered. */
#pragma once

#include "daemon/core/core.h"
#include "daemon/request.h"
#include "proto/arena_table.h"
#include "proto/gmb.pb-c.h"

struct arena_holder;

void on_arena_request(struct session *session, const Gmb__ClientMessage *message);
void on_arena_fill(struct session *session, const Gmb__ClientMessage *message);
void on_arena_return(struct session *session, const Gmb__ClientMessage *message);
void on_arena_mapped(struct session *session, const Gmb__ClientMessage *message);
void on_page_want(struct session *session, const Gmb__ClientMessage *message);
/* Release of a lease that is an arena; false when it is none. */
bool arena_release_take(struct session *session, uint64_t id, core_id lease);

/* The core has granted an ArenaRequest. Consumes the request. */
void arena_granted(
    struct session *session, const struct core_action *action, struct request *request);
/* The core has done an ArenaReturn or the release of an arena. */
void arena_done(struct session *session, const struct request *request);

/* Goes on with what waited for the arena's jobs. The arena may be gone afterwards. */
void arena_held_resume(struct arena *arena);
/* The client's session is gone: it asks no more. */
void arena_held_drop(struct arena *arena, core_id client);
void arena_held_drop_all(struct arena *arena);
/* Whether the mover is at work on chunks that would be free without this holder. */
bool arena_leaving_busy(const struct arena *arena, core_id client);
/* Whether the process may have one more arena of this layout. */
bool arena_affordable(const struct client *client, const struct arena_table_header *layout);
/* Sends an ArenaCreated. -errno. */
int arena_created_send(
    struct session *session, uint64_t request, const struct arena_holder *holder) _must_check_;
