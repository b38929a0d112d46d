/* An arena and its broker: what is asked, what is mapped where, and what goes back when. */
#include <string.h>
#include <sys/eventfd.h>

#include "base/clock.h"
#include "tests/client/script.h"
#include "tests/unit/unit.h"

static struct script script;
static struct script_arena shared;

static uint64_t word_of(uint32_t page)
{
    return __atomic_load_n(&shared.table.pages[page].word, __ATOMIC_SEQ_CST);
}

/* Allocates while the broker grants what is asked for. */
static void alloc_granted(
    gmb_arena *arena, size_t n, uint32_t *pages, uint32_t first, uint32_t count)
{
    struct call call = {.arena = arena, .n = n, .pages = pages, .wait_ns = NSEC_PER_SEC};
    Gmb__ClientMessage *message;

    call_start(&script, &call, call_alloc);
    message = broker_expect(&script, GMB__CLIENT_MESSAGE__BODY_ARENA_FILL);
    ck_assert_uint_eq(message->arena_fill->lease, LEASE_ID);
    ck_assert_uint_eq(message->arena_fill->first, first);
    ck_assert_uint_eq(message->arena_fill->count, count);
    broker_grant(&script, message->id, first, count, first + count);
    message_free(message);
    message = broker_expect(&script, GMB__CLIENT_MESSAGE__BODY_ARENA_MAPPED);
    ck_assert_uint_eq(message->id, 0);
    ck_assert_uint_eq(message->arena_mapped->first, first);
    ck_assert_uint_eq(message->arena_mapped->count, count);
    message_free(message);
    ck_assert_int_eq(call_join(&call), 0);
}

START_TEST(pages_come_with_the_chunks_that_they_need)
{
    uint32_t pages[6];
    gmb_arena *arena;

    script_begin(&script);
    script_connect(&script);
    arena = script_arena(&script, NULL, &shared);
    ck_assert_uint_eq(gmb_arena_pages(arena), 64);
    ck_assert_uint_eq(gmb_arena_page_bytes(arena), CHUNK / 4);
    ck_assert_uint_eq(fake_gpu_mapped(), 0);
    ck_assert_int_eq(gmb_page_alloc(arena, 1, pages, GMB_WAIT_NONE), GMB_E_EXHAUSTED);
    broker_expect_silence(&script);

    alloc_granted(arena, 6, pages, 0, 2);
    ck_assert_uint_eq(fake_gpu_accessible(), 2 * CHUNK);
    for (uint32_t i = 0; i < 6; i++) {
        ck_assert_uint_eq(pages[i], i);
        ck_assert_uint_eq(word_of(i), arena_word_make(ARENA_PAGE_RESIDENT, 0, 1, 1));
    }
    /* What is free needs nobody. */
    ck_assert_int_eq(gmb_page_alloc(arena, 2, pages, GMB_WAIT_NONE), 0);
    ck_assert_int_eq(gmb_page_alloc(arena, 1, pages, GMB_WAIT_NONE), GMB_E_EXHAUSTED);
    ck_assert_int_eq(gmb_page_alloc(arena, 65, pages, NSEC_PER_SEC), GMB_E_OVER_LIMIT);
    script_arena_end(&shared);
    script_end(&script);
}
END_TEST

UNIT_MAIN("client arena", pages_come_with_the_chunks_that_they_need)
