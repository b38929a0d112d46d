/*
 * Copies of pages on their way to the mover and back: one job of one arena at a time is gathered,
 * submitted, and taken apart again when it is done.
 */
#pragma once

#include "daemon/arena.h"
#include "daemon/mover_control.h"

struct hosting;

/* First in whatever owns a job: who hears of its end. */
struct job_owner {
    void (*done)(struct hosting *hosting, const struct mover_result *result);
};

struct move {
    struct arena *arena; /* NULL: nothing is gathered */
    enum mover_kind kind;
    size_t chunk_count, copy_count;
    struct mover_chunk chunks[MOVER_JOB_CHUNKS];
    uint32_t indices[MOVER_JOB_CHUNKS];
    struct mover_copy copies[MOVER_JOB_COPIES];
};

/* Whether the mover would take another job. */
bool move_room(const struct hosting *hosting);

/*
 * Puts a page whose word was just set to EVICTING or RESTORING, and whose record says what it is,
 * into the job at hand, which is submitted before if the page doesn't fit. False when the page
 * can't be moved: its chunk is gone.
 */
bool move_add(
    struct hosting *hosting, enum mover_kind kind, struct arena_chunk *chunk, uint32_t page);
/* Submits what is gathered. Pages that can't be moved become what they were. */
void move_flush(struct hosting *hosting);
