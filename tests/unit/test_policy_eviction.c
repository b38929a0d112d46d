/*
 * The published policies take victims in the order of their papers; ours keeps whole prefixes and
 * learns which classes of pages come back. Orders are worked out by hand.
 */
#include "policies/eviction.h"

#include "policies/key_table.h"
#include "tests/unit/unit.h"

#include <stdio.h>

struct script {
    const struct eviction_ops *ops;
    struct eviction *policy;
    uint64_t now;
};

static struct script script_new(const char *name, uint32_t slots)
{
    struct script script = {.ops = eviction_find(name)};

    ck_assert_ptr_nonnull(script.ops);
    ck_assert_int_eq(script.ops->new (slots, &script.policy), 0);
    return script;
}

/* Keys are letters; slot n holds the n-th letter that the test names. */
static void admit(struct script *script, uint32_t slot, char key, uint32_t parent)
{
    struct eviction_access access = {
        .key = (uint64_t) key, .parent = parent, .prefix_pages = 1, .next_use = EVICTION_NEVER};

    script->ops->admit(script->policy, slot, &access, script->now++);
}

static void touch(struct script *script, uint32_t slot, char key)
{
    struct eviction_access access = {.key = (uint64_t) key,
        .parent = EVICTION_NONE,
        .prefix_pages = 1,
        .next_use = EVICTION_NEVER};

    script->ops->touch(script->policy, slot, &access, script->now++);
}

static uint32_t victim(struct script *script)
{
    return script->ops->victim(script->policy, script->now);
}

START_TEST(every_policy_is_found_by_its_name_and_no_other)
{
    ck_assert_ptr_eq(eviction_find("lru"), &eviction_lru);
    ck_assert_ptr_eq(eviction_find("sieve"), &eviction_sieve);
    ck_assert_ptr_eq(eviction_find("s3fifo"), &eviction_s3fifo);
    ck_assert_ptr_eq(eviction_find("gittins"), &eviction_gittins);
    ck_assert_ptr_eq(eviction_find("belady"), &eviction_belady);
    ck_assert_ptr_eq(eviction_find("default"), &eviction_gittins);
    ck_assert_ptr_null(eviction_find("LRU"));
    ck_assert_ptr_null(eviction_find(""));
    ck_assert_ptr_null(eviction_at(5));
}
END_TEST

START_TEST(an_empty_cache_has_no_victim)
{
    const struct eviction_ops *ops;

    for (unsigned i = 0; (ops = eviction_at(i)) != NULL; i++) {
        struct script script = script_new(ops->name, 4);

        ck_assert_uint_eq(victim(&script), EVICTION_NONE);
        admit(&script, 2, 'a', EVICTION_NONE);
        ck_assert_uint_eq(victim(&script), 2);
        ck_assert_uint_eq(victim(&script), EVICTION_NONE);
        ops->free(script.policy);
        ck_assert_ptr_null(ops->free(NULL));
    }
}
END_TEST

START_TEST(lru_takes_the_page_used_longest_ago)
{
    struct script script = script_new("lru", 3);

    admit(&script, 0, 'a', EVICTION_NONE);
    admit(&script, 1, 'b', EVICTION_NONE);
    admit(&script, 2, 'c', EVICTION_NONE);
    touch(&script, 0, 'a');
    ck_assert_uint_eq(victim(&script), 1);
    ck_assert_uint_eq(victim(&script), 2);
    ck_assert_uint_eq(victim(&script), 0);
    script.ops->free(script.policy);
}
END_TEST

/* a b c d, with a and c used: the hand spares a (and forgets its use), takes b, spares c, takes d,
 * and comes round to a. */
START_TEST(sieve_spares_a_used_page_once_and_keeps_its_hand)
{
    struct script script = script_new("sieve", 4);

    for (uint32_t i = 0; i < 4; i++)
        admit(&script, i, (char) ('a' + (int) i), EVICTION_NONE);
    touch(&script, 0, 'a');
    touch(&script, 2, 'c');
    ck_assert_uint_eq(victim(&script), 1);
    ck_assert_uint_eq(victim(&script), 3);
    ck_assert_uint_eq(victim(&script), 0);
    ck_assert_uint_eq(victim(&script), 2);
    script.ops->free(script.policy);
}
END_TEST

/* Ten slots: the small queue's share is one. A page used once while small goes on to the main
 * queue; one that was not falls out, is remembered, and comes back into the main queue at once. */
START_TEST(s3fifo_filters_pages_used_once_and_remembers_them)
{
    struct script script = script_new("s3fifo", 10);

    admit(&script, 0, 'a', EVICTION_NONE);
    admit(&script, 1, 'b', EVICTION_NONE);
    touch(&script, 0, 'a');
    ck_assert_uint_eq(victim(&script), 1); /* a moved on, b fell out */
    admit(&script, 1, 'b', EVICTION_NONE); /* a ghost: to the main queue, behind a */
    admit(&script, 2, 'c', EVICTION_NONE);
    ck_assert_uint_eq(victim(&script), 2);
    ck_assert_uint_eq(victim(&script), 0);
    ck_assert_uint_eq(victim(&script), 1);
    script.ops->free(script.policy);
}
END_TEST

START_TEST(the_clairvoyant_takes_the_page_used_again_last)
{
    struct script script = script_new("belady", 3);
    const uint64_t next[] = {7, 5, EVICTION_NEVER};

    for (uint32_t slot = 0; slot < 3; slot++) {
        struct eviction_access access = {.key = slot, .next_use = next[slot]};

        script.ops->admit(script.policy, slot, &access, slot);
    }
    ck_assert_uint_eq(victim(&script), 2);
    ck_assert_uint_eq(victim(&script), 0);
    ck_assert_uint_eq(victim(&script), 1);
    script.ops->free(script.policy);
}
END_TEST

START_TEST(ours_never_takes_a_page_that_a_cached_page_continues)
{
    enum { SLOTS = 64 };
    struct script script = script_new("gittins", SLOTS);
    uint32_t parent[SLOTS], children[SLOTS] = {0};
    uint32_t random = 12345;

    for (uint32_t slot = 0; slot < SLOTS;
         slot++) { /* a forest: each continues an earlier one or none */
        random = random * 1103515245u + 12345u;
        parent[slot] = slot == 0 || random % 5 == 0 ? EVICTION_NONE : (random >> 8) % slot;
        admit(&script, slot, (char) slot, parent[slot]);
        if (parent[slot] != EVICTION_NONE)
            children[parent[slot]]++;
    }
    for (unsigned i = 0; i < SLOTS; i++) {
        uint32_t slot = victim(&script);

        ck_assert_uint_lt(slot, SLOTS);
        ck_assert_uint_eq(children[slot], 0);
        if (parent[slot] != EVICTION_NONE)
            children[parent[slot]]--;
        script.now += 3;
    }
    ck_assert_uint_eq(victim(&script), EVICTION_NONE);
    script.ops->free(script.policy);
}
END_TEST

/*
 * Two kinds of pages at equal rates: after a short answer a page is used again ten steps later,
 * after a long one never. Once that is learnt, the place goes to the short ones although all are
 * equally young.
 */
START_TEST(ours_learns_which_pages_come_back)
{
    enum { ROUNDS = 6000, SLOTS = 256 };
    struct script script = script_new("gittins", SLOTS);
    unsigned kept = 0, lost = 0;

    for (uint64_t round = 0; round < ROUNDS; round++) {
        uint32_t slot = (uint32_t) (round % 2);
        struct eviction_access access = {.key = slot == 0 ? round % 20 : 1000 + round,
            .parent = EVICTION_NONE,
            .prefix_pages = 4};

        script.ops->admit(script.policy, slot, &access, round);
        script.ops->finish(script.policy, slot, slot == 0 ? 4 : 400, round);
        if (slot == 0)
            continue;
        slot = script.ops->victim(script.policy, round + 1);
        if (round > ROUNDS / 2)
            *(slot == 1 ? &kept : &lost) += 1;
        ck_assert_uint_ne(script.ops->victim(script.policy, round + 1), EVICTION_NONE);
    }
    ck_assert_msg(
        kept > 9 * lost, "%u times the page that comes back stayed, %u times it went", kept, lost);
    script.ops->free(script.policy);
}
END_TEST

START_TEST(a_full_key_table_forgets_the_oldest)
{
    struct key_table table;
    bool replaced;
    uint32_t a, b, c;

    ck_assert_int_eq(key_table_init(&table, 2), 0);
    a = key_table_add(&table, 'a', &replaced);
    ck_assert(!replaced);
    b = key_table_add(&table, 'b', &replaced);
    ck_assert(!replaced);
    key_table_refresh(&table, a);
    c = key_table_add(&table, 'c', &replaced);
    ck_assert(replaced);
    ck_assert_uint_eq(c, b);
    ck_assert_uint_eq(key_table_find(&table, 'b'), EVICTION_NONE);
    ck_assert_uint_eq(key_table_find(&table, 'a'), a);
    key_table_remove(&table, a);
    ck_assert_uint_eq(key_table_find(&table, 'a'), EVICTION_NONE);
    ck_assert_uint_eq(key_table_add(&table, 'd', &replaced), a);
    ck_assert(!replaced);
    ck_assert_uint_eq(key_table_find(&table, 'c'), c);
    key_table_clear(&table);
}
END_TEST

UNIT_MAIN("policy_eviction", every_policy_is_found_by_its_name_and_no_other,
    an_empty_cache_has_no_victim, lru_takes_the_page_used_longest_ago,
    sieve_spares_a_used_page_once_and_keeps_its_hand,
    s3fifo_filters_pages_used_once_and_remembers_them,
    the_clairvoyant_takes_the_page_used_again_last,
    ours_never_takes_a_page_that_a_cached_page_continues, ours_learns_which_pages_come_back,
    a_full_key_table_forgets_the_oldest)
