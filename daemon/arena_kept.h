/*
 * What of an arena outlives the broker, besides its lease (docs/restart.md): the page table, the
 * fds that its holders wait at, and a memfd of the broker's own with what the table can't be
 * believed: the arena's shape, who has which number, and the record of each page in the tier.
 *
 * That memfd is mapped, and every arena has one; where there is a store its fds are put there. A
 * process that dies leaves what it has written in the order in which it wrote it.
 */
#pragma once

#include <assert.h>

#include "daemon/arena.h"

struct arena_holder;
struct executor_done;
struct session;

#define ARENA_KEPT_MAGIC UINT64_C(0x3150454b424d47) /* "GMBKEP1" */
#define ARENA_KEPT_HEAD 4096

struct arena_kept {
    uint64_t magic; /* once the rest is there */
    core_id lease;
    uint64_t page_bytes, chunk_bytes;
    uint32_t max_chunks, flags, element, format;
    uint32_t top;                       /* as the arena's */
    core_id holders[ARENA_HOLDERS_MAX]; /* by number: whose bits stand in pages' words; 0: none */
    char name[LIMIT_NAME_BYTES + 1];
    uint64_t memory_bytes; /* of the tier: slots behind them are the disk's; 0: none, or unknown */
};
static_assert(sizeof(struct arena_kept) <= ARENA_KEPT_HEAD, "records begin behind it");

/*
 * The number in the names of the lease's fds: of its slot and its device. A slot is used again at
 * once, and each device has a thread of its own that puts names into the store and takes them back.
 * False when there is none left, and it isn't kept.
 */
bool arena_kept_name(const struct broker *broker, core_id lease, uint32_t device, uint32_t *ret);
/* Of a holder's fd, by that and the holder's number. */
static inline uint32_t arena_kept_name_of(uint32_t arena, uint32_t holder)
{
    return arena * ARENA_HOLDERS_MAX + holder;
}

/* Makes the memfd for an arena whose table is there. -errno. */
int arena_kept_new(struct arena *arena) _must_check_;
/* Maps one that is there, for an arena of this layout. -EINVAL when it is too short, -errno. */
int arena_kept_map(struct arena *arena, int fd) _must_check_;
/* The arena is bound: what it is is written down. */
void arena_kept_write(struct arena *arena);
/* Record of the first page of a chunk. */
struct arena_page *arena_kept_pages(const struct arena *arena, uint32_t index);
/* They are needed no more: all zero, and as far as they fill memory pages without any. */
void arena_kept_clear(const struct arena *arena, uint32_t index);
/* Who has the number: 0 for nobody. */
void arena_kept_number(struct arena *arena, uint32_t number, core_id client);

/*
 * Answers with ArenaCreated once all is stored that a successor needs to go on with the holder, or
 * known that it can't be. `first`: the arena is new, too. -errno as arena_created_send().
 */
int arena_kept_answer(struct session *session, uint64_t request, struct arena_holder *holder,
    bool first) _must_check_;
/* EXECUTOR_JOB_KEEP is done. */
void arena_kept_done(struct broker *broker, const struct executor_done *done);
/* The holder, or the arena, goes: a successor finds nothing of it. */
void arena_kept_forget_holder(const struct arena_holder *holder);
void arena_kept_forget(const struct arena *arena);
/* Nothing is taken from the store any more: the broker ends. Frees what waits. */
void arena_kept_close(struct broker *broker);
