/*
 * The index of prefixes in a shared arena's table: which page holds what, by the hash of the
 * sequence up to its end. Pure functions of shared memory, as in arena_ops.h; no lock, so that a
 * process that dies in one of them holds up nobody.
 *
 * The index holds a reference of its own to each page that is published: a bit beside those of the
 * holders. A slot says where to look, the page's word and key say what is there, so that a slot
 * that is stale costs a look and nothing else.
 *
 * Order of writes. Publish: key, slot, the index's bit. Unpublish: the bit, slot. Whoever dies
 * between two of them leaves a slot whose page isn't published: no page is kept by that, and the
 * slot is anybody's once the page is free.
 */
#pragma once

#include "client/arena_ops.h"

struct arena_prefix_key {
    uint64_t low, high;
};

enum arena_prefix {
    ARENA_PREFIX_OK = 0,
    ARENA_PREFIX_THERE = 1,     /* another page is published under the key */
    ARENA_PREFIX_NO_PARENT = 2, /* no page is published under the parent's key */
    ARENA_PREFIX_FULL = 3,      /* both places where its slot could stand are taken */
    ARENA_PREFIX_MISUSE = 4,    /* a page that isn't referenced here, or is published, or isn't */
};

/* The caller references the page, and nobody else publishes it meanwhile. `parent` may be NULL.
 * `ret_page` is written with THERE; that page is not referenced by it. */
enum arena_prefix arena_prefix_publish(const struct arena_table *table, uint32_t page,
    const struct arena_prefix_key *key, const struct arena_prefix_key *parent, uint32_t *ret_page);
/* The caller references all n pages: they stay its own. All or nothing. */
enum arena_prefix arena_prefix_unpublish(
    const struct arena_table *table, size_t n, const uint32_t *pages);
/* References the pages of keys[0], keys[1], … up to the first that isn't published; how many. */
size_t arena_prefix_lookup(const struct arena_table *table, size_t n,
    const struct arena_prefix_key *keys, uint32_t *ret_pages, uint32_t now);
/*
 * Unpublishes and frees up to n pages that nobody but the index references: what was used last
 * longest ago first, none before those that continue it. The number, or -ENOMEM. Looks at every
 * page.
 */
int arena_prefix_trim(const struct arena_table *table, size_t n);
