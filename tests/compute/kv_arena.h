/* KV in pages of an arena, in the broker's memory. Not thread-safe. */
#pragma once

#include "tests/compute/kv.h"

struct kv_space_params {
    const char *socket;   /* NULL: where libgmb looks */
    uint32_t page_tokens; /* > 0 */
    uint32_t chunk_pages; /* 0: the library chooses */
    uint64_t max_tokens;  /* of all sequences together */
    bool recomputable;    /* pages may be dropped: their tokens are computed again */
};

struct kv_space_stats {
    uint64_t evictions, restores, waits; /* as libgmb counts them */
    uint64_t evicted_pages, used_pages;  /* now */
    uint64_t lost;                       /* sequences whose pages were dropped */
    uint64_t full;                       /* times that memory didn't come in time */
};

struct kv_space;

/* Connects and makes the arena. 0 or -EIO, said on stderr. */
int kv_space_new(const struct kv_space_params *params, struct kv_space **ret) _must_check_;
/* After its sequences' KV. Accepts NULL; returns NULL. */
struct kv_space *kv_space_free(struct kv_space *space);
struct kv_space_stats kv_space_stats(const struct kv_space *space);
const char *kv_space_tenant(const struct kv_space *space);

/* For a sequence of up to `tokens`. NULL: no memory. */
struct kv *kv_arena_new(struct kv_space *space, uint32_t tokens);
