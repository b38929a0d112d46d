/*
 * Eviction policies: which cached page goes next.
 *
 * Pure: a policy is told of every access and asked for victims; it owns no page, reads no clock and
 * allocates at creation alone. Pages stand in slots 0 … slots−1, numbered by the caller. `now` is
 * the caller's logical time in any unit that grows with use (requests, accesses, milliseconds); it
 * never goes back.
 *
 * A policy that respects prefixes never names a page while one that continues it is cached: such a
 * page alone is worth nothing. The published ones (lru, sieve, s3fifo) do as published.
 *
 * Not thread-safe: one object, one thread. No call blocks; each takes amortised constant time, or
 * logarithmic where a policy says so.
 */
#pragma once

#include "base/macro.h"

#define EVICTION_NONE UINT32_MAX /* no slot */
#define EVICTION_NEVER UINT64_MAX

struct eviction_access {
    uint64_t key;          /* content of the page: remembered after it is gone */
    uint32_t parent;       /* slot of the page it continues; NONE for the first of a prefix */
    uint32_t prefix_pages; /* length of the prefix that the access is part of */
    uint64_t next_use;     /* when it is used again, for the clairvoyant alone; NEVER if unknown */
};

struct eviction;

struct eviction_ops {
    const char *name;
    /* Whole prefixes alone are cached, so victims are asked for when a request's pages have all
     * been admitted, in slots beyond the cache's size, and finished; the others are asked before
     * each page. */
    bool keeps_prefixes;
    /* Room for `slots` pages (1 … 2^31). -ENOMEM. */
    int (*new)(uint32_t slots, struct eviction **ret);
    /* Accepts NULL; returns NULL. */
    struct eviction *(*free)(struct eviction *policy);
    /* The page is cached from now on, in a slot that was free. */
    void (*admit)(
        struct eviction *policy, uint32_t slot, const struct eviction_access *access, uint64_t now);
    /* A cached page was used again. */
    void (*touch)(
        struct eviction *policy, uint32_t slot, const struct eviction_access *access, uint64_t now);
    /* The request that last used the cached page ended after `output_tokens`. May be NULL. */
    void (*finish)(struct eviction *policy, uint32_t slot, uint32_t output_tokens, uint64_t now);
    /* Names a cached page, which is free from then on; NONE when nothing is cached. The page that
     * was admitted last may be named: it is not worth its place. */
    uint32_t (*victim)(struct eviction *policy, uint64_t now);
};

extern const struct eviction_ops eviction_lru;
extern const struct eviction_ops eviction_sieve;
extern const struct eviction_ops eviction_s3fifo;
extern const struct eviction_ops eviction_gittins;
extern const struct eviction_ops eviction_belady;

/* By name, `default` included; NULL for an unknown one. */
const struct eviction_ops *eviction_find(const char *name);
/* The index-th policy, NULL past the last. */
const struct eviction_ops *eviction_at(unsigned index);
