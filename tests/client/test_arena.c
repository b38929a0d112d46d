/* An arena and its broker: what is asked, what is mapped where, and what goes back when. */
#include <string.h>
#include <sys/eventfd.h>

#include "client/arena_ops.h"
#include "tests/client/arena_script.h"

static uint64_t word_of(uint32_t page)
{
    return __atomic_load_n(&shared.table.pages[page].word, __ATOMIC_SEQ_CST);
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

static void word_set(uint32_t page, enum arena_page_state state)
{
    __atomic_store_n(&shared.table.pages[page].word, arena_word_with_state(word_of(page), state),
        __ATOMIC_SEQ_CST);
}

/* The broker empties chunk 0, whose 4 pages are all used, and gets it back. */
static void chunk_evict(gmb_arena *arena)
{
    Gmb__ClientMessage *message;
    uint32_t chunk = 0;

    chunk_close(0);
    for (uint32_t page = 0; page < 4; page++)
        word_set(page, ARENA_PAGE_EVICTED);
    broker_recall(&script, &chunk, 1);
    ck_assert_int_eq(gmb_dispatch(script.session, 0), 0);
    message = broker_expect(&script, GMB__CLIENT_MESSAGE__BODY_ARENA_RETURN);
    ck_assert_uint_eq(message->arena_return->first, 0);
    ck_assert_uint_eq(message->arena_return->count, 1);
    broker_done(&script, message->id);
    message_free(message);
    ck_assert_int_eq(chunk_state(0), ARENA_CHUNK_EMPTY);
}

START_TEST(recalled_chunk_is_unmapped_after_the_device_and_returned)
{
    uint32_t pages[9];
    unsigned before;
    gmb_arena *arena = arena_begin(8, pages);

    before = fake_gpu_calls(FAKE_GPU_SYNCHRONIZE);
    chunk_evict(arena);
    ck_assert_uint_eq(fake_gpu_mapped(), CHUNK);
    ck_assert_uint_eq(fake_gpu_calls(FAKE_GPU_SYNCHRONIZE), before + 1);
    /* Index 0 has pages to come back: growth goes to the lowest index that is wholly free. */
    alloc_granted(arena, 1, pages + 8, 2, 1);
    ck_assert_uint_eq(pages[8], 8);
    arena_finish();
}
END_TEST

START_TEST(recall_while_pages_live_ends_the_session_and_takes_nothing)
{
    uint32_t pages[4], chunk = 0;
    gmb_arena *arena = arena_begin(3, pages);

    if (_i == 1)
        chunk_close(0); /* with resident pages */
    broker_recall(&script, &chunk, 1);
    ck_assert_int_eq(gmb_dispatch(script.session, 1000), GMB_E_PROTOCOL);
    ck_assert_uint_eq(fake_gpu_accessible(), CHUNK);
    ck_assert_int_eq(gmb_page_pin(arena, 3, pages), GMB_PIN_READY);
    broker_close(&script);
    arena_finish();
}
END_TEST

START_TEST(recall_of_no_chunk_of_the_arena_is_a_breach)
{
    uint32_t chunk = 16;

    (void) arena_begin(0, NULL);
    broker_recall(&script, &chunk, 1);
    ck_assert_int_eq(gmb_dispatch(script.session, 1000), GMB_E_PROTOCOL);
    broker_close(&script);
    arena_finish();
}
END_TEST

START_TEST(pinned_page_comes_back_in_a_chunk_that_comes_unasked)
{
    struct call call = {.n = 1, .wait_ns = 10 * NSEC_PER_SEC};
    uint32_t pages[4];
    gmb_arena *arena = arena_begin(4, pages);
    Gmb__ClientMessage *message;

    chunk_evict(arena);
    ck_assert_int_eq(gmb_page_pin(arena, 2, pages), GMB_PIN_WAITING);
    message = broker_expect(&script, GMB__CLIENT_MESSAGE__BODY_PAGE_WANT);
    ck_assert_uint_eq(message->page_want->n_pages, 2);
    ck_assert_uint_eq(message->page_want->pages[1], pages[1]);
    message_free(message);
    ck_assert_int_eq(gmb_page_ready(arena, 2, pages), GMB_PIN_WAITING);
    ck_assert_int_eq(gmb_page_wait(arena, 2, pages, NSEC_PER_MSEC), GMB_E_TIMED_OUT);

    call.arena = arena;
    call.n = 2;
    call.pages = pages;
    call_start(&script, &call, call_pages_wait);
    broker_arena_grant(&script, 0, 1);
    message_free(broker_expect(&script, GMB__CLIENT_MESSAGE__BODY_ARENA_MAPPED));
    ck_assert_uint_eq(fake_gpu_accessible(), CHUNK);
    ck_assert_int_eq(chunk_state(0), ARENA_CHUNK_LIVE);
    word_set(0, ARENA_PAGE_RESTORING);
    word_set(0, ARENA_PAGE_RESIDENT);
    word_set(1, _i == 0 ? ARENA_PAGE_RESIDENT : ARENA_PAGE_LOST);
    ck_assert_int_eq(eventfd_write(shared.event_fd, 1), 0);
    ck_assert_int_eq(call_join(&call), _i == 0 ? GMB_PIN_READY : GMB_PIN_LOST);
    ck_assert_uint_eq(arena_word_pins(word_of(0)), 1);
    ck_assert_int_eq(gmb_page_unpin(arena, 2, pages), 0);
    arena_finish();
}
END_TEST

START_TEST(unasked_chunk_where_one_is_is_a_breach)
{
    uint32_t pages[4];

    (void) arena_begin(4, pages);
    broker_arena_grant(&script, 0, 1);
    ck_assert_int_eq(gmb_dispatch(script.session, 1000), GMB_E_PROTOCOL);
    ck_assert_uint_eq(fake_gpu_accessible(), CHUNK);
    broker_close(&script);
    arena_finish();
}
END_TEST

START_TEST(unasked_chunk_that_cannot_be_mapped_goes_back)
{
    Gmb__ClientMessage *message;

    (void) arena_begin(0, NULL);
    fake_gpu_fail(_i == 0 ? FAKE_GPU_MAP : FAKE_GPU_SET_ACCESS, 1);
    broker_arena_grant(&script, 3, 2);
    ck_assert_int_eq(gmb_dispatch(script.session, 0), 0);
    message = broker_expect(&script, GMB__CLIENT_MESSAGE__BODY_ARENA_RETURN);
    ck_assert_uint_eq(message->arena_return->first, 3);
    ck_assert_uint_eq(message->arena_return->count, 2);
    broker_done(&script, message->id);
    message_free(message);
    ck_assert_uint_eq(fake_gpu_mapped(), 0);
    ck_assert_int_eq(chunk_state(3), ARENA_CHUNK_EMPTY);
    arena_finish();
}
END_TEST

START_TEST(what_is_mapped_works_on_after_a_disconnect_amid_a_fill)
{
    struct call call = {.n = 12, .wait_ns = SCRIPT_WAIT_NS};
    uint32_t pages[12], page, evicted = 0;
    gmb_arena *arena = arena_begin(3, pages);
    uint64_t id;

    call.arena = arena;
    call.pages = pages;
    call_start(&script, &call, call_alloc);
    id = broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_ARENA_FILL);
    broker_grant(&script, id, 1, 2, 4);
    broker_close(&script);
    ck_assert_int_eq(call_join(&call), GMB_E_DISCONNECTED);
    ck_assert_uint_eq(fake_gpu_mapped(), CHUNK);

    ck_assert_int_eq(gmb_page_alloc(arena, 1, &page, GMB_WAIT_NONE), 0);
    ck_assert_uint_eq(page, 3);
    ck_assert_int_eq(gmb_page_pin(arena, 1, &page), GMB_PIN_READY);
    ck_assert_int_eq(gmb_page_unpin(arena, 1, &page), 0);
    ck_assert_int_eq(gmb_page_unref(arena, 1, &page), 0);
    ck_assert_int_eq(gmb_page_alloc(arena, 2, pages, GMB_WAIT_NONE), GMB_E_DISCONNECTED);
    word_set(evicted, ARENA_PAGE_EVICTED);
    ck_assert_int_eq(gmb_page_pin(arena, 1, &evicted), GMB_E_DISCONNECTED);
    ck_assert_uint_eq(arena_word_pins(word_of(evicted)), 0);
    arena_finish();
}
END_TEST

START_TEST(idle_chunks_go_back_by_themselves)
{
    const struct gmb_arena_params params = {.size = sizeof(params),
        .page_bytes = CHUNK / 4,
        .chunk_bytes = CHUNK,
        .max_bytes = 16 * CHUNK,
        .prefetch_bytes = 1,
        .idle_ns = NSEC_PER_MSEC};
    Gmb__ClientMessage *message;
    uint32_t pages[8];
    gmb_arena *arena;

    script_begin(&script);
    script_connect(&script);
    arena = script_arena(&script, &params, &shared);
    alloc_granted(arena, 8, pages, 0, 2);
    ck_assert_int_eq(gmb_thread_start(script.session), 0);
    ck_assert_int_eq(gmb_page_unref(arena, 8, pages), 0);
    message = broker_expect(&script, GMB__CLIENT_MESSAGE__BODY_ARENA_RETURN);
    ck_assert_uint_eq(message->arena_return->first, 0);
    ck_assert_uint_eq(message->arena_return->count, 2);
    broker_done(&script, message->id);
    message_free(message);
    ck_assert_uint_eq(fake_gpu_mapped(), 0);
    arena_finish();
}
END_TEST

START_TEST(senseless_arenas_are_refused_unsent)
{
    static const struct {
        uint64_t page, max, chunk;
    } cases[] = {
        {0, CHUNK, 0}, {15, CHUNK, 0}, {24, CHUNK, 0}, {UINT64_C(1) << 63, CHUNK, 0},
        {UINT64_C(1) << 31, UINT64_C(1) << 40, 0}, {4096, 0, 0}, {4096, UINT64_MAX, 0},
        {4096, UINT64_C(1) << 63, 0},
        {CHUNK / 2, CHUNK, CHUNK / 2},     /* no multiple of the granularity */
        {CHUNK / 2, CHUNK, CHUNK + 4096},  /* of neither */
        {CHUNK * 3 / 4, CHUNK * 2, CHUNK}, /* not of the page */
        {CHUNK, 65537 * CHUNK, CHUNK},     /* one chunk too many */
        {16, CHUNK, CHUNK},                /* 131072 pages in a chunk */
    };
    struct gmb_arena_params params = {.size = sizeof(params)};
    gmb_arena *arena = NULL;

    script_begin(&script);
    script_connect(&script);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        params.page_bytes = cases[i].page;
        params.max_bytes = cases[i].max;
        params.chunk_bytes = cases[i].chunk;
        ck_assert_msg(
            gmb_arena_new(script.session, &params, &arena) == GMB_E_INVALID, "case %zu", i);
    }
    params = (struct gmb_arena_params){.size = sizeof(params) - 1, .page_bytes = 4096};
    ck_assert_int_eq(gmb_arena_new(script.session, &params, &arena), GMB_E_INVALID);
    ck_assert_int_eq(gmb_arena_free(NULL), 0);
    ck_assert_ptr_null(arena);
    broker_expect_silence(&script);
    script_end(&script);
}
END_TEST

/* More than the driver has addresses for; and tables that aren't what was asked for. */
START_TEST(arena_that_cannot_be_set_up_is_released)
{
    const struct gmb_arena_params params = {.size = sizeof(params),
        .page_bytes = CHUNK / 4,
        .chunk_bytes = CHUNK,
        .max_bytes = 16 * CHUNK};
    struct call call = {.arena_params = &params};
    uint64_t id;

    script_begin(&script);
    script_connect(&script);
    if (_i == 0)
        fake_gpu_fail(FAKE_GPU_RESERVE, 1);
    call_start(&script, &call, call_arena);
    id = broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_ARENA_REQUEST);
    broker_arena(&script, id, _i == 1 ? CHUNK / 8 : CHUNK / 4, _i == 2 ? 15 : 16, &shared);
    broker_done(&script, broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_LEASE_RELEASE));
    ck_assert_int_eq(call_join(&call), _i == 0 ? GMB_E_GPU : GMB_E_PROTOCOL);
    arena_finish();
}
END_TEST

START_TEST(free_unmaps_everything_before_it_tells)
{
    struct call call = {0};
    uint32_t pages[8];
    uint64_t id;

    call.arena = arena_begin(8, pages);
    ck_assert_int_eq(gmb_page_pin(call.arena, 8, pages), GMB_PIN_READY);
    call_start(&script, &call, call_arena_free);
    id = broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_LEASE_RELEASE);
    ck_assert_uint_eq(fake_gpu_mapped(), 0);
    broker_done(&script, id);
    ck_assert_int_eq(call_join(&call), 0);
    arena_finish();
}
END_TEST

START_TEST(misuse_is_told_and_changes_nothing)
{
    uint32_t pages[4];
    gmb_arena *arena = arena_begin(4, pages);
    uint64_t before;

    ck_assert_int_eq(gmb_page_unpin(arena, 1, pages), GMB_E_INVALID);
    ck_assert_int_eq(gmb_page_pin(arena, 1, pages), GMB_PIN_READY);
    before = word_of(pages[0]);
    ck_assert_int_eq(gmb_page_unref(arena, 4, pages), GMB_E_INVALID);
    ck_assert_uint_eq(word_of(pages[0]), before);
    ck_assert_uint_eq(arena_word_refs(word_of(pages[1])), 1);
    ck_assert_int_eq(gmb_page_unpin(arena, 1, pages), 0);
    ck_assert_int_eq(gmb_page_unref(arena, 4, pages), 0);
    ck_assert_int_eq(gmb_page_unref(arena, 1, pages), GMB_E_INVALID);
    ck_assert_int_eq(gmb_page_ref(arena, 1, pages), GMB_E_INVALID);
    ck_assert_int_eq(gmb_page_touch(arena, 1, pages), GMB_E_INVALID);
    ck_assert_ptr_nonnull(strstr(gmb_error_text(), "allocated"));
    arena_finish();
}
END_TEST

/* What the socket has no room for is asked for once, however often it is pinned meanwhile: of
 * 20,000 messages those go out that socket and connection hold. */
START_TEST(pins_that_the_broker_does_not_read_are_not_queued_without_end)
{
    uint32_t pages[4], messages = 0;
    gmb_arena *arena = arena_begin(4, pages);

    chunk_evict(arena);
    for (int i = 0; i < 20000; i++) {
        ck_assert_int_eq(gmb_page_pin(arena, 2, pages), GMB_PIN_WAITING);
        ck_assert_int_eq(gmb_page_unpin(arena, 2, pages), 0);
    }
    ck_assert_int_eq(gmb_page_pin(arena, 3, pages), GMB_PIN_WAITING);
    do {
        Gmb__ClientMessage *message;

        while (broker_hears(&script)) {
            message = broker_expect(&script, GMB__CLIENT_MESSAGE__BODY_PAGE_WANT);
            messages++;
            /* The last one is for the page that nobody had asked for. */
            if (message->page_want->n_pages == 1)
                ck_assert_uint_eq(message->page_want->pages[0], pages[2]);
            else
                ck_assert_uint_eq(message->page_want->n_pages, 2);
            message_free(message);
        }
        ck_assert_int_eq(gmb_dispatch(script.session, 0), 0);
    } while (broker_hears(&script));
    ck_assert_uint_gt(messages, 2);
    ck_assert_uint_lt(messages, 2000);
    ck_assert_int_eq(gmb_page_unpin(arena, 3, pages), 0);
    arena_finish();
}
END_TEST

START_TEST(frees_and_unpins_wait_for_their_stream)
{
    uint32_t pages[4];
    gmb_arena *arena = arena_begin(4, pages);

    ck_assert_int_eq(gmb_page_pin(arena, 2, pages), GMB_PIN_READY);
    ck_assert_int_eq(gmb_page_unpin_after(arena, 3, pages, fake_gpu_stream(0)), GMB_E_INVALID);
    ck_assert_int_eq(gmb_page_unpin_after(arena, 2, pages, fake_gpu_stream(0)), 0);
    ck_assert_int_eq(gmb_page_unref_after(arena, 2, pages, fake_gpu_stream(0)), 0);
    ck_assert_int_eq(gmb_page_unref_after(arena, 1, pages + 2, fake_gpu_stream(1)), 0);
    ck_assert_int_eq(gmb_page_touch(arena, 1, pages + 3), 0);
    ck_assert_uint_eq(arena_word_pins(word_of(pages[0])), 1);
    /* One stream doesn't hold up the other. */
    fake_gpu_stream_pass(1);
    ck_assert_int_eq(gmb_page_touch(arena, 1, pages + 3), 0);
    ck_assert_int_eq(arena_word_state(word_of(pages[2])), ARENA_PAGE_FREE);
    ck_assert_uint_eq(arena_word_pins(word_of(pages[0])), 1);
    fake_gpu_stream_pass(0);
    ck_assert_int_eq(gmb_page_touch(arena, 1, pages + 3), 0);
    ck_assert_int_eq(arena_word_state(word_of(pages[0])), ARENA_PAGE_FREE);
    ck_assert_int_eq(arena_word_state(word_of(pages[1])), ARENA_PAGE_FREE);
    /* Events are used again; what still waits goes with the arena. */
    ck_assert_int_eq(gmb_page_unref_after(arena, 1, pages + 3, fake_gpu_stream(1)), 0);
    ck_assert_uint_eq(fake_gpu_events(), 3);
    arena_finish();
    ck_assert_uint_eq(fake_gpu_events(), 0);
}
END_TEST

START_TEST(compaction_empties_the_emptiest_chunks)
{
    uint32_t pages[12], given[] = {0, 1, 2, 5, 6, 9}, old[8], new[8];
    struct gmb_arena_stats stats = {.size = sizeof(stats)};
    gmb_arena *arena = arena_begin(12, pages);

    /* Used: page 3 of chunk 0; 4 and 7 of chunk 1; 8, 10 and 11 of chunk 2. */
    ck_assert_int_eq(gmb_page_unref(arena, 6, given), 0);
    ck_assert_int_eq(gmb_arena_compact(arena, 8, old, new), 1);
    ck_assert_uint_eq(old[0], 3);
    ck_assert_uint_eq(new[0], 9);
    ck_assert_int_eq(gmb_page_unref(arena, 1, old), 0);
    /* Two of chunk 1 don't fit into chunk 2, which is full now. */
    ck_assert_int_eq(gmb_arena_compact(arena, 8, old, new), 0);
    ck_assert_int_eq(gmb_arena_get_stats(arena, &stats), 0);
    ck_assert_uint_eq(stats.used_pages, 6);
    ck_assert_uint_eq(stats.free_pages, 6);
    ck_assert_uint_eq(stats.mapped_bytes, 3 * CHUNK);
    arena_finish();
}
END_TEST

static void hint_set(gmb_arena *arena, uint32_t page, uint32_t parent, uint32_t position)
{
    const struct gmb_page_hint hint = {
        .parent = parent, .position = position, .tokens = 16, .recomputable = 1};

    ck_assert_int_eq(gmb_page_set_hint(arena, page, &hint), 0);
}

/* UINT32_MAX when it continues nothing that is there. */
static uint32_t parent_of(uint32_t page)
{
    uint32_t parent;

    return arena_page_parent(&shared.table, page, &parent) ? parent : UINT32_MAX;
}

START_TEST(what_continues_a_page_continues_it_when_it_has_moved)
{
    uint32_t pages[16], given[] = {0, 1, 5, 6, 7, 8, 13, 14, 15}, old[8], new[8];
    gmb_arena *arena = arena_begin(16, pages);

    /* Used: 2 and 3 of chunk 0, 4 of chunk 1, 9 to 11 of chunk 2, 12 of chunk 3. */
    hint_set(arena, 4, 8, 5); /* which is gone before it moves, and another page then */
    hint_set(arena, 3, 2, 1);
    hint_set(arena, 9, 3, 2);
    hint_set(arena, 10, 9, 3);
    hint_set(arena, 11, 12, 7);
    ck_assert_int_eq(gmb_page_unref(arena, 9, given), 0);
    ck_assert_int_eq(gmb_arena_compact(arena, 1, old, new), 1);
    ck_assert_uint_eq(old[0], 12);
    ck_assert_uint_eq(new[0], 8);
    ck_assert_uint_eq(parent_of(11), 8);
    ck_assert_uint_eq(parent_of(4), UINT32_MAX);
    ck_assert_int_eq(gmb_page_unref(arena, 1, old), 0);
    ck_assert_int_eq(gmb_arena_compact(arena, 8, old, new), 1);
    ck_assert_uint_eq(old[0], 4);
    ck_assert_uint_eq(new[0], 0);
    ck_assert_uint_eq(parent_of(0), UINT32_MAX);
    ck_assert_int_eq(gmb_page_unref(arena, 1, old), 0);
    /* One that moves with what it continues. */
    ck_assert_int_eq(gmb_page_unref(arena, 2, (uint32_t[]){8, 11}), 0);
    ck_assert_int_eq(gmb_arena_compact(arena, 8, old, new), 0);
    ck_assert_int_eq(gmb_page_unref(arena, 1, (uint32_t[]){0}), 0);
    ck_assert_int_eq(gmb_arena_compact(arena, 8, old, new), 2);
    ck_assert_uint_eq(old[0], 9);
    ck_assert_uint_eq(old[1], 10);
    ck_assert_uint_eq(parent_of(new[0]), 3);
    ck_assert_uint_eq(parent_of(new[1]), new[0]);
    ck_assert_uint_eq(shared.table.pages[new[1]].position, 3);
    arena_finish();
}
END_TEST

START_TEST(pages_that_are_pinned_or_shared_do_not_move)
{
    uint32_t pages[8], given[] = {1, 2, 3, 5}, old[8], new[8];
    gmb_arena *arena = arena_begin(8, pages);

    ck_assert_int_eq(gmb_page_unref(arena, 4, given), 0);
    ck_assert_int_eq(gmb_page_pin(arena, 1, pages), GMB_PIN_READY);
    ck_assert_int_eq(gmb_arena_compact(arena, 8, old, new), 0);
    ck_assert_int_eq(gmb_page_unpin(arena, 1, pages), 0);
    ck_assert_int_eq(gmb_page_ref(arena, 1, pages), 0);
    ck_assert_int_eq(gmb_arena_compact(arena, 8, old, new), 0);
    ck_assert_int_eq(gmb_page_unref(arena, 1, pages), 0);
    ck_assert_int_eq(gmb_arena_compact(arena, 0, old, new), 0);
    ck_assert_int_eq(gmb_arena_compact(arena, 1, old, new), 1);
    arena_finish();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client arena");
    TCase *tcase = tcase_create("client arena");
    SRunner *runner;
    int failed;

    tcase_set_timeout(tcase, 30);
    tcase_add_test(tcase, pages_come_with_the_chunks_that_they_need);
    tcase_add_test(tcase, pins_that_the_broker_does_not_read_are_not_queued_without_end);
    tcase_add_test(tcase, recalled_chunk_is_unmapped_after_the_device_and_returned);
    tcase_add_loop_test(tcase, recall_while_pages_live_ends_the_session_and_takes_nothing, 0, 2);
    tcase_add_test(tcase, recall_of_no_chunk_of_the_arena_is_a_breach);
    tcase_add_loop_test(tcase, pinned_page_comes_back_in_a_chunk_that_comes_unasked, 0, 2);
    tcase_add_test(tcase, unasked_chunk_where_one_is_is_a_breach);
    tcase_add_loop_test(tcase, unasked_chunk_that_cannot_be_mapped_goes_back, 0, 2);
    tcase_add_test(tcase, what_is_mapped_works_on_after_a_disconnect_amid_a_fill);
    tcase_add_test(tcase, idle_chunks_go_back_by_themselves);
    tcase_add_test(tcase, senseless_arenas_are_refused_unsent);
    tcase_add_loop_test(tcase, arena_that_cannot_be_set_up_is_released, 0, 3);
    tcase_add_test(tcase, free_unmaps_everything_before_it_tells);
    tcase_add_test(tcase, misuse_is_told_and_changes_nothing);
    tcase_add_test(tcase, frees_and_unpins_wait_for_their_stream);
    tcase_add_test(tcase, compaction_empties_the_emptiest_chunks);
    tcase_add_test(tcase, what_continues_a_page_continues_it_when_it_has_moved);
    tcase_add_test(tcase, pages_that_are_pinned_or_shared_do_not_move);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
