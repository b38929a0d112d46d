/*
 * What could be emptied on a device: one row for each chunk of an arena, read from the arenas'
 * tables, a bounded number of pages at a time, and one for each idle segment. Each arena is gone
 * through twice: which pages continue which (drop.h), then what each chunk has, of which that
 * decides what may be dropped.
 */
#pragma once

#include "policies/reclaim.h"

#include "daemon/core/core.h"

struct arena;
struct hosting;

/* Rows of one survey: 128 GiB in the smallest chunks. Each begins with the first arena: of a device
 * with more chunks those beyond are not seen as long as the ones before them stay. */
#define SURVEY_ROWS 65536

struct survey_row {
    core_id lease;
    uint32_t index; /* of a chunk */
};

struct survey {
    struct arena *at;        /* where it goes on; NULL: at the first arena */
    uint32_t index;          /* … and at which chunk */
    bool counted;            /* of its pages is known which continue which: rows are made */
    struct drop_page *order; /* … else as far as they have been counted */
    bool running;
    size_t count, room;
    struct reclaim_chunk *chunks;
    struct survey_row *rows; /* beside them */
    /* Bytes in the tier that may be dropped, by the core's index: alone, and with pages that are on
     * the device. */
    uint64_t spare[LIMIT_TENANTS], carrying[LIMIT_TENANTS];
};

void survey_begin(struct survey *survey);
/* Goes on; true when it is complete. Without memory it is complete with what it has. */
bool survey_turn(struct survey *survey, struct hosting *hosting);
/* The arena is about to go. */
void survey_forget(struct survey *survey, struct hosting *hosting, const struct arena *arena);
void survey_done(struct survey *survey);
