/* How an arena grows: what is asked for, at which indices, when, and what a refusal means. */
#include "tests/client/arena_script.h"

/* The chunks that the broker sends for a restore may cross a fill for the same index. */
START_TEST(fill_that_crosses_a_restore_ends_well)
{
    struct call call = {.n = 1, .wait_ns = 10 * NSEC_PER_SEC};
    uint32_t page;
    uint64_t id;

    call.arena = arena_begin(0, NULL);
    call.pages = &page;
    call_start(&script, &call, call_alloc);
    id = broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_ARENA_FILL);
    broker_arena_grant(&script, 0, 1);
    broker_error(&script, id, GMB_STATUS_INVALID, GMB_LIMIT_NONE, "not empty");
    message_free(broker_expect(&script, GMB__CLIENT_MESSAGE__BODY_ARENA_MAPPED));
    ck_assert_int_eq(call_join(&call), 0);
    ck_assert_uint_eq(page, 0);
    ck_assert_uint_eq(fake_gpu_accessible(), CHUNK);
    arena_finish();
}
END_TEST

/* The broker waits for memory to restore pages there: other indices are asked for, and that one not
 * again for a while, else the two would ask and refuse as fast as messages go. */
START_TEST(refused_index_is_not_asked_for_again_at_once)
{
    struct call call = {.n = 1, .wait_ns = 60 * NSEC_PER_SEC};
    uint64_t refused_ns[16] = {0};
    Gmb__ClientMessage *message;
    uint32_t page, first;

    call.arena = arena_begin(0, NULL);
    call.pages = &page;
    call_start(&script, &call, call_alloc);
    for (;;) {
        message = broker_expect(&script, GMB__CLIENT_MESSAGE__BODY_ARENA_FILL);
        first = message->arena_fill->first;
        ck_assert_uint_lt(first, 16);
        if (refused_ns[first] > 0)
            break;
        refused_ns[first] = clock_now(&clock_monotonic);
        broker_error(&script, message->id, GMB_STATUS_INVALID, GMB_LIMIT_NONE, "asked for already");
        message_free(message);
    }
    ck_assert_uint_ge(clock_now(&clock_monotonic) - refused_ns[first], 10 * NSEC_PER_MSEC);
    broker_grant(&script, message->id, first, 1, first + 1);
    message_free(message);
    message_free(broker_expect(&script, GMB__CLIENT_MESSAGE__BODY_ARENA_MAPPED));
    ck_assert_int_eq(call_join(&call), 0);
    arena_finish();
}
END_TEST

/* Whoever needs a page to go on holds others: it isn't put behind who is about to begin. */
START_TEST(growth_goes_before_a_large_fill)
{
    struct call large = {.n = 8, .wait_ns = 60 * NSEC_PER_SEC}, growth = large;
    uint32_t pages[8], page;
    Gmb__ClientMessage *first, *second;

    large.arena = growth.arena = arena_begin(0, NULL);
    large.pages = pages;
    growth.pages = &page;
    growth.n = 1;
    call_start(&script, &large, call_alloc);
    first = broker_expect(&script, GMB__CLIENT_MESSAGE__BODY_ARENA_FILL);
    ck_assert_uint_eq(first->arena_fill->count, 2);
    ck_assert(!first->arena_fill->urgent);
    call_start(&script, &growth, call_alloc);
    second = broker_expect(&script, GMB__CLIENT_MESSAGE__BODY_ARENA_FILL);
    ck_assert_uint_eq(second->arena_fill->first, 2);
    ck_assert_uint_eq(second->arena_fill->count, 1);
    ck_assert(second->arena_fill->urgent);
    broker_grant(&script, second->id, 2, 1, 3);
    message_free(broker_expect(&script, GMB__CLIENT_MESSAGE__BODY_ARENA_MAPPED));
    ck_assert_int_eq(call_join(&growth), 0);
    broker_grant(&script, first->id, 0, 2, 2);
    message_free(broker_expect(&script, GMB__CLIENT_MESSAGE__BODY_ARENA_MAPPED));
    ck_assert_int_eq(call_join(&large), 0);
    message_free(first);
    message_free(second);
    arena_finish();
}
END_TEST

/* A whole request is asked for in one piece, though there is a hole in front. */
START_TEST(run_that_is_long_enough_is_asked_for)
{
    uint32_t pages[8], more[8], chunk = 0;
    gmb_arena *arena = arena_begin(8, pages);

    ck_assert_int_eq(gmb_page_unref(arena, 4, pages), 0);
    chunk_close(0);
    broker_recall(&script, &chunk, 1);
    ck_assert_int_eq(gmb_dispatch(script.session, 0), 0);
    broker_done(&script, broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_ARENA_RETURN));
    alloc_granted(arena, 8, more, 2, 2);
    arena_finish();
}
END_TEST

/* Else a thread that can do something else would wait as long as the most patient one. */
START_TEST(thread_waits_its_own_time_behind_the_fill_of_another)
{
    struct call call = {.n = 1, .wait_ns = 60 * NSEC_PER_SEC};
    uint32_t page, other;
    uint64_t id, before_ns;

    call.arena = arena_begin(0, NULL);
    call.pages = &page;
    call_start(&script, &call, call_alloc);
    id = broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_ARENA_FILL);
    before_ns = clock_now(&clock_monotonic);
    ck_assert_int_eq(gmb_page_alloc(call.arena, 1, &other, 20 * NSEC_PER_MSEC), GMB_E_TIMED_OUT);
    ck_assert_uint_lt(clock_now(&clock_monotonic) - before_ns, 2 * NSEC_PER_SEC);
    broker_expect_silence(&script);
    broker_grant(&script, id, 0, 1, 1);
    message_free(broker_expect(&script, GMB__CLIENT_MESSAGE__BODY_ARENA_MAPPED));
    ck_assert_int_eq(call_join(&call), 0);
    arena_finish();
}
END_TEST

START_TEST(grant_in_parts_that_breaks_off_leaves_nothing)
{
    struct call call = {.n = 12, .wait_ns = SCRIPT_WAIT_NS};
    uint32_t pages[12];
    uint64_t id;

    call.arena = arena_begin(0, NULL);
    call.pages = pages;
    call_start(&script, &call, call_alloc);
    id = broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_ARENA_FILL);
    broker_grant(&script, id, 0, 2, 3);
    broker_error(&script, id, GMB_STATUS_EXHAUSTED, GMB_LIMIT_MEMORY_MAX, "full");
    ck_assert_int_eq(call_join(&call), GMB_E_EXHAUSTED);
    ck_assert_str_eq(call.limit, "MemoryMax");
    ck_assert_uint_eq(fake_gpu_mapped(), 0);
    ck_assert_int_eq(chunk_state(0), ARENA_CHUNK_EMPTY);
    broker_expect_silence(&script);
    arena_finish();
}
END_TEST

START_TEST(memory_is_kept_ready_and_a_refusal_is_no_hurry)
{
    const struct gmb_arena_params params = {.size = sizeof(params),
        .page_bytes = CHUNK / 4,
        .chunk_bytes = CHUNK,
        .max_bytes = 16 * CHUNK,
        .prefetch_bytes = 2 * CHUNK,
        .idle_ns = UINT64_MAX};
    Gmb__ClientMessage *message;
    uint64_t refused_ns;
    uint32_t page;

    script_begin(&script);
    script_connect(&script);
    alloc_granted(script_arena(&script, &params, &shared), 1, &page, 0, 1);
    do
        ck_assert_int_eq(gmb_dispatch(script.session, 5), 0);
    while (!broker_hears(&script));
    /* Three free pages are at hand, eight are wanted. */
    message = broker_expect(&script, GMB__CLIENT_MESSAGE__BODY_ARENA_FILL);
    ck_assert_uint_eq(message->arena_fill->first, 1);
    ck_assert_uint_eq(message->arena_fill->count, 2);
    ck_assert_uint_eq(message->arena_fill->wait_ns, 0);
    refused_ns = clock_now(&clock_monotonic);
    broker_error(&script, message->id, GMB_STATUS_EXHAUSTED, GMB_LIMIT_DEVICE, "full");
    message_free(message);
    do
        ck_assert_int_eq(gmb_dispatch(script.session, 5), 0);
    while (!broker_hears(&script));
    ck_assert_uint_ge(clock_now(&clock_monotonic) - refused_ns, 50 * NSEC_PER_MSEC);
    message_free(broker_expect(&script, GMB__CLIENT_MESSAGE__BODY_ARENA_FILL));
    arena_finish();
}
END_TEST

UNIT_MAIN("client arena fills", fill_that_crosses_a_restore_ends_well,
    refused_index_is_not_asked_for_again_at_once, growth_goes_before_a_large_fill,
    run_that_is_long_enough_is_asked_for, thread_waits_its_own_time_behind_the_fill_of_another,
    grant_in_parts_that_breaks_off_leaves_nothing, memory_is_kept_ready_and_a_refusal_is_no_hurry)
