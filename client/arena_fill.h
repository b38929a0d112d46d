/* Growth: chunks that an arena asks for, and those that the broker sends by itself. */
#pragma once

#include "client/arena.h"

/*
 * Asks for chunks at the lowest run of empty indices that holds `pages`, or the longest there is;
 * wholly free ones first. EXHAUSTED when no index is empty. The session's lock is held;
 * none must be on its way in the lane.
 */
int arena_fill_start(struct gmb_arena *arena, enum arena_lane_name lane, uint64_t pages,
    uint64_t wait_ns, struct outcome *outcome);

/* The seat concludes an answered fill: its chunks are live, or everything is as it was. Without
 * lock. */
void arena_fill_conclude_consume(struct gmb_session *session, struct request *request);

/* Indices that the broker refused may be asked for again once their time is over. With the lock. */
void arena_fill_disputes_end(struct gmb_arena *arena, uint64_t now_ns);

/* A Grant of id 0. By the seat, with the lock, which it gives up around driver calls. A breach of
 * the protocol is returned; a failure of the driver gives the chunks back. */
int arena_grant_take(
    struct gmb_session *session, const Gmb__Grant *grant, struct fdset *fds, struct outcome *why);

/* Notes a recall for arenas_serve(). With the lock. PROTOCOL. */
int arena_recall_take(
    struct gmb_session *session, const Gmb__ChunkRecall *recall, struct outcome *why);
