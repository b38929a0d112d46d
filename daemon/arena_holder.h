/*
 * The clients that hold an arena: one, or several of one tenant where it is shared. The core's
 * ledger says who has which chunk; what stands here is what the shell needs to talk to them, and
 * the number under which the words of pages know each.
 *
 * One that is gone (dead, or it let go of the arena) leaves its bits in those words. They are
 * cleared page by page, a bounded number in a turn, and its number is given to nobody meanwhile.
 */
#pragma once

#include "daemon/arena.h"

struct hosting;

struct arena_holder {
    struct list link;        /* arena.holders, in the order in which they came */
    struct list client_link; /* client.holdings, once the core knows of it */
    struct arena *arena;
    core_id client;
    uint32_t number; /* below ARENA_HOLDERS_MAX */
    bool ready;      /* chunks may be sent to it */
    bool stored;     /* a successor finds its fd */
    int event_fd;
};

/* The last in the arena's list. -EUSERS when every number is taken, -ENOMEM, -errno. */
int arena_holder_new(struct arena *arena, core_id client, struct arena_holder **ret) _must_check_;
/* One of a broker before: under its number, with its fd, which is taken also on failure. -ENOMEM.
 */
int arena_holder_restore_consume(
    struct arena *arena, core_id client, uint32_t number, int event_fd) _must_check_;
/* One that the core doesn't know. Accepts NULL, returns NULL. */
struct arena_holder *arena_holder_free(struct arena_holder *holder);
/* The core knows it: the client counts the arena. */
void arena_holder_enter(struct arena_holder *holder, struct client *client);
/* The core knows it no longer. With the last holder the arena goes, too. */
void arena_leave(struct arena_holder *holder);

/* NULL when the client holds no part of the arena. */
struct arena_holder *arena_holder_find(const struct arena *arena, core_id client);
/* The connection of a holder; NULL when it has ended, or resumes. */
struct session *arena_holder_session(const struct arena_holder *holder);
/* One that can ask for chunks; NULL when there is none. */
struct arena_holder *arena_asker(const struct arena *arena);
/* For the log: the oldest holder's process, or the first one that has the chunk. May be NULL. */
const struct client *arena_client(const struct arena *arena);
const struct client *arena_chunk_client(const struct arena_chunk *chunk);
/* Whether everybody who has the chunk can be asked for it. */
bool arena_chunk_reachable(const struct arena_chunk *chunk);

/* Chunks that were granted to `asker` go to all others who have them by now. */
void arena_spread(struct arena *arena, core_id asker, const struct core_action *action);
/* One holder less has the index: it is empty, or others are asked for it, or keep it. */
void arena_index_returned(struct arena *arena, uint32_t index);
