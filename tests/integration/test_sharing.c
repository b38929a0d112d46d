/* Several processes of one tenant with one arena: what each holds, and what is left of one that
 * dies. */
#include <check.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/integration/orders.h"
#include "tests/integration/raw_arena.h"
#include "tests/integration/sharer.h"
#include "tests/unit/unit.h"

#define MIB(n) ((uint64_t) (n) << 20)
#define BROKER HARNESS_BROKER "HostTier=256M\nMoverIdle=200ms\nRecallTimeout=1s\n"

static struct harness harness;
static struct sharer first, second;

static void begin(void)
{
    harness_start(&harness, BROKER HARNESS_TENANT);
    sharer_start(&first, &harness, true);
    sharer_start(&second, &harness, false);
}

static void need(
    struct sharer *sharer, enum sharer_what what, uint32_t count, const uint32_t *pages)
{
    ck_assert_int_eq(sharer_do(sharer, what, count, pages), 0);
}

static uint32_t used(struct sharer *sharer)
{
    need(sharer, SHARER_STATS, 0, NULL);
    return sharer->answer.pages[0];
}

static void wait_used(struct sharer *sharer, uint32_t count)
{
    uint64_t deadline = harness_now_ms() + HARNESS_DEADLINE_MS;

    while (used(sharer) != count) {
        ck_assert_msg(
            harness_now_ms() < deadline, "%u pages are in use, not %u", used(sharer), count);
        harness_breathe();
    }
}

static void wait_leased(uint64_t bytes)
{
    uint64_t deadline = harness_now_ms() + HARNESS_DEADLINE_MS;
    Gmb__TenantDevice tenant;

    for (;;) {
        raw_tenant(&harness, "test", &tenant);
        if (tenant.leased_bytes <= bytes)
            return;
        ck_assert_msg(harness_now_ms() < deadline, "%llu bytes are leased",
            (unsigned long long) tenant.leased_bytes);
        harness_breathe();
    }
}

START_TEST(a_second_process_uses_what_the_first_one_computed)
{
    uint32_t pages[3 * SHARER_PER_CHUNK], count = ARRAY_SIZE(pages);

    begin();
    need(&first, SHARER_ALLOC, count, NULL);
    memcpy(pages, first.answer.pages, sizeof(pages));
    ck_assert_int_eq(sharer_do(&second, SHARER_UNREF, 1, pages), GMB_E_INVALID);
    ck_assert_int_eq(sharer_do(&second, SHARER_PIN, 1, pages), GMB_E_INVALID);
    need(&second, SHARER_REF, count, pages);
    need(&second, SHARER_CHECK, count, pages);
    /* The tenant pays once for what both have mapped. */
    wait_leased(MIB(8));
    need(&first, SHARER_UNREF, count, pages);
    ck_assert_uint_eq(used(&first), count);
    need(&second, SHARER_CHECK, count, pages);
    need(&second, SHARER_UNREF, count, pages);
    ck_assert_uint_eq(used(&first), 0);
    /* One finds them vacant, both give them back. */
    wait_leased(0);
    sharer_end(&first, 0);
    sharer_end(&second, 0);
    harness_stop(&harness);
}
END_TEST

START_TEST(memory_that_either_asks_for_comes_to_both)
{
    uint32_t pages[2][SHARER_PER_CHUNK];

    begin();
    need(&second, SHARER_ALLOC, SHARER_PER_CHUNK, NULL);
    memcpy(pages[0], second.answer.pages, sizeof(pages[0]));
    need(&first, SHARER_ALLOC, SHARER_PER_CHUNK, NULL);
    memcpy(pages[1], first.answer.pages, sizeof(pages[1]));
    need(&first, SHARER_REF, SHARER_PER_CHUNK, pages[0]);
    need(&second, SHARER_REF, SHARER_PER_CHUNK, pages[1]);
    need(&first, SHARER_CHECK, SHARER_PER_CHUNK, pages[0]);
    need(&second, SHARER_CHECK, SHARER_PER_CHUNK, pages[1]);
    sharer_end(&second, 0);
    need(&first, SHARER_CHECK, SHARER_PER_CHUNK, pages[0]);
    wait_used(&first, 2 * SHARER_PER_CHUNK);
    sharer_end(&first, 0);
    harness_stop(&harness);
}
END_TEST

START_TEST(the_arena_outlives_its_maker_and_its_pins)
{
    uint32_t pages[2 * SHARER_PER_CHUNK], half = SHARER_PER_CHUNK;

    begin();
    need(&first, SHARER_ALLOC, 2 * half, NULL);
    memcpy(pages, first.answer.pages, sizeof(pages));
    need(&first, SHARER_PIN, 2 * half, pages);
    need(&second, SHARER_REF, half, pages);
    need(&second, SHARER_PIN, 1, pages);
    sharer_end(&first, SIGKILL);
    wait_used(&second, half);
    need(&second, SHARER_CHECK, half, pages);
    /* Nothing but the one pin of the living holds pages back. */
    (void) order_evict(&harness, "test", MIB(64));
    (void) order_evict(&harness, "test", MIB(64));
    need(&second, SHARER_UNPIN, 1, pages);
    ck_assert_int_eq(sharer_do(&second, SHARER_UNPIN, 1, pages), GMB_E_INVALID);
    need(&second, SHARER_ALLOC, half, NULL);
    need(&second, SHARER_CHECK, half, second.answer.pages);
    need(&second, SHARER_UNREF, half, pages);
    /* A third one comes to it still. */
    sharer_start(&first, &harness, false);
    need(&first, SHARER_ALLOC, half, NULL);
    sharer_end(&second, 0);
    sharer_end(&first, 0);
    harness_stop(&harness);
}
END_TEST

START_TEST(pages_go_and_come_back_under_several_processes)
{
    uint32_t pages[8 * SHARER_PER_CHUNK], count = ARRAY_SIZE(pages);

    begin();
    need(&first, SHARER_ALLOC, count, NULL);
    memcpy(pages, first.answer.pages, sizeof(pages));
    need(&second, SHARER_REF, count, pages);
    need(&second, SHARER_CHECK, count, pages);
    ck_assert_uint_ge(order_evict(&harness, "test", MIB(64)), MIB(16));
    wait_leased(MIB(2));
    need(&second, SHARER_STATS, 0, NULL);
    ck_assert_uint_ge(second.answer.pages[2], 7 * SHARER_PER_CHUNK);
    need(&second, SHARER_CHECK, count, pages);
    need(&first, SHARER_CHECK, count, pages);
    /* Who wanted them back is killed; the other one still gets them. */
    (void) order_evict(&harness, "test", MIB(64));
    sharer_end(&second, SIGKILL);
    need(&first, SHARER_CHECK, count, pages);
    wait_used(&first, count);
    sharer_end(&first, 0);
    harness_stop(&harness);
}
END_TEST

START_TEST(a_stopped_process_holds_up_reclaim_and_nobody_else)
{
    uint32_t pages[4 * SHARER_PER_CHUNK], count = ARRAY_SIZE(pages);
    Gmb__TenantDevice tenant;

    begin();
    need(&first, SHARER_ALLOC, count, NULL);
    memcpy(pages, first.answer.pages, sizeof(pages));
    need(&second, SHARER_REF, count, pages);
    need(&second, SHARER_CHECK, count, pages);
    ck_assert_int_eq(kill(second.pid, SIGSTOP), 0);
    (void) order_evict(&harness, "test", MIB(64));
    /* What it has mapped stays charged: no other gets that memory. */
    raw_tenant(&harness, "test", &tenant);
    ck_assert_uint_ge(tenant.leased_bytes, MIB(8));
    need(&first, SHARER_ALLOC, 8, NULL);
    need(&first, SHARER_CHECK, 8, first.answer.pages);
    ck_assert_int_eq(kill(second.pid, SIGCONT), 0);
    wait_leased(MIB(6));
    need(&second, SHARER_CHECK, count, pages);
    need(&first, SHARER_CHECK, count, pages);
    sharer_end(&first, 0);
    sharer_end(&second, 0);
    harness_stop(&harness);
}
END_TEST

START_TEST(one_that_leaves_drops_what_it_had_and_may_come_back)
{
    uint32_t pages[SHARER_PER_CHUNK], count = ARRAY_SIZE(pages);

    begin();
    need(&second, SHARER_ALLOC, count, NULL);
    memcpy(pages, second.answer.pages, sizeof(pages));
    need(&first, SHARER_REF, 4, pages);
    need(&second, SHARER_LEAVE, 0, NULL);
    wait_used(&first, 4);
    need(&first, SHARER_CHECK, 4, pages);
    sharer_end(&second, 0);
    for (int i = 0; i < 20; i++) { /* more than there are numbers */
        sharer_start(&second, &harness, false);
        need(&second, SHARER_REF, 4, pages);
        need(&second, SHARER_CHECK, 4, pages);
        sharer_end(&second, i % 2 == 0 ? SIGKILL : 0);
    }
    wait_used(&first, 4);
    sharer_end(&first, 0);
    harness_stop(&harness);
}
END_TEST

START_TEST(death_in_the_middle_of_everything_leaves_the_others_whole)
{
    uint32_t pages[2 * SHARER_PER_CHUNK], count = ARRAY_SIZE(pages);

    begin();
    need(&first, SHARER_ALLOC, count, NULL);
    memcpy(pages, first.answer.pages, sizeof(pages));
    for (int death = 0; death < 12; death++) {
        need(&second, SHARER_CHURN, 16, pages);
        (void) order_evict(&harness, "test", MIB(4));
        need(&first, SHARER_CHECK, count, pages);
        sharer_end(&second, SIGKILL);
        need(&first, SHARER_CHECK, count, pages);
        wait_used(&first, count);
        sharer_start(&second, &harness, false);
    }
    need(&first, SHARER_UNREF, count, pages);
    wait_used(&second, 0);
    wait_leased(0);
    sharer_end(&first, 0);
    sharer_end(&second, 0);
    harness_stop(&harness);
}
END_TEST

START_TEST(a_prefix_outlives_who_computed_it_and_comes_back_from_the_host)
{
    uint32_t pages[6 * SHARER_PER_CHUNK], count = ARRAY_SIZE(pages);

    begin();
    need(&first, SHARER_ALLOC, count, NULL);
    memcpy(pages, first.answer.pages, sizeof(pages));
    need(&first, SHARER_PUBLISH, count, pages);
    sharer_end(&first, SIGKILL);
    wait_used(&second, count);
    ck_assert_int_eq(sharer_do(&second, SHARER_LOOKUP, count + 5, NULL), (int) count);
    ck_assert_mem_eq(second.answer.pages, pages, sizeof(pages));
    need(&second, SHARER_CHECK, count, pages);
    need(&second, SHARER_UNREF, count, pages);
    ck_assert_uint_eq(used(&second), count); /* the index has them */
    ck_assert_uint_ge(order_evict(&harness, "test", MIB(64)), MIB(12));
    wait_leased(MIB(2));
    sharer_start(&first, &harness, false);
    ck_assert_int_eq(sharer_do(&first, SHARER_LOOKUP, count, NULL), (int) count);
    need(&first, SHARER_CHECK, count, pages);
    sharer_end(&second, 0);
    sharer_end(&first, 0);
    harness_stop(&harness);
}
END_TEST

/* ------------------------------------------------------------------ who may not */

/* A small one: what these tests need. */
static uint64_t raw_share_small(struct raw *raw, const char *name)
{
    return raw_share(raw, name, SHARER_PAGE, MIB(64));
}

static void expect_denied(struct raw *raw, uint64_t id, char text[LIMIT_TEXT_BYTES])
{
    Gmb__BrokerMessage *message = raw_receive(raw);

    ck_assert(message != NULL && message->id == id);
    ck_assert_int_eq(message->body_case, GMB__BROKER_MESSAGE__BODY_ERROR);
    ck_assert_uint_eq(message->error->status, GMB_STATUS_DENIED);
    ck_assert_uint_eq(message->error->limit, GMB_LIMIT_PERMISSION);
    (void) snprintf(text, LIMIT_TEXT_BYTES, "%s", message->error->text);
    frame_message_free(&message->base);
}

/* As user 65534: a client of the other tenant. The child's checks end it. */
static void stranger_run(void)
{
    char there[LIMIT_TEXT_BYTES], absent[LIMIT_TEXT_BYTES];
    struct raw raw;
    int status;
    pid_t pid = fork();

    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        if (setgid(65534) != 0 || setuid(65534) != 0)
            _exit(1);
        raw_connect(&raw, &harness);
        expect_denied(&raw, raw_attach(&raw, "kv"), there);
        expect_denied(&raw, raw_attach(&raw, "nothing"), absent);
        _exit(strcmp(there, absent) == 0 ? 0 : 2);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFEXITED(status));
    ck_assert_int_eq(WEXITSTATUS(status), 0);
}

START_TEST(another_tenant_cannot_tell_whether_there_is_an_arena)
{
    unit_need_root();
    harness_start(&harness, BROKER "[Tenant other]\nUser=65534\n" HARNESS_TENANT);
    sharer_start(&first, &harness, true);
    stranger_run();
    sharer_end(&first, 0);
    harness_stop(&harness);
}
END_TEST

START_TEST(names_are_needed_and_taken_once)
{
    char text[LIMIT_TEXT_BYTES];
    struct raw raw, other;
    struct raw_arena arena;

    harness_start(&harness, BROKER HARNESS_TENANT);
    raw_connect(&raw, &harness);
    raw_connect(&other, &harness);
    raw_expect_error(&raw, raw_share_small(&raw, ""), GMB_STATUS_INVALID);
    expect_denied(&other, raw_attach(&other, ""), text);
    raw_expect_arena(&raw, raw_share_small(&raw, "kv"), &arena);
    raw_expect_error(&other, raw_share_small(&other, "kv"), GMB_STATUS_CONFLICT);
    raw_expect_error(&raw, raw_attach(&raw, "kv"), GMB_STATUS_INVALID); /* it has it */
    raw_expect_done(&raw, raw_release(&raw, arena.lease));
    raw_arena_close(&arena);
    expect_denied(&other, raw_attach(&other, "kv"), text);
    raw_expect_arena(&other, raw_share_small(&other, "kv"), &arena);
    raw_expect_done(&other, raw_release(&other, arena.lease));
    raw_close(&other);
    raw_arena_close(&arena);
    raw_close(&raw);
    harness_stop(&harness);
}
END_TEST

START_TEST(a_holder_that_says_nonsense_harms_nobody)
{
    uint32_t pages[SHARER_PER_CHUNK], count = ARRAY_SIZE(pages), wanted[3] = {0, 77, UINT32_MAX};
    struct raw_arena arena, again;
    struct raw raw;

    begin();
    need(&first, SHARER_ALLOC, count, NULL);
    memcpy(pages, first.answer.pages, sizeof(pages));
    raw_connect(&raw, &harness);
    raw_ready(&raw, 12345);
    raw_expect_arena(&raw, raw_attach(&raw, "kv"), &arena);
    raw_expect_error(&raw, raw_attach(&raw, "kv"), GMB_STATUS_INVALID);
    /* Before it is ready it has nothing, and asks for nothing. */
    raw_expect_error(&raw, raw_fill(&raw, arena.lease, 9, 1, 0), GMB_STATUS_INVALID);
    raw_expect_error(&raw, raw_return(&raw, arena.lease, 0, 1), GMB_STATUS_INVALID);
    raw_mapped(&raw, arena.lease, 0, 64);
    raw_want(&raw, arena.lease, wanted, 3);
    raw_ready(&raw, arena.lease);
    raw_ready(&raw, arena.lease);
    /* What others map it returns unmapped: theirs it stays. */
    raw_expect_end_of(&raw, raw_return(&raw, arena.lease, 0, 1));
    need(&first, SHARER_CHECK, count, pages);
    raw_want(&raw, arena.lease, wanted, 3);
    raw_expect_end_of(&raw, raw_release(&raw, arena.lease));
    raw_arena_close(&arena);
    raw_expect_arena(&raw, raw_attach(&raw, "kv"), &again);
    raw_arena_close(&again);
    raw_close(&raw); /* its process lives: it stays a holder, whom nobody can ask */
    need(&first, SHARER_CHECK, count, pages);
    need(&second, SHARER_REF, count, pages);
    need(&second, SHARER_CHECK, count, pages);
    sharer_end(&first, 0);
    sharer_end(&second, 0);
    harness_discard(&harness);
}
END_TEST

/* A holder that asks for a page as fast as the broker reads, for ever. It never says that it is
 * ready: so it has no chunks, which it would have to give back. */
static void flood(int ready)
{
    uint32_t wanted[1] = {0};
    Gmb__ClientMessage message = GMB__CLIENT_MESSAGE__INIT;
    Gmb__PageWant body = GMB__PAGE_WANT__INIT;
    struct raw_arena arena;
    struct pollfd room;
    struct frame frame;
    struct raw raw;

    raw_connect(&raw, &harness);
    raw_expect_arena(&raw, raw_attach(&raw, "kv"), &arena);
    body.lease = arena.lease;
    body.n_pages = ARRAY_SIZE(wanted);
    body.pages = wanted;
    message.body_case = GMB__CLIENT_MESSAGE__BODY_PAGE_WANT;
    message.page_want = &body;
    ck_assert_int_eq(frame_encode(&frame, &message.base), 0);
    ck_assert_int_eq(write(ready, "", 1), 1);
    room = (struct pollfd){.fd = conn_fd(raw.conn), .events = POLLOUT};
    for (;;) {
        if (send(room.fd, frame.bytes, frame.size, MSG_NOSIGNAL) < 0)
            (void) poll(&room, 1, -1);
    }
}

/* So many that one of them always has something to read in its socket. */
#define FLOODERS 6

START_TEST(holders_that_never_stop_asking_hold_up_nobody)
{
    uint32_t pages[4 * SHARER_PER_CHUNK], count = ARRAY_SIZE(pages);
    pid_t pids[FLOODERS];
    int ready[2];
    char byte;

    begin();
    need(&first, SHARER_ALLOC, count, NULL);
    memcpy(pages, first.answer.pages, sizeof(pages));
    ck_assert_int_eq(pipe(ready), 0);
    for (size_t i = 0; i < FLOODERS; i++) {
        pids[i] = fork();
        ck_assert_int_ge(pids[i], 0);
        if (pids[i] == 0) {
            (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
            flood(ready[1]);
        }
        ck_assert_int_eq(read(ready[0], &byte, 1), 1);
    }
    for (int i = 0; i < 3; i++) {
        (void) order_evict(&harness, "test", MIB(64));
        need(&first, SHARER_CHECK, count, pages);
    }
    for (size_t i = 0; i < FLOODERS; i++) {
        ck_assert_int_eq(kill(pids[i], SIGKILL), 0);
        ck_assert_int_eq(waitpid(pids[i], NULL, 0), pids[i]);
    }
    need(&first, SHARER_CHECK, count, pages);
    sharer_end(&first, 0);
    sharer_end(&second, 0);
    harness_stop(&harness);
}
END_TEST

UNIT_MAIN("integration_sharing", a_second_process_uses_what_the_first_one_computed,
    memory_that_either_asks_for_comes_to_both, the_arena_outlives_its_maker_and_its_pins,
    pages_go_and_come_back_under_several_processes,
    a_stopped_process_holds_up_reclaim_and_nobody_else,
    one_that_leaves_drops_what_it_had_and_may_come_back,
    death_in_the_middle_of_everything_leaves_the_others_whole,
    a_prefix_outlives_who_computed_it_and_comes_back_from_the_host,
    another_tenant_cannot_tell_whether_there_is_an_arena, names_are_needed_and_taken_once,
    a_holder_that_says_nonsense_harms_nobody, holders_that_never_stop_asking_hold_up_nobody)
