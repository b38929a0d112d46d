/* The part of the protocol that is about arenas, by hand: see raw.h. */
#pragma once

#include "proto/arena_table.h"
#include "tests/integration/raw.h"

struct raw_arena {
    uint64_t lease;
    struct arena_table table;
    void *memory;
    size_t bytes;
    int event_fd;
};

uint64_t raw_arena_request(
    struct raw *raw, uint64_t page_bytes, uint64_t chunk_bytes, uint64_t max_bytes);
/* One that others may attach to, in chunks of HARNESS_CHUNK. */
uint64_t raw_share(struct raw *raw, const char *name, uint64_t page_bytes, uint64_t max_bytes);
uint64_t raw_attach(struct raw *raw, const char *name);
void raw_ready(struct raw *raw, uint64_t lease);
/* Expects ArenaCreated and maps the table. */
void raw_expect_arena(struct raw *raw, uint64_t id, struct raw_arena *ret);
/* Unmaps and closes what is in this process. */
void raw_arena_close(struct raw_arena *arena);

uint64_t raw_fill(
    struct raw *raw, uint64_t lease, uint32_t first, uint32_t count, uint64_t wait_ns);
uint64_t raw_return(struct raw *raw, uint64_t lease, uint32_t first, uint32_t count);
void raw_mapped(struct raw *raw, uint64_t lease, uint32_t first, uint32_t count);
void raw_want(struct raw *raw, uint64_t lease, uint32_t *pages, size_t count);
/* Expects the grants of a fill of [first, first + count); closes their fds. */
void raw_expect_fill(struct raw *raw, uint64_t id, uint32_t first, uint32_t count);
/* Reads on until the last answer to request `id`, whichever it is, and drops events on the way. */
void raw_expect_end_of(struct raw *raw, uint64_t id);
