/* A full host tier: pages that can be computed again are dropped, none before those that continue
 * it. A thread looks at all of them all the time. */
#include <check.h>
#include <pthread.h>

#include "client/arena.h"
#include "tests/integration/orders.h"
#include "tests/integration/pages.h"
#include "tests/unit/unit.h"

#define PAGE (UINT64_C(64) << 10)
#define PER_CHUNK ((uint32_t) (HARNESS_CHUNK / PAGE))
#define MIB(n) ((uint64_t) (n) << 20)
#define CHAINS 5u /* of pages in turn: each goes through every chunk */
#define BROKER(tier) HARNESS_BROKER "MoverIdle=200ms\nHostTier=" tier "\n" HARNESS_TENANT

static struct harness harness;
static struct pages pages;
static uint32_t parents[PAGES_MAX]; /* indices in pages.pages; UINT32_MAX: none */
static bool stop;
static uint32_t orphans; /* pages that were there when what they continue was lost */

static enum arena_page_state state_of(uint32_t i)
{
    return arena_word_state(
        __atomic_load_n(&pages.arena->pool.table.pages[pages.pages[i]].word, __ATOMIC_SEQ_CST));
}

static uint32_t count_lost(uint32_t from, uint32_t to)
{
    uint32_t lost = 0;

    for (uint32_t i = from; i < to; i++)
        lost += state_of(i) == ARENA_PAGE_LOST;
    return lost;
}

/* The parent first: what was lost stays so, and its child must have been before. */
static void orphans_count(void)
{
    for (uint32_t i = 0; i < pages.count; i++) {
        if (parents[i] != UINT32_MAX && state_of(parents[i]) == ARENA_PAGE_LOST &&
            state_of(i) != ARENA_PAGE_LOST)
            (void) __atomic_add_fetch(&orphans, 1, __ATOMIC_RELAXED);
    }
}

static void *watch(void *data)
{
    while (!__atomic_load_n(&stop, __ATOMIC_ACQUIRE)) {
        orphans_count();
        harness_breathe();
    }
    return data;
}

static void hints_set(void)
{
    for (uint32_t i = 0; i < pages.count; i++) {
        const struct gmb_page_hint hint = {
            .parent = parents[i] != UINT32_MAX ? pages.pages[parents[i]] : UINT32_MAX,
            .tokens = 16,
            .recomputable = 1,
        };

        ck_assert_int_eq(gmb_page_set_hint(pages.arena, pages.pages[i], &hint), 0);
    }
}

/* Takes it a chunk at a time, until no more than so many bytes are mapped. */
static void evict_to(uint64_t bytes)
{
    uint64_t deadline = harness_now_ms() + HARNESS_DEADLINE_MS;
    pthread_t watcher;

    stop = false;
    orphans = 0;
    ck_assert_int_eq(pthread_create(&watcher, NULL, watch, NULL), 0);
    while (pages_stats(&pages).mapped_bytes > bytes) {
        ck_assert_msg(harness_now_ms() < deadline, "%llu bytes are mapped, %u pages lost",
            (unsigned long long) pages_stats(&pages).mapped_bytes, count_lost(0, pages.count));
        (void) order_evict(&harness, "test", HARNESS_CHUNK);
        orphans_count();
        harness_breathe();
    }
    __atomic_store_n(&stop, true, __ATOMIC_RELEASE);
    ck_assert_int_eq(pthread_join(watcher, NULL), 0);
    ck_assert_uint_eq(orphans, 0);
}

/* Chains go up through the pages, or down. */
static void chains_open(const char *config, uint32_t chunks, bool down)
{
    harness_start(&harness, config);
    pages_open(&pages, &harness, PAGE, HARNESS_CHUNK, MIB(128));
    pages_fill(&pages, chunks * PER_CHUNK);
    for (uint32_t i = 0; i < pages.count; i++)
        parents[i] = down && i + CHAINS < pages.count ? i + CHAINS
                     : !down && i >= CHAINS           ? i - CHAINS
                                                      : UINT32_MAX;
    hints_set();
}

START_TEST(without_a_tier_chains_through_every_chunk_go_from_their_ends)
{
    chains_open(BROKER("0"), 8, _i == 1);
    evict_to(MIB(10));
    evict_to(MIB(4));
    ck_assert_uint_ge(count_lost(0, pages.count), 6 * PER_CHUNK);
    pages_close(&pages);
    harness_stop(&harness);
}
END_TEST

START_TEST(a_full_tier_keeps_the_beginnings_of_chains)
{
    uint32_t first, lost, kept = 0;

    chains_open(BROKER("32M"), 32, _i == 1);
    evict_to(MIB(4));
    /* 16 chunks fit, two may stay mapped; orders that were on their way then take those, too. */
    lost = count_lost(0, pages.count);
    ck_assert_uint_ge(lost, 14 * PER_CHUNK);
    ck_assert_uint_le(lost, 16 * PER_CHUNK);
    first = _i == 1 ? pages.count - 1 : 0;
    while (kept < pages.count && state_of(_i == 1 ? first - kept : kept) != ARENA_PAGE_LOST)
        kept++;
    ck_assert_uint_eq(kept + lost, pages.count); /* the ends, and nothing else */
    pages_check(&pages, _i == 1 ? pages.count - kept : 0, kept, 16);
    pages_close(&pages);
    harness_stop(&harness);
}
END_TEST

START_TEST(a_pinned_page_keeps_all_that_it_continues_and_nothing_else)
{
    uint32_t end = 2 * PER_CHUNK - 1;

    chains_open(BROKER("0"), 8, false);
    /* One chain through the first two chunks, pinned at its end; the first of them has no pin. */
    for (uint32_t i = 0; i < pages.count; i++)
        parents[i] = i > 0 && i <= end ? i - 1 : UINT32_MAX;
    hints_set();
    ck_assert_int_eq(gmb_page_pin(pages.arena, 1, &pages.pages[end]), GMB_PIN_READY);
    evict_to(MIB(4));
    ck_assert_uint_eq(count_lost(0, end + 1), 0);
    ck_assert_uint_eq(count_lost(end + 1, pages.count), 6 * PER_CHUNK);
    ck_assert_int_eq(gmb_page_unpin(pages.arena, 1, &pages.pages[end]), 0);
    evict_to(MIB(2));
    ck_assert_uint_gt(count_lost(0, end + 1), 0);
    pages_close(&pages);
    harness_stop(&harness);
}
END_TEST

/* Every other page goes; what is left moves into half of the chunks. */
static void pages_compact(void)
{
    static uint32_t old[PAGES_MAX], new[PAGES_MAX], kept;
    int moves;

    kept = 0;
    for (uint32_t i = 0; i < pages.count; i += 2) {
        pages.pages[kept++] = pages.pages[i];
        ck_assert_int_eq(gmb_page_unref(pages.arena, 1, &pages.pages[i + 1]), 0);
    }
    pages.count = kept;
    for (uint32_t i = 0; i < pages.count; i++)
        parents[i] = i > 0 ? i - 1 : UINT32_MAX;
    hints_set();
    moves = gmb_arena_compact(pages.arena, PAGES_MAX, old, new);
    ck_assert_int_eq(moves, (int) kept / 2);
    for (int i = 0; i < moves; i++) {
        for (uint32_t k = 0; k < pages.count; k++)
            pages.pages[k] = pages.pages[k] == old[i] ? new[i] : pages.pages[k];
    }
    ck_assert_int_eq(gmb_page_unref(pages.arena, (size_t) moves, old), 0);
}

START_TEST(a_chain_whose_pages_were_moved_goes_from_its_end)
{
    chains_open(BROKER("0"), 8, false);
    pages_compact();
    evict_to(MIB(4));
    ck_assert_uint_ge(count_lost(0, pages.count), 2 * PER_CHUNK);
    pages_close(&pages);
    harness_stop(&harness);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("drop_order");
    TCase *tcase = tcase_create("drop_order");

    tcase_add_loop_test(tcase, without_a_tier_chains_through_every_chunk_go_from_their_ends, 0, 2);
    tcase_add_loop_test(tcase, a_full_tier_keeps_the_beginnings_of_chains, 0, 2);
    tcase_add_test(tcase, a_pinned_page_keeps_all_that_it_continues_and_nothing_else);
    tcase_add_test(tcase, a_chain_whose_pages_were_moved_goes_from_its_end);
    suite_add_tcase(suite, tcase);
    return unit_run_suite(suite);
}
