/*
 * Block ids become numbers below `distinct`, references numbers in the order of the trace. A
 * reference is a hit while the prefix of its request is unbroken: a cached block behind a missing
 * one has to be computed again.
 *
 * All blocks of a request are touched, in order. A policy that keeps prefixes names its victims
 * when the request has ended; until then the request lives in slots beyond the cache's size, as a
 * running request holds its memory. The others make room before each block, as published. The
 * policies' time is the number of the request, and the clairvoyant's future that of the reference.
 */
#include "client/replay/prefix_cache.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct prefix_cache {
    const struct eviction_ops *ops;
    struct eviction *policy;
    uint64_t *ids;      /* the distinct ones, sorted */
    uint32_t *block_at; /* number of the block of each reference */
    uint64_t *next_use; /* of the same block after each reference */
    uint32_t *slot_of;  /* of each block; NONE where it isn't cached */
    uint32_t *block_in; /* of each slot */
    uint32_t *free;     /* free slots, a stack */
    uint32_t free_count, slots, cached;
    uint32_t blocks;     /* cached at most between requests */
    uint64_t references; /* played so far */
    struct prefix_result result;
};

static int id_compare(const void *a, const void *b)
{
    const uint64_t *left = a, *right = b;

    return (*left > *right) - (*left < *right);
}

static void prefix_cache_clear(struct prefix_cache *cache)
{
    if (cache->policy != NULL)
        cache->policy = cache->ops->free(cache->policy);
    free(cache->ids);
    free(cache->block_at);
    free(cache->next_use);
    free(cache->slot_of);
    free(cache->block_in);
    free(cache->free);
}

/* Counts the references and gives each the number of its block. */
static int blocks_number(const struct trace *trace, struct prefix_cache *cache)
{
    uint64_t count = 0, distinct = 0;

    for (size_t i = 0; i < trace->count; i++)
        count += trace->requests[i].hash_count;
    if (count == 0)
        return -ENODATA;
    cache->ids = calloc(count, sizeof(*cache->ids));
    cache->block_at = calloc(count, sizeof(*cache->block_at));
    cache->next_use = calloc(count, sizeof(*cache->next_use));
    if (cache->ids == NULL || cache->block_at == NULL || cache->next_use == NULL)
        return -ENOMEM;
    for (size_t i = 0, at = 0; i < trace->count; at += trace->requests[i++].hash_count) {
        const struct trace_request *request = &trace->requests[i];

        if (request->hash_count > 0)
            memcpy(&cache->ids[at], request->hash_ids, request->hash_count * sizeof(*cache->ids));
    }
    qsort(cache->ids, count, sizeof(*cache->ids), id_compare);
    for (uint64_t i = 0; i < count; i++) {
        if (i == 0 || cache->ids[i] != cache->ids[distinct - 1])
            cache->ids[distinct++] = cache->ids[i];
    }
    cache->result.references = count;
    cache->result.distinct = distinct;
    if (distinct > PREFIX_CACHE_BLOCKS_MAX)
        return -E2BIG;
    for (size_t i = 0, at = 0; i < trace->count; i++) {
        for (size_t j = 0; j < trace->requests[i].hash_count; j++) {
            const uint64_t *id = bsearch(&trace->requests[i].hash_ids[j], cache->ids, distinct,
                sizeof(*cache->ids), id_compare);

            cache->block_at[at++] = (uint32_t) (id - cache->ids);
        }
    }
    return 0;
}

/* From the end: when each reference's block is used again. */
static int futures_find(struct prefix_cache *cache)
{
    _cleanup_free_ uint64_t *next = calloc(cache->result.distinct, sizeof(*next));

    if (next == NULL)
        return -ENOMEM;
    for (uint64_t i = 0; i < cache->result.distinct; i++)
        next[i] = EVICTION_NEVER;
    for (uint64_t i = cache->result.references; i-- > 0;) {
        cache->next_use[i] = next[cache->block_at[i]];
        next[cache->block_at[i]] = i;
    }
    return 0;
}

/* A cache that holds every block of the trace evicts nothing, however large it is. */
static int slots_create(const struct trace *trace, uint64_t blocks, struct prefix_cache *cache)
{
    uint64_t longest = 0, slots = MIN(blocks, cache->result.distinct);

    for (size_t i = 0; i < trace->count; i++)
        longest = MAX(longest, (uint64_t) trace->requests[i].hash_count);
    cache->blocks = (uint32_t) slots;
    if (cache->ops->keeps_prefixes)
        slots += longest;
    if (slots > PREFIX_CACHE_BLOCKS_MAX)
        return -E2BIG;
    cache->slots = (uint32_t) slots;
    cache->slot_of = calloc(cache->result.distinct, sizeof(*cache->slot_of));
    cache->block_in = calloc(slots, sizeof(*cache->block_in));
    cache->free = calloc(slots, sizeof(*cache->free));
    if (cache->slot_of == NULL || cache->block_in == NULL || cache->free == NULL)
        return -ENOMEM;
    for (uint64_t i = 0; i < cache->result.distinct; i++)
        cache->slot_of[i] = EVICTION_NONE;
    while (cache->free_count < cache->slots) {
        cache->free[cache->free_count] = cache->slots - 1 - cache->free_count;
        cache->free_count++;
    }
    return cache->ops->new (cache->slots, &cache->policy);
}

static void evict_down_to(struct prefix_cache *cache, uint32_t blocks, uint64_t now)
{
    while (cache->cached > blocks) {
        uint32_t slot = cache->ops->victim(cache->policy, now);

        cache->slot_of[cache->block_in[slot]] = EVICTION_NONE;
        cache->free[cache->free_count++] = slot;
        cache->cached--;
    }
}

static void block_admit(
    struct prefix_cache *cache, struct eviction_access *access, uint32_t block, uint64_t now)
{
    uint32_t slot, before = access->parent;

    if (!cache->ops->keeps_prefixes) {
        evict_down_to(cache, cache->blocks - 1, now);
        /* In a cache smaller than the request, its own beginning may have gone. */
        if (before != EVICTION_NONE && cache->slot_of[cache->block_in[before]] != before)
            access->parent = EVICTION_NONE;
    }
    slot = cache->free[--cache->free_count];
    cache->slot_of[block] = slot;
    cache->block_in[slot] = block;
    cache->cached++;
    cache->ops->admit(cache->policy, slot, access, now);
}

static void request_play(
    struct prefix_cache *cache, const struct trace_request *request, uint64_t now)
{
    const uint32_t *blocks = &cache->block_at[cache->references];
    bool unbroken = true;
    uint32_t parent = EVICTION_NONE;

    for (size_t i = 0; i < request->hash_count; i++) {
        struct eviction_access access = {
            .key = request->hash_ids[i],
            .parent = parent,
            .prefix_pages = (uint32_t) request->hash_count,
            .next_use = cache->next_use[cache->references++],
        };

        if (cache->slot_of[blocks[i]] != EVICTION_NONE) {
            cache->result.hits += unbroken;
            cache->ops->touch(cache->policy, cache->slot_of[blocks[i]], &access, now);
        } else {
            unbroken = false;
            block_admit(cache, &access, blocks[i], now);
        }
        parent = cache->slot_of[blocks[i]];
    }
    for (size_t i = 0; cache->ops->finish && i < request->hash_count; i++) {
        if (cache->slot_of[blocks[i]] != EVICTION_NONE)
            cache->ops->finish(cache->policy, cache->slot_of[blocks[i]],
                (uint32_t) MIN(request->generated_tokens, (uint64_t) UINT32_MAX), now);
    }
    evict_down_to(cache, cache->blocks, now);
}

int prefix_cache_play(const struct trace *trace, const struct eviction_ops *ops, uint64_t blocks,
    struct prefix_result *ret)
{
    _cleanup_(prefix_cache_clear) struct prefix_cache cache = {.ops = ops};
    int r;

    r = blocks_number(trace, &cache);
    if (r == 0)
        r = futures_find(&cache);
    if (r == 0)
        r = slots_create(trace, blocks, &cache);
    if (r < 0)
        return r;
    for (size_t i = 0; i < trace->count; i++)
        request_play(&cache, &trace->requests[i], i);
    *ret = cache.result;
    return 0;
}

double prefix_hit_ratio(const struct prefix_result *result)
{
    return result->references == 0 ? 0 : (double) result->hits / (double) result->references;
}
