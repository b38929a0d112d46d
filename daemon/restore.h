/* Bringing pages back that their worker has pinned: chunks for them, then their bytes. */
#pragma once

#include "daemon/arena.h"

struct core_action;
struct hosting;
struct session;

/* The worker waits for these pages; numbers that make no sense are ignored. */
void restore_want(struct arena *arena, const uint32_t *pages, size_t count);
/* Asks for chunks and starts copies as far as there is room. May step the core. */
void restore_turn(struct hosting *hosting);
/* The core's answer to a fill of the broker's own: sends the chunks, or tries again later. */
void restore_answer(struct broker *broker, const struct core_action *action);
/* Withdraws the fills that were asked for by way of this client, so that it can let go of the
 * lease. Steps the core. */
void restore_withdraw(struct arena *arena, core_id client);
/* The client can't ask any more: its fills are forgotten, and asked for by way of another holder;
 * where there is none, what is wanted is forgotten, too. Asks the core nothing. */
void restore_leave(struct arena *arena, core_id client);
/* Forgets what is wanted, and the fills; asks the core nothing. */
void restore_cancel(struct arena *arena);

/* Tells the core which clients wait for pages, where that has changed. Steps it. */
void restore_waits_tell(struct broker *broker);

void restore_page_done(struct arena_chunk *chunk, uint32_t page, int error, bool damaged);
void restore_chunk_done(struct arena_chunk *chunk);
