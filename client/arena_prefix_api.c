/* The prefix functions: the operations of arena_prefix.h, with codes and texts of the public
 * interface. */
#include "client/arena.h"
#include "client/arena_prefix.h"
#include "client/fork.h"

static int enter(const gmb_arena *arena, struct outcome *outcome)
{
    int r = fork_guard_check(arena->lease.session, outcome);

    if (r == 0 && !arena_table_shared(&arena->pool.table))
        r = outcome_set(outcome, GMB_E_UNSUPPORTED, "the arena isn't shared and has no index");
    return r;
}

static struct arena_prefix_key key_of(const struct gmb_prefix_key *key)
{
    return (struct arena_prefix_key){.low = key->low, .high = key->high};
}

/* GMB_PREFIX_*, or an error in `outcome`. */
static int result(enum arena_prefix op, struct outcome *outcome)
{
    switch (op) {
    case ARENA_PREFIX_OK:
        return GMB_PREFIX_NEW;
    case ARENA_PREFIX_THERE:
        return GMB_PREFIX_THERE;
    case ARENA_PREFIX_NO_PARENT:
        return outcome_set(outcome, GMB_E_NOT_FOUND, "no page is published under the parent's key");
    case ARENA_PREFIX_FULL:
        return outcome_set(outcome, GMB_E_EXHAUSTED, "the index has no room for the key");
    case ARENA_PREFIX_MISUSE:
        break;
    }
    return outcome_set(outcome, GMB_E_INVALID,
        "a page isn't referenced by this process, or is published already, or isn't");
}

_public_ int gmb_arena_prefix_publish(gmb_arena *arena, uint32_t page,
    const struct gmb_prefix_key *key, const struct gmb_prefix_key *parent)
{
    struct outcome outcome = OUTCOME_OK;
    struct arena_prefix_key keys[2] = {{0}};
    uint32_t ignored;
    int r = enter(arena, &outcome);

    if (r < 0)
        return outcome_publish(&outcome);
    keys[0] = key_of(key);
    if (parent != NULL)
        keys[1] = key_of(parent);
    r = result(arena_prefix_publish(
                   &arena->pool.table, page, &keys[0], parent != NULL ? &keys[1] : NULL, &ignored),
        &outcome);
    return r < 0 ? outcome_publish(&outcome) : r;
}

/* Keys are looked up by so many at once, as the inside knows them. */
#define BATCH 64u

_public_ int gmb_arena_prefix_lookup(
    gmb_arena *arena, size_t n, const struct gmb_prefix_key *keys, uint32_t *ret_pages)
{
    struct outcome outcome = OUTCOME_OK;
    size_t most = MIN(n, (size_t) INT32_MAX), found = 0, wanted, got;

    if (enter(arena, &outcome) < 0)
        return outcome_publish(&outcome);
    do {
        struct arena_prefix_key batch[BATCH];

        wanted = MIN(most - found, (size_t) BATCH);
        for (size_t i = 0; i < wanted; i++)
            batch[i] = key_of(&keys[found + i]);
        got = arena_prefix_lookup(
            &arena->pool.table, wanted, batch, ret_pages + found, arena_clock());
        found += got;
    } while (got == BATCH);
    return (int) found;
}

_public_ int gmb_arena_prefix_unpublish(gmb_arena *arena, size_t n, const uint32_t *pages)
{
    struct outcome outcome = OUTCOME_OK;

    if (enter(arena, &outcome) == 0)
        (void) result(arena_prefix_unpublish(&arena->pool.table, n, pages), &outcome);
    return outcome_publish(&outcome);
}

_public_ int gmb_arena_prefix_trim(gmb_arena *arena, size_t n)
{
    struct outcome outcome = OUTCOME_OK;
    int r = enter(arena, &outcome);

    if (r == 0) {
        r = arena_prefix_trim(&arena->pool.table, n);
        if (r < 0)
            (void) outcome_set(&outcome, GMB_E_INTERNAL, "no host memory to look for pages");
    }
    return outcome.code != 0 ? outcome_publish(&outcome) : r;
}
