/*
 * Pins and references of one process in an arena that several hold.
 *
 * The word of a page says which holders have pinned and referenced it, a bit each; how often, each
 * holder counts in memory of its own, which nobody else sees. A bit is set before the first count
 * and cleared after the last, each by one compare-and-swap: so that whenever a process dies, what
 * it had are its bits and nothing else, and no other holder's can go with them. One who counts more
 * than one touches its own counts alone.
 *
 * A thread that takes a count from none or to none marks it BUSY meanwhile; others of the same
 * process wait for that page alone, a few instructions long. No other process waits.
 *
 * Pins need a reference of the same process. What another process holds can't be freed here.
 */
#pragma once

#include "client/arena_ops.h"

struct arena_own {
    uint32_t number;  /* this holder's: its bit in pins and references */
    uint8_t *mapped;  /* by chunk: not 0 while this process has it mapped */
    uint64_t *counts; /* by page */
};

/* `table` becomes this process's, as holder `number`. -ENOMEM. */
int arena_own_new(struct arena_table *table, uint32_t number) _must_check_;
/* Accepts a table that is nobody's. */
void arena_own_free(struct arena_table *table);

static inline bool arena_own_mapped(const struct arena_table *table, uint32_t chunk)
{
    return __atomic_load_n(&table->own->mapped[chunk], __ATOMIC_ACQUIRE) != 0;
}
void arena_own_set_mapped(const struct arena_table *table, uint32_t chunk, bool mapped);

/* `page` is below page_count in all of these. */
bool arena_own_ref(const struct arena_table *table, uint32_t page);
/* The steps of a batch: a reference less, of `*ret_left` left here; what undoes it, while nothing
 * was swept; and what makes the last one's loss known. */
bool arena_own_drop(const struct arena_table *table, uint32_t page, uint32_t *ret_left);
void arena_own_drop_undo(const struct arena_table *table, uint32_t page);
void arena_own_sweep(const struct arena_table *table, uint32_t page);
/* WAITING also while the page's chunk isn't mapped here yet. */
enum arena_op arena_own_pin(const struct arena_table *table, uint32_t page);
bool arena_own_unpin(const struct arena_table *table, uint32_t page);
/* A pin that was just dropped comes back, whatever the page is by now. */
void arena_own_repin(const struct arena_table *table, uint32_t page);
/* Whether this process has a reference, or a pin. */
bool arena_own_referenced(const struct arena_table *table, uint32_t page);
bool arena_own_pinned(const struct arena_table *table, uint32_t page);
/* Whether this process has the only reference, once. */
bool arena_own_sole(const struct arena_table *table, uint32_t page);

/* Allocates a page whose token was taken; false when the token was wrong. */
bool arena_own_begin(const struct arena_table *table, uint32_t page, uint32_t now);
