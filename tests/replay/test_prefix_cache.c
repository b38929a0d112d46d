/* The prefix cache, on traces small enough to be played by hand. */
#include "client/replay/prefix_cache.h"

#include <errno.h>

#include "tests/unit/unit.h"

#define REQUESTS_MAX 8

/* A trace of requests, each written as its blocks: "abc" has blocks a, b, c. */
struct words {
    struct trace_request requests[REQUESTS_MAX];
    uint64_t ids[128];
    struct trace trace;
};

static const struct trace *words_trace(
    struct words *words, const char *const requests[], size_t count)
{
    size_t used = 0;

    *words = (struct words){.trace = {.count = count, .requests = words->requests}};
    for (size_t i = 0; i < count; i++) {
        words->requests[i].hash_ids = &words->ids[used];
        words->requests[i].generated_tokens = 10;
        for (const char *block = requests[i]; *block != '\0'; block++) {
            words->ids[used++] = UINT64_MAX - (uint64_t) *block; /* ids may be any number */
            words->requests[i].hash_count++;
        }
    }
    return &words->trace;
}

static struct prefix_result play(
    const char *policy, uint64_t blocks, const char *const requests[], size_t count)
{
    struct prefix_result result;
    struct words words;

    ck_assert_int_eq(prefix_cache_play(words_trace(&words, requests, count), eviction_find(policy),
                         blocks, &result),
        0);
    return result;
}

START_TEST(test_a_block_behind_a_missing_one_is_no_hit)
{
    /* Of 3, d takes a's place, so that b and c, though cached, hit nothing. Of 4, all stay. */
    static const char *const requests[] = {"abc", "d", "abc"};
    /* b is cached behind an x that is not. */
    static const char *const broken[] = {"ab", "xb"};

    ck_assert_uint_eq(play("lru", 3, requests, 3).hits, 0);
    ck_assert_uint_eq(play("lru", 4, requests, 3).hits, 3);
    ck_assert_uint_eq(play("lru", 4, requests, 3).references, 7);
    ck_assert_uint_eq(play("lru", 4, requests, 3).distinct, 4);
    ck_assert_uint_eq(play("lru", 8, broken, 2).hits, 0);
}
END_TEST

START_TEST(test_all_blocks_of_a_request_are_touched)
{
    /* Of 3: ab, c; ab touches both, so that d costs c; then ab hits, c doesn't. */
    static const char *const requests[] = {"ab", "c", "ab", "d", "ab", "c"};

    ck_assert_uint_eq(play("lru", 3, requests, 6).hits, 4);
}
END_TEST

START_TEST(test_the_clairvoyant_keeps_what_comes_back)
{
    /* 1 block, a b a b a: recency never hits; who knows the future keeps a and hits twice. Of 2,
     * all but the first two references hit. */
    static const char *const requests[] = {"a", "b", "a", "b", "a"};
    struct prefix_result result;

    ck_assert_uint_eq(play("lru", 1, requests, 5).hits, 0);
    ck_assert_uint_eq(play("belady", 1, requests, 5).hits, 2);
    ck_assert_uint_eq(play("belady", 2, requests, 5).hits, 3);
    result = play("belady", 1, requests, 5);
    ck_assert_double_eq_tol(prefix_hit_ratio(&result), 0.4, 1e-12);
}
END_TEST

START_TEST(test_a_policy_of_prefixes_drops_the_end_of_a_request_not_its_beginning)
{
    /* abcd in 2 blocks leaves ab, which both hit at once; lru has c and d, which are worth nothing.
     */
    static const char *const requests[] = {"abcd", "abcd"};

    ck_assert_uint_eq(play("default", 2, requests, 2).hits, 2);
    ck_assert_uint_eq(play("lru", 2, requests, 2).hits, 0);
}
END_TEST

START_TEST(test_a_cache_of_every_block_misses_the_first_uses_alone)
{
    /* 10 references to 5 blocks. */
    static const char *const requests[] = {"abc", "abd", "e", "abc"};

    for (unsigned i = 0; eviction_at(i) != NULL; i++) {
        const char *policy = eviction_at(i)->name;
        struct prefix_result result = play(policy, 5, requests, 4);

        ck_assert_msg(result.hits == 5, "%s: %llu", policy, (unsigned long long) result.hits);
        result = play(policy, PREFIX_CACHE_BLOCKS_MAX, requests, 4);
        ck_assert_msg(result.hits == 5, "%s: %llu", policy, (unsigned long long) result.hits);
    }
}
END_TEST

START_TEST(test_a_request_larger_than_the_cache_is_played)
{
    static const char *const requests[] = {"abcdefgh", "abcdefgh", "aa"};

    for (unsigned i = 0; eviction_at(i) != NULL; i++) {
        struct prefix_result result = play(eviction_at(i)->name, 1, requests, 3);

        ck_assert_uint_eq(result.references, 18);
        ck_assert_uint_le(result.hits, 3);
    }
}
END_TEST

START_TEST(test_a_trace_without_blocks_is_refused)
{
    static const char *const requests[] = {"", ""};
    struct prefix_result result;
    struct words words;

    ck_assert_int_eq(
        prefix_cache_play(words_trace(&words, requests, 2), &eviction_lru, 1, &result), -ENODATA);
}
END_TEST

UNIT_MAIN("replay_prefix_cache", test_a_block_behind_a_missing_one_is_no_hit,
    test_all_blocks_of_a_request_are_touched, test_the_clairvoyant_keeps_what_comes_back,
    test_a_policy_of_prefixes_drops_the_end_of_a_request_not_its_beginning,
    test_a_cache_of_every_block_misses_the_first_uses_alone,
    test_a_request_larger_than_the_cache_is_played, test_a_trace_without_blocks_is_refused)
