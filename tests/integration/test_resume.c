/* A broker that is killed, its successor, and clients that come back to it. */
#include <signal.h>
#include <string.h>
#include <sys/wait.h>

#include "tests/integration/holder.h"
#include "tests/integration/raw_arena.h"
#include "tests/unit/unit.h"

#define CHUNK HARNESS_CHUNK

static Gmb__TenantDevice use(const struct harness *harness)
{
    Gmb__TenantDevice device;

    raw_tenant(harness, "test", &device);
    return device;
}

/* A broker under a keeper, and a client of it with a lease of so many chunks. */
static uint64_t begin(struct harness *harness, struct raw *raw, uint32_t chunks)
{
    harness_start_kept(harness, NULL, NULL);
    raw_connect(raw, harness);
    return raw_expect_lease(raw, raw_lease(raw, chunks * CHUNK, CHUNK, 0), chunks);
}

/* The broker is killed, and the client comes back to its successor. */
static void kill_and_come_back(struct harness *harness, struct raw *raw)
{
    harness_succeed(harness, SIGKILL);
    ck_assert(raw_come_back(raw, harness));
}

static void end(struct harness *harness, struct raw *raw)
{
    raw_close(raw);
    harness_stop(harness);
}

START_TEST(a_lease_outlives_the_broker_and_its_client_goes_on)
{
    uint8_t token[16];
    struct harness harness;
    struct raw raw;
    uint64_t lease;

    lease = begin(&harness, &raw, 4);
    memcpy(token, raw.token, sizeof(token));
    for (unsigned i = 0; i < 3; i++) {
        harness_succeed(&harness, SIGKILL);
        ck_assert_uint_eq(use(&harness).leased_bytes, 4 * CHUNK);
        ck_assert(raw_come_back(&raw, &harness));
        ck_assert_mem_eq(raw.token, token, sizeof(token));
        ck_assert_uint_eq(raw_resume_one(&raw, lease, 4), 0);
    }
    raw_expect_done(&raw, raw_shrink(&raw, lease, 3));
    ck_assert_uint_eq(raw_expect_lease(&raw, raw_grow(&raw, lease, 2 * CHUNK), 5), lease);
    ck_assert_uint_eq(use(&harness).leased_bytes, 5 * CHUNK);
    raw_expect_done(&raw, raw_release(&raw, lease));
    end(&harness, &raw);
}
END_TEST

START_TEST(what_the_client_never_saw_is_taken_back)
{
    struct harness harness;
    struct raw raw;
    uint64_t lease;

    harness_start_kept(&harness, HARNESS_TENANT, NULL);
    raw_connect(&raw, &harness);
    lease = raw_expect_lease(&raw, raw_lease(&raw, 4 * CHUNK, CHUNK, 0), 4);
    (void) raw_expect_lease(&raw, raw_lease(&raw, 3 * CHUNK, CHUNK, 0), 3);
    kill_and_come_back(&harness, &raw);
    /* Of the first it has two chunks, of the second it knows nothing. */
    ck_assert_uint_eq(raw_resume_one(&raw, lease, 2), 0);
    ck_assert_uint_eq(use(&harness).leased_bytes, 2 * CHUNK);
    ck_assert_uint_eq(use(&harness).cached_bytes, 5 * CHUNK);
    /* It asks again and has it once. */
    (void) raw_expect_lease(&raw, raw_lease(&raw, 3 * CHUNK, CHUNK, 0), 3);
    ck_assert_uint_eq(use(&harness).leased_bytes, 5 * CHUNK);
    ck_assert_uint_eq(use(&harness).cached_bytes, 2 * CHUNK);
    raw_close(&raw);
    harness_discard(&harness);
}
END_TEST

START_TEST(what_was_done_before_is_done)
{
    struct harness harness;
    struct raw raw;
    uint64_t lease;

    lease = begin(&harness, &raw, 4);
    kill_and_come_back(&harness, &raw);
    ck_assert_uint_eq(raw_resume_one(&raw, lease, 2), 0);
    raw_expect_done(&raw, raw_shrink(&raw, lease, 2));
    raw_expect_done(&raw, raw_release(&raw, lease));
    raw_expect_done(&raw, raw_release(&raw, lease));
    end(&harness, &raw);
}
END_TEST

START_TEST(before_it_has_said_what_it_has_a_client_asks_nothing)
{
    struct harness harness;
    struct raw raw;

    (void) begin(&harness, &raw, 1);
    kill_and_come_back(&harness, &raw);
    raw_expect_error(&raw, raw_lease(&raw, CHUNK, CHUNK, 0), GMB_STATUS_PROTOCOL);
    raw_expect_end(&raw);
    /* It may come again. */
    ck_assert(raw_come_back(&raw, &harness));
    ck_assert_uint_eq(raw_resume(&raw, NULL, 0, true), 0);
    ck_assert_uint_eq(use(&harness).leased_bytes, 0);
    end(&harness, &raw);
}
END_TEST

START_TEST(a_lease_that_never_was_is_lost)
{
    struct harness harness;
    struct raw raw;
    uint64_t lease;

    lease = begin(&harness, &raw, 2);
    kill_and_come_back(&harness, &raw);
    ck_assert_uint_eq(raw_resume_one(&raw, lease + 1, 2), 1);
    end(&harness, &raw);
}
END_TEST

/* A child that uses the token of its parent. */
static bool child_resumes(const struct raw *raw, const struct harness *harness)
{
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        struct raw own = {.next_id = 100};

        memcpy(own.token, raw->token, sizeof(own.token));
        _exit(raw_come_back(&own, harness) ? 1 : 0);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFEXITED(status));
    return WEXITSTATUS(status) != 0;
}

START_TEST(a_token_is_good_for_its_own_process_alone)
{
    struct harness harness;
    struct raw raw;
    uint64_t lease;

    lease = begin(&harness, &raw, 2);
    ck_assert(!child_resumes(&raw, &harness));
    harness_succeed(&harness, SIGKILL);
    ck_assert(!child_resumes(&raw, &harness));
    ck_assert_uint_eq(use(&harness).leased_bytes, 2 * CHUNK);
    ck_assert(raw_come_back(&raw, &harness));
    ck_assert_uint_eq(raw_resume_one(&raw, lease, 2), 0);
    raw_expect_done(&raw, raw_release(&raw, lease));
    /* Nor is one that was guessed. */
    raw.token[15] ^= 1;
    ck_assert(!raw_come_back(&raw, &harness));
    end(&harness, &raw);
}
END_TEST

START_TEST(who_died_meanwhile_is_dead_and_who_dies_later_too)
{
    struct harness harness;
    uint8_t token[16];
    pid_t one, other;

    harness_start_kept(&harness, NULL, NULL);
    one = holder_start(&harness, holder_take_lease, token, sizeof(token));
    other = holder_start(&harness, holder_take_lease, token, sizeof(token));
    /* Both at once: the broker's successor can't have seen it. */
    ck_assert_int_eq(kill(harness.keeper, SIGSTOP), 0);
    ck_assert_int_eq(kill(harness.pid, SIGKILL), 0);
    holder_kill(one);
    ck_assert_int_eq(kill(harness.keeper, SIGCONT), 0);
    harness_succeed(&harness, 0);
    ck_assert_uint_eq(use(&harness).leased_bytes, HOLDER_CHUNKS * CHUNK);
    holder_kill(other);
    harness_stop(&harness);
}
END_TEST

START_TEST(a_client_whose_connection_broke_comes_back_to_the_same_broker)
{
    struct harness harness;
    struct raw raw;
    uint64_t lease;

    harness_start(&harness, NULL);
    raw_connect(&raw, &harness);
    lease = raw_expect_lease(&raw, raw_lease(&raw, 2 * CHUNK, CHUNK, 0), 2);
    ck_assert(raw_come_back(&raw, &harness));
    ck_assert_uint_eq(raw_resume_one(&raw, lease, 2), 0);
    raw_expect_done(&raw, raw_shrink(&raw, lease, 1));
    /* One that holds nothing is a new one. */
    raw_expect_done(&raw, raw_release(&raw, lease));
    ck_assert(!raw_come_back(&raw, &harness));
    end(&harness, &raw);
}
END_TEST

static uint32_t clients(const struct harness *harness)
{
    Gmb__ControlReply *reply = raw_status(harness);
    uint32_t count = reply->status->clients;

    frame_message_free(&reply->base);
    return count;
}

START_TEST(who_holds_nothing_and_stays_away_is_let_go_after_a_restart)
{
    struct harness harness;
    struct raw raw, idle, late;
    uint64_t lease;

    lease = begin(&harness, &raw, 2);
    raw_connect(&idle, &harness);
    raw_connect(&late, &harness);
    harness_succeed(&harness, SIGKILL);
    ck_assert_uint_eq(clients(&harness), 3);
    ck_assert(raw_come_back(&idle, &harness));
    ck_assert_uint_eq(raw_resume(&idle, NULL, 0, true), 0);
    /* The process lives, and says nothing. */
    wait_until(clients(&harness) == 2);
    ck_assert_uint_eq(use(&harness).leased_bytes, 2 * CHUNK);
    ck_assert(!raw_come_back(&late, &harness));
    ck_assert(raw_come_back(&raw, &harness));
    ck_assert_uint_eq(raw_resume_one(&raw, lease, 2), 0);
    ck_assert_uint_eq(clients(&harness), 3);
    raw_expect_done(&raw, raw_release(&raw, lease));
    raw_close(&idle);
    raw_close(&late);
    end(&harness, &raw);
}
END_TEST

/* Says that it has the first `count` indices of one arena and nothing else; how many are lost. */
static size_t resume_arena(struct raw *raw, uint64_t lease, uint32_t count)
{
    uint32_t runs[] = {0, count};
    Gmb__HeldLease held, *pointer = &held;

    gmb__held_lease__init(&held);
    held.lease = lease;
    held.runs = runs;
    held.n_runs = ARRAY_SIZE(runs);
    return raw_resume(raw, &pointer, 1, true);
}

START_TEST(an_arena_goes_on_with_the_same_broker_and_with_the_next)
{
    struct raw_arena arena;
    struct harness harness;
    struct raw raw;

    harness_start_kept(&harness, NULL, NULL);
    raw_connect(&raw, &harness);
    raw_expect_arena(&raw, raw_arena_request(&raw, 65536, CHUNK, 8 * CHUNK), &arena);
    raw_expect_fill(&raw, raw_fill(&raw, arena.lease, 0, 4, 0), 0, 4);
    /* It says that it has three of four: one is taken back. */
    ck_assert(raw_come_back(&raw, &harness));
    ck_assert_uint_eq(resume_arena(&raw, arena.lease, 3), 0);
    ck_assert_uint_eq(use(&harness).leased_bytes, 3 * CHUNK);
    raw_expect_done(&raw, raw_return(&raw, arena.lease, 3, 1)); /* as it is already */
    raw_expect_done(&raw, raw_return(&raw, arena.lease, 2, 1));
    harness_succeed(&harness, SIGKILL);
    ck_assert_uint_eq(use(&harness).leased_bytes, 2 * CHUNK);
    ck_assert(raw_come_back(&raw, &harness));
    ck_assert_uint_eq(resume_arena(&raw, arena.lease, 2), 0);
    raw_expect_fill(&raw, raw_fill(&raw, arena.lease, 2, 2, 0), 2, 2);
    ck_assert_uint_eq(use(&harness).leased_bytes, 4 * CHUNK);
    raw_expect_done(&raw, raw_release(&raw, arena.lease));
    ck_assert_uint_eq(use(&harness).leased_bytes, 0);
    raw_arena_close(&arena);
    end(&harness, &raw);
}
END_TEST

START_TEST(a_holder_of_a_shared_arena_comes_back_to_what_it_missed)
{
    struct raw_arena arena, copy;
    struct harness harness;
    struct raw raw, other;

    harness_start(&harness, NULL);
    raw_connect(&raw, &harness);
    raw_connect(&other, &harness);
    raw_expect_arena(&raw, raw_share(&raw, "kv", 65536, 8 * CHUNK), &arena);
    raw_expect_arena(&other, raw_attach(&other, "kv"), &copy);
    raw_ready(&other, copy.lease);
    /* It hears of the first two, and not of those that follow. */
    raw_expect_fill(&raw, raw_fill(&raw, arena.lease, 0, 2, 0), 0, 2);
    raw_expect_fill(&other, 0, 0, 2);
    raw_close(&other);
    raw_expect_fill(&raw, raw_fill(&raw, arena.lease, 2, 2, 0), 2, 2);
    ck_assert(raw_come_back(&other, &harness));
    ck_assert_uint_eq(resume_arena(&other, copy.lease, 1), 0);
    raw_expect_fill(&other, 0, 1, 3);
    ck_assert_uint_eq(use(&harness).leased_bytes, 4 * CHUNK);
    /* All of it is the other's as well: nothing comes back when the first lets go. */
    raw_expect_done(&raw, raw_release(&raw, arena.lease));
    ck_assert_uint_eq(use(&harness).leased_bytes, 4 * CHUNK);
    raw_expect_done(&other, raw_return(&other, copy.lease, 0, 4));
    ck_assert_uint_eq(use(&harness).leased_bytes, 0);
    raw_expect_done(&other, raw_release(&other, copy.lease));
    raw_arena_close(&arena);
    raw_arena_close(&copy);
    raw_close(&raw);
    raw_close(&other);
    harness_stop(&harness);
}
END_TEST

START_TEST(fds_and_memory_are_as_they_were_after_many_restarts)
{
    struct harness harness;
    struct raw raw;

    harness_start_kept(&harness, NULL, NULL);
    for (unsigned i = 0; i < 4; i++) {
        raw_connect(&raw, &harness);
        (void) raw_expect_lease(&raw, raw_lease(&raw, 64 * CHUNK, CHUNK, 0), 64);
        kill_and_come_back(&harness, &raw);
        ck_assert_uint_eq(raw_resume(&raw, NULL, 0, true), 0);
        raw_close(&raw);
        harness_settle(&harness);
    }
    harness_stop(&harness);
}
END_TEST

UNIT_MAIN("resume", a_lease_outlives_the_broker_and_its_client_goes_on,
    what_the_client_never_saw_is_taken_back, what_was_done_before_is_done,
    before_it_has_said_what_it_has_a_client_asks_nothing, a_lease_that_never_was_is_lost,
    a_token_is_good_for_its_own_process_alone, who_died_meanwhile_is_dead_and_who_dies_later_too,
    a_client_whose_connection_broke_comes_back_to_the_same_broker,
    who_holds_nothing_and_stays_away_is_let_go_after_a_restart,
    an_arena_goes_on_with_the_same_broker_and_with_the_next,
    a_holder_of_a_shared_arena_comes_back_to_what_it_missed,
    fds_and_memory_are_as_they_were_after_many_restarts)
