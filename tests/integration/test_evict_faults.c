/* Movers and workers that die, stop or lie while pages move: nobody else notices. */
#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "tests/integration/orders.h"
#include "tests/integration/raw_arena.h"
#include "tests/integration/worker.h"
#include "tests/unit/unit.h"

#define PAGE (UINT64_C(64) << 10)
#define PER_CHUNK ((uint32_t) (HARNESS_CHUNK / PAGE))
#define MIB(n) ((uint64_t) (n) << 20)
#define BROKER HARNESS_BROKER "HostTier=256M\nMoverIdle=200ms\nRecallTimeout=300ms\n"
#define TENANTS "[Tenant high]\nUser=65534\nPriority=900\n[Tenant low]\nUser=*\nPriority=100\n"

/* The broker's child; 0 when it has none. */
static pid_t mover_pid(const struct harness *harness)
{
    char path[64];
    FILE *file;
    int pid = 0;

    (void) snprintf(
        path, sizeof(path), "/proc/%d/task/%d/children", (int) harness->pid, (int) harness->pid);
    file = fopen(path, "re");
    if (file == NULL)
        return 0;
    if (fscanf(file, "%d", &pid) != 1)
        pid = 0;
    (void) fclose(file);
    return pid;
}

START_TEST(a_mover_killed_again_and_again_loses_no_page)
{
    static struct pages pages;
    struct harness harness;
    unsigned killed = 0;

    harness_start(&harness, BROKER HARNESS_TENANT);
    pages_open(&pages, &harness, PAGE, HARNESS_CHUNK, MIB(128));
    pages_fill(&pages, 32 * PER_CHUNK);
    for (int round = 0; round < 5; round++) {
        uint64_t deadline = harness_now_ms() + HARNESS_DEADLINE_MS;
        pid_t first;

        (void) order_evict(&harness, "test", MIB(128));
        while ((first = mover_pid(&harness)) == 0 && harness_now_ms() < deadline)
            harness_breathe();
        /* At another point of its life in each round. */
        for (int i = 0; i < 4 * round; i++)
            harness_breathe();
        killed += kill(first, SIGKILL) == 0;
        pages_wait_evicted(&pages, 16 * PER_CHUNK);
        pages_check(&pages, 0, pages.count, 200);
    }
    ck_assert_uint_gt(killed, 0);
    pages_close(&pages);
    harness_stop(&harness);
}
END_TEST

START_TEST(a_worker_killed_while_it_is_emptied_leaves_nothing)
{
    struct harness harness;
    struct worker worker;

    harness_start(&harness, BROKER HARNESS_TENANT);
    for (int i = 0; i < 4; i++) {
        worker_start(&worker, &harness, PAGE, HARNESS_CHUNK, 32 * PER_CHUNK);
        (void) order_evict(&harness, "test", MIB(64));
        for (int k = 0; k < i; k++)
            harness_breathe();
        worker_end(&worker, SIGKILL);
    }
    harness_settle(&harness);
    harness_stop(&harness);
}
END_TEST

START_TEST(a_stopped_worker_is_passed_over_for_another)
{
    struct worker stopped, other;
    struct claimant claimant;
    struct harness harness;

    unit_need_root();
    harness_start(&harness, BROKER TENANTS);
    worker_start(&stopped, &harness, PAGE, HARNESS_CHUNK, 32 * PER_CHUNK);
    worker_start(&other, &harness, PAGE, HARNESS_CHUNK, 32 * PER_CHUNK);
    ck_assert_int_eq(kill(stopped.pid, SIGSTOP), 0);
    claimant_start(&claimant, &harness, HARNESS_MEMORY - MIB(128) + MIB(32), 15000);
    ck_assert_int_eq(claimant_answer(&claimant), GMB_STATUS_OK);
    claimant_end(&claimant);
    ck_assert_int_eq(kill(stopped.pid, SIGCONT), 0);
    ck_assert(worker_check(&other));
    ck_assert(worker_check(&stopped));
    worker_end(&other, 0);
    worker_end(&stopped, 0);
    harness_stop(&harness);
}
END_TEST

START_TEST(a_worker_that_keeps_what_was_recalled_is_killed_where_that_is_allowed)
{
    struct claimant claimant;
    struct harness harness;
    struct worker worker;

    unit_need_root();
    harness_start(&harness, BROKER "Kill=yes\n" TENANTS);
    worker_start(&worker, &harness, PAGE, HARNESS_CHUNK, 64 * PER_CHUNK);
    ck_assert_int_eq(kill(worker.pid, SIGSTOP), 0);
    claimant_start(&claimant, &harness, HARNESS_MEMORY - MIB(64), 15000);
    ck_assert_int_eq(claimant_answer(&claimant), GMB_STATUS_OK);
    ck_assert(harness_logged(&harness, "killed pid"));
    claimant_end(&claimant);
    worker_end(&worker, SIGKILL);
    harness_stop(&harness);
}
END_TEST

START_TEST(nobody_is_killed_where_it_is_not_allowed)
{
    struct claimant claimant;
    struct harness harness;
    struct worker worker;

    unit_need_root();
    harness_start(&harness, BROKER TENANTS);
    worker_start(&worker, &harness, PAGE, HARNESS_CHUNK, 64 * PER_CHUNK);
    ck_assert_int_eq(kill(worker.pid, SIGSTOP), 0);
    claimant_start(&claimant, &harness, HARNESS_MEMORY - MIB(64), 2000);
    ck_assert_int_eq(claimant_answer(&claimant), GMB_STATUS_TIMED_OUT);
    ck_assert(harness_logged(&harness, "isn't given back"));
    claimant_end(&claimant);
    ck_assert_int_eq(kill(worker.pid, SIGCONT), 0);
    ck_assert(worker_check(&worker));
    worker_end(&worker, 0);
    harness_stop(&harness);
}
END_TEST

/* ------------------------------------------------------------------ tables full of nonsense */

static uint64_t random_next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Writes over every kind of field of the table, header included. */
static void table_spoil(const struct raw_arena *arena, uint64_t *state)
{
    const struct arena_table *table = &arena->table;

    switch (random_next(state) % 5) {
    case 0:
        table->pages[random_next(state) % table->page_count].word = random_next(state);
        break;
    case 1: /* states that exist, pins and references at random */
        table->pages[random_next(state) % table->page_count].word =
            arena_word_make((enum arena_page_state)(random_next(state) % ARENA_PAGE_STATE_MAX),
                random_next(state) % 2, random_next(state) % 3, (uint32_t) random_next(state) % 4);
        break;
    case 2:
        table->chunks[random_next(state) % table->layout.max_chunks].state =
            (uint32_t) random_next(state) % 5;
        break;
    case 3:
        ((uint64_t *) arena->memory)[random_next(state) % (arena->bytes / sizeof(uint64_t))] =
            random_next(state);
        break;
    default:
        table->free[random_next(state) % (table->layout.max_chunks * table->layout.free_words)] =
            random_next(state);
        break;
    }
}

static void pages_claim(const struct raw_arena *arena)
{
    for (uint32_t i = 0; i < arena->table.layout.max_chunks; i++)
        arena->table.chunks[i].state = ARENA_CHUNK_LIVE;
    for (uint32_t i = 0; i < arena->table.page_count; i++)
        arena->table.pages[i].word = arena_word_make(ARENA_PAGE_RESIDENT, 0, 1, 1);
}

/* Reads whatever came, so that the broker doesn't drop it for not reading. */
static void answers_drop(struct raw *raw)
{
    struct fdset fds = FDSET_EMPTY;
    const uint8_t *bytes;
    size_t size;

    while (conn_receive(raw->conn, &bytes, &size, &fds) == 0)
        fdset_close(&fds);
    (void) !conn_flush(raw->conn);
}

START_TEST(a_table_of_nonsense_harms_its_owner_alone)
{
    static struct pages pages;
    struct harness harness;
    struct raw_arena arena;
    struct raw raw;
    uint64_t state = 88172645463325252u;
    Gmb__TenantDevice tenant;

    harness_start(&harness, BROKER HARNESS_TENANT);
    pages_open(&pages, &harness, PAGE, HARNESS_CHUNK, MIB(64));
    pages_fill(&pages, 8 * PER_CHUNK);
    raw_connect(&raw, &harness);
    raw_expect_arena(&raw, raw_arena_request(&raw, PAGE, HARNESS_CHUNK, 8 * HARNESS_CHUNK), &arena);
    for (int round = 0; round < 40; round++) {
        uint32_t wanted[64];

        raw_expect_end_of(&raw, raw_fill(&raw, arena.lease, 0, 8, 0));
        raw_mapped(&raw, arena.lease, 0, 8);
        pages_claim(&arena);
        (void) order_evict(&harness, "test", MIB(64));
        for (int i = 0; i < 2000; i++)
            table_spoil(&arena, &state);
        for (size_t i = 0; i < ARRAY_SIZE(wanted); i++)
            wanted[i] = (uint32_t) (random_next(&state) % (arena.table.page_count + 2));
        raw_want(&raw, arena.lease, wanted, ARRAY_SIZE(wanted));
        answers_drop(&raw);
        raw_tenant(&harness, "test", &tenant); /* the broker lives, and answers */
        pages_check(&pages, 0, pages.count, 64);
        for (uint32_t i = 0; round % 2 == 1 && i < 8; i++)
            raw_expect_end_of(&raw, raw_return(&raw, arena.lease, i, 1));
    }
    raw_expect_end_of(&raw, raw_release(&raw, arena.lease));
    raw_arena_close(&arena);
    raw_close(&raw);
    pages_close(&pages);
    harness_stop(&harness);
}
END_TEST

UNIT_MAIN("evict_faults", a_mover_killed_again_and_again_loses_no_page,
    a_worker_killed_while_it_is_emptied_leaves_nothing, a_stopped_worker_is_passed_over_for_another,
    a_worker_that_keeps_what_was_recalled_is_killed_where_that_is_allowed,
    nobody_is_killed_where_it_is_not_allowed, a_table_of_nonsense_harms_its_owner_alone)
