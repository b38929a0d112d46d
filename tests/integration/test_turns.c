/*
 * Work on memory that moves is done in turns, and between two of them everybody else is served: a
 * turn that calls for the next must not keep the loop from looking at sockets.
 */
#include <check.h>
#include <poll.h>

#include "tests/integration/pages.h"
#include "tests/integration/raw.h"
#include "tests/unit/unit.h"

#define MIB(n) ((uint64_t) (n) << 20)
#define PAGE UINT64_C(512)
/* 2 million pages: a survey of them takes thirty turns. */
#define BYTES MIB(960)
#define COUNT ((uint32_t) (BYTES / PAGE))
/*
 * What is answered between an order and its plan where the loop is served between turns. Where it
 * isn't, it is what was readable together with the order: one, or two. Either may look like the
 * other when the kernel puts a process aside, so the plans are counted that do.
 */
#define ANSWERS 3
#define PLANS_AHEAD 4
#define PLANS_BEHIND 8

static struct harness harness;
static struct pages pages;

/* Asks for a plan without waiting for it. */
static struct conn *plan_ask(void)
{
    Gmb__ControlRequest request = GMB__CONTROL_REQUEST__INIT;
    Gmb__Reclaim body;
    struct conn *conn;

    gmb__reclaim__init(&body);
    body.tenant = (char *) (uintptr_t) "test";
    body.bytes = MIB(2);
    body.dry_run = body.from_tenant = true;
    request.id = 1;
    request.body_case = GMB__CONTROL_REQUEST__BODY_RECLAIM;
    request.reclaim = &body;
    ck_assert_int_eq(conn_new_consume(harness_dial(harness.control_socket), &conn), 0);
    ck_assert_int_eq(conn_send_consume(conn, &request.base, NULL), 0);
    return conn;
}

/* Asks for a plan, and now and then for something else until it is there; how often that was
 * answered. A session reads several messages at once: without the pause one turn's would do. */
static unsigned answers_until_plan(struct raw *raw)
{
    struct conn *conn = plan_ask();
    struct pollfd plan = {.fd = conn_fd(conn), .events = POLLIN};
    const struct timespec pause = {.tv_nsec = 200000};
    unsigned answers = 0;

    for (; ppoll(&plan, 1, &pause, NULL) == 0; answers++)
        raw_expect_error(raw, raw_release(raw, 1), GMB_STATUS_NOT_FOUND);
    (void) conn_free(conn);
    return answers;
}

START_TEST(who_asks_while_a_device_is_surveyed_is_answered_meanwhile)
{
    uint32_t *all = calloc(COUNT, sizeof(*all));
    struct raw raw;
    int balance = 0;

    ck_assert_ptr_nonnull(all);
    harness_start(&harness, HARNESS_BROKER "HostTier=64M\n" HARNESS_TENANT);
    pages_open(&pages, &harness, PAGE, HARNESS_CHUNK, BYTES);
    ck_assert_int_eq(
        gmb_page_alloc(pages.arena, COUNT, all, HARNESS_DEADLINE_MS * UINT64_C(1000000)), 0);
    raw_connect(&raw, &harness);
    while (balance < PLANS_AHEAD && balance > -PLANS_BEHIND)
        balance += answers_until_plan(&raw) >= ANSWERS ? 1 : -1;
    ck_assert_int_eq(balance, PLANS_AHEAD);
    raw_close(&raw);
    pages_close(&pages);
    free(all);
    harness_stop(&harness);
}
END_TEST

UNIT_MAIN("turns", who_asks_while_a_device_is_surveyed_is_answered_meanwhile)
