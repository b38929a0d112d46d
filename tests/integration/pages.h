/*
 * A worker with one arena through libgmb, in the test's own process: pages with bytes that say
 * which page they are. Whatever doesn't come as expected ends the test.
 */
#pragma once

#include "client/gmb.h"
#include "tests/integration/harness.h"

#define PAGES_MAX 8192

struct pages {
    gmb_session *session;
    gmb_arena *arena;
    uint64_t page_bytes;
    uint64_t mark;    /* 0, or what makes its bytes others than those of another worker's */
    uint64_t wait_ns; /* for memory and pages; it may be made longer */
    uint32_t count;   /* allocated */
    uint32_t pages[PAGES_MAX];
    int (*set_current)(void *context);
    int (*to_device)(uint64_t to, const void *from, size_t bytes);
    int (*to_host)(void *to, uint64_t from, size_t bytes);
};

void pages_open(struct pages *pages, const struct harness *harness, uint64_t page_bytes,
    uint64_t chunk_bytes, uint64_t max_bytes);
/* The same with what else `params` says; its sizes are the arguments of pages_open(). */
void pages_open_with(
    struct pages *pages, const struct harness *harness, const struct gmb_arena_params *params);
/* An arena that others may attach to by `name`; and such an arena of another worker's. */
void pages_share(struct pages *pages, const struct harness *harness, uint64_t page_bytes,
    uint64_t chunk_bytes, uint64_t max_bytes, const char *name);
void pages_attach(struct pages *pages, const struct harness *harness, const char *name);
/* An arena of the caller's, who dispatches and closes. */
void pages_adopt(struct pages *pages, gmb_session *session, gmb_arena *arena);
void pages_close(struct pages *pages);
/* Makes this worker's device the calling thread's: for tests with more than one of them. */
void pages_use(struct pages *pages);

/* Allocates `count` more pages and writes each. */
void pages_fill(struct pages *pages, uint32_t count);
/* Pins, waits, compares and unpins pages [first, first + count), by `step` at once. */
void pages_check(struct pages *pages, uint32_t first, uint32_t count, uint32_t step);
/* Pins all pages, waits until they are resident, and unpins them. */
void pages_restore(struct pages *pages);

/* Every page has its bytes, or is lost; how many are. */
uint32_t pages_check_or_lost(struct pages *pages);
/* Until the session is there again, of a broker that went away. */
void pages_wait_connected(const struct pages *pages);
/* Has as much as can be taken from the tenant `test` until so many pages lie in the host tier. */
void pages_evict(struct pages *pages, const struct harness *harness, uint64_t count);

struct gmb_arena_stats pages_stats(const struct pages *pages);
/* Until so many pages lie in the host tier. */
void pages_wait_evicted(const struct pages *pages, uint64_t count);
/* Until the arena has at most so many bytes mapped. */
void pages_wait_mapped(const struct pages *pages, uint64_t bytes);
