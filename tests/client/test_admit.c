/* Admission of a request by its pages and its priority: each answer at its boundary. */
#include <fcntl.h>

#include "base/clock.h"
#include "tests/client/script.h"
#include "tests/unit/unit.h"

#define ESTIMATE_NS UINT64_C(1234567)

static struct script script;
static struct script_status status;
static struct script_arena shared;
static gmb_arena *arena;

/* An arena of 16 chunks, 4 pages in each, of which one chunk is mapped and 3 pages are free. */
static void begin(void)
{
    struct call call = {.n = 1, .wait_ns = SCRIPT_WAIT_NS};
    uint32_t page;

    script_begin(&script);
    script_connect_status(&script, &status);
    call.arena = arena = script_arena(&script, NULL, &shared);
    call.pages = &page;
    call_start(&script, &call, call_alloc);
    broker_grant(&script, broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_ARENA_FILL), 0, 1, 1);
    message_free(broker_expect(&script, GMB__CLIENT_MESSAGE__BODY_ARENA_MAPPED));
    ck_assert_int_eq(call_join(&call), 0);
}

static void finish(void)
{
    script_arena_end(&shared);
    script_end(&script);
    script_status_end(&status);
}

static void publish(uint64_t headroom, uint64_t reachable, uint32_t reject_below, uint64_t bits)
{
    struct status_copy copy = {
        .used = CHUNK,
        .max = UINT64_MAX,
        .headroom = headroom,
        .reachable = reachable,
        .reject_below = reject_below,
        .wait_estimate_ns = ESTIMATE_NS,
    };

    status_publish(&status, bits, &copy);
}

static int admit(uint64_t pages, uint32_t priority, uint64_t expected_ns)
{
    uint64_t wait_ns = 1;
    int r = gmb_admit(arena, pages, priority, &wait_ns);

    ck_assert_uint_eq(wait_ns, expected_ns);
    ck_assert_int_eq(gmb_admit(arena, pages, priority, NULL), r);
    return r;
}

START_TEST(free_pages_and_headroom_admit_and_one_page_more_waits)
{
    begin();
    publish(0, 16 * CHUNK, 0, 0);
    ck_assert_int_eq(admit(3, 0, 0), GMB_ADMIT_NOW);
    ck_assert_int_eq(admit(4, 0, ESTIMATE_NS), GMB_ADMIT_WAIT);
    /* Memory comes by the chunk: 4 pages. */
    publish(CHUNK - 1, 16 * CHUNK, 0, 0);
    ck_assert_int_eq(admit(4, 0, ESTIMATE_NS), GMB_ADMIT_WAIT);
    publish(CHUNK, 16 * CHUNK, 0, 0);
    ck_assert_int_eq(admit(4, 0, 0), GMB_ADMIT_NOW);
    ck_assert_int_eq(admit(7, 0, 0), GMB_ADMIT_NOW);
    ck_assert_int_eq(admit(8, 0, ESTIMATE_NS), GMB_ADMIT_WAIT);
    finish();
}
END_TEST

START_TEST(priority_below_the_bound_gets_no_memory_and_at_it_does)
{
    begin();
    publish(16 * CHUNK, 16 * CHUNK, 50, 0);
    ck_assert_int_eq(admit(4, 49, 0), GMB_ADMIT_REJECT);
    ck_assert_int_eq(admit(4, 50, 0), GMB_ADMIT_NOW);
    /* Three pages are free: they are nobody else's. */
    ck_assert_int_eq(admit(3, 49, 0), GMB_ADMIT_NOW);
    finish();
}
END_TEST

START_TEST(pause_makes_everybody_wait_but_who_is_turned_away)
{
    begin();
    publish(16 * CHUNK, 16 * CHUNK, 50, STATUS_FLAG_PAUSE_NEW);
    ck_assert_int_eq(admit(4, 49, 0), GMB_ADMIT_REJECT);
    ck_assert_int_eq(admit(4, 50, ESTIMATE_NS), GMB_ADMIT_WAIT);
    ck_assert_int_eq(admit(3, 49, ESTIMATE_NS), GMB_ADMIT_WAIT);
    ck_assert_int_eq(admit(3, 50, ESTIMATE_NS), GMB_ADMIT_WAIT);
    finish();
}
END_TEST

START_TEST(what_can_never_fit_is_rejected)
{
    begin();
    publish(0, 2 * CHUNK, 0, 0);
    ck_assert_int_eq(admit(8, 0, ESTIMATE_NS), GMB_ADMIT_WAIT);
    ck_assert_int_eq(admit(9, 0, 0), GMB_ADMIT_REJECT);
    publish(UINT64_MAX, UINT64_MAX, 0, 0);
    ck_assert_int_eq(admit(64, 0, 0), GMB_ADMIT_NOW);
    ck_assert_int_eq(admit(65, 0, 0), GMB_ADMIT_REJECT);
    ck_assert_int_eq(admit(UINT64_MAX, 0, 0), GMB_ADMIT_REJECT);
    finish();
}
END_TEST

START_TEST(broker_that_has_gone_gives_nothing_beyond_free_pages)
{
    begin();
    publish(16 * CHUNK, 16 * CHUNK, 0, 0);
    ck_assert_int_eq(admit(4, 0, 0), GMB_ADMIT_NOW);
    broker_close(&script);
    ck_assert_int_eq(gmb_dispatch(script.session, 1000), GMB_E_DISCONNECTED);
    ck_assert_int_eq(admit(3, 0, 0), GMB_ADMIT_NOW);
    ck_assert_int_eq(admit(4, 0, ESTIMATE_NS), GMB_ADMIT_WAIT);
    finish();
}
END_TEST

START_TEST(without_a_word_of_the_broker_nothing_is_judged)
{
    uint64_t wait_ns = 1;

    begin();
    ck_assert_int_eq(gmb_admit(arena, 1, 0, &wait_ns), GMB_E_UNSUPPORTED);
    ck_assert_uint_eq(wait_ns, 1);
    finish();
}
END_TEST

UNIT_MAIN("admit", free_pages_and_headroom_admit_and_one_page_more_waits,
    priority_below_the_bound_gets_no_memory_and_at_it_does,
    pause_makes_everybody_wait_but_who_is_turned_away, what_can_never_fit_is_rejected,
    broker_that_has_gone_gives_nothing_beyond_free_pages,
    without_a_word_of_the_broker_nothing_is_judged)
