/* Arenas with tables so large that to look at one, or to free it, takes the broker long. */
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/error.h"
#include "tests/integration/raw_arena.h"
#include "tests/unit/unit.h"

#define CHUNKS 1024U
#define PAGES_PER_CHUNK 4096U
#define PAGE (HARNESS_CHUNK / PAGES_PER_CHUNK)
#define TABLE_PAGES ((size_t) CHUNKS * PAGES_PER_CHUNK)

static struct harness harness;

static const char *const large_device[] = {"GMB_SIM_MEMORY=16G", "GMB_SIM_FILL=none", NULL};

/* MiB of the broker's that lie in tables and other files of memory. */
static unsigned long broker_shared_mib(void)
{
    char path[64], line[128];
    unsigned long kib = 0;
    FILE *file;

    (void) snprintf(path, sizeof(path), "/proc/%d/status", (int) harness.pid);
    file = fopen(path, "re");
    ck_assert_ptr_nonnull(file);
    while (fgets(line, sizeof(line), file) != NULL)
        (void) sscanf(line, "RssShmem: %lu", &kib);
    (void) fclose(file);
    return kib / 1024;
}

/* Attaches and leaves again, when there is a number; true if there was. */
static bool come_and_go(struct raw *raw)
{
    uint64_t id = raw_attach(raw, "kv");
    Gmb__BrokerMessage *message = raw_receive(raw);
    uint64_t lease = 0;

    ck_assert(message != NULL && message->id == id);
    if (message->body_case == GMB__BROKER_MESSAGE__BODY_ARENA_CREATED)
        lease = message->arena_created->lease;
    else
        ck_assert_uint_eq(message->error->status, GMB_STATUS_EXHAUSTED);
    frame_message_free(&message->base);
    fdset_close(&raw->fds);
    if (lease != 0)
        raw_expect_done(raw, raw_release(raw, lease));
    return lease != 0;
}

START_TEST(what_nobody_wrote_costs_the_broker_nothing_when_a_holder_leaves)
{
    uint64_t deadline = harness_now_ms() + 2 * HARNESS_DEADLINE_MS;
    struct raw_arena arena;
    struct raw raw, guest;
    unsigned long before;

    harness_start_with(&harness, NULL, large_device);
    raw_connect(&raw, &harness);
    raw_connect(&guest, &harness);
    raw_expect_arena(&raw, raw_share(&raw, "kv", PAGE, CHUNKS * HARNESS_CHUNK), &arena);
    before = broker_shared_mib();
    /* More often than there are numbers: those of the first have been forgotten then. */
    for (unsigned times = 0; times <= LIMIT_LEASE_HOLDERS; times += come_and_go(&guest)) {
        ck_assert_uint_lt(harness_now_ms(), deadline);
        harness_breathe();
    }
    ck_assert_uint_le(broker_shared_mib(), before + 16);
    raw_expect_done(&raw, raw_release(&raw, arena.lease));
    raw_arena_close(&arena);
    raw_close(&guest);
    raw_close(&raw);
    harness_stop(&harness);
}
END_TEST

static uint32_t chunk_state(const struct raw_arena *arena, uint32_t index)
{
    return __atomic_load_n(&arena->table.chunks[index].state, __ATOMIC_SEQ_CST);
}

/* The broker tells the pages of a chunk after it has answered for the chunk. */
static void await_state(const struct raw_arena *arena, uint32_t index, uint32_t state)
{
    uint64_t deadline = harness_now_ms() + 2 * HARNESS_DEADLINE_MS;

    while (chunk_state(arena, index) != state) {
        ck_assert_uint_lt(harness_now_ms(), deadline);
        harness_breathe();
    }
}

/* Fills every index, says that every page is allocated, and gives all back. Then the last index is
 * filled again at once. True if the answer came before all pages had been looked at. */
static bool round_trip(struct raw *raw, const struct raw_arena *arena)
{
    uint64_t id = raw_fill(raw, arena->lease, 0, CHUNKS, 0);
    bool early;

    raw_expect_fill(raw, id, 0, CHUNKS);
    raw_mapped(raw, arena->lease, 0, CHUNKS);
    for (size_t i = 0; i < TABLE_PAGES; i++)
        __atomic_store_n(&arena->table.pages[i].word, arena_word_make(ARENA_PAGE_RESIDENT, 0, 1, 1),
            __ATOMIC_RELAXED);
    raw_expect_done(raw, raw_return(raw, arena->lease, 0, CHUNKS));
    early = chunk_state(arena, CHUNKS - 1) == ARENA_CHUNK_CLOSED;
    id = raw_fill(raw, arena->lease, CHUNKS - 1, 1, UINT64_MAX);
    raw_mapped(raw, arena->lease, CHUNKS - 1, 1);
    raw_expect_fill(raw, id, CHUNKS - 1, 1);
    raw_mapped(raw, arena->lease, CHUNKS - 1, 1);
    await_state(arena, CHUNKS - 1, ARENA_CHUNK_LIVE);
    for (uint32_t i = 0; i + 1 < CHUNKS; i++)
        await_state(arena, i, ARENA_CHUNK_EMPTY);
    for (size_t i = 0; i < TABLE_PAGES; i++)
        ck_assert_int_eq(arena_word_state(arena->table.pages[i].word), ARENA_PAGE_LOST);
    raw_expect_done(raw, raw_return(raw, arena->lease, CHUNKS - 1, 1));
    await_state(arena, CHUNKS - 1, ARENA_CHUNK_EMPTY);
    return early;
}

START_TEST(a_return_of_everything_is_answered_before_every_page_was_looked_at)
{
    struct raw_arena arena;
    bool early = false;
    struct raw raw;

    harness_start_with(&harness, NULL, large_device);
    raw_connect(&raw, &harness);
    raw_expect_arena(&raw, raw_share(&raw, "kv", PAGE, CHUNKS * HARNESS_CHUNK), &arena);
    /* Where this process waits long for a processor, the broker may be through before it looks. */
    for (unsigned i = 0; i < 10 && !early; i++)
        early = round_trip(&raw, &arena);
    ck_assert(early);
    raw_expect_done(&raw, raw_release(&raw, arena.lease));
    raw_arena_close(&arena);
    raw_close(&raw);
    harness_stop(&harness);
}
END_TEST

/* ns that the broker's main thread has run, or all others together. */
static uint64_t run_ns(bool main_thread)
{
    uint64_t sum = 0;
    char path[64];
    DIR *tasks;

    (void) snprintf(path, sizeof(path), "/proc/%d/task", (int) harness.pid);
    tasks = opendir(path);
    ck_assert_ptr_nonnull(tasks);
    for (const struct dirent *task; (task = readdir(tasks)) != NULL;) {
        unsigned long long ns = 0;
        char name[256];
        FILE *file;

        if (task->d_name[0] == '.' || (atoi(task->d_name) == harness.pid) != main_thread)
            continue;
        (void) snprintf(name, sizeof(name), "%s/%.16s/schedstat", path, task->d_name);
        file = fopen(name, "re");
        if (file == NULL)
            continue;
        ck_assert_int_eq(fscanf(file, "%llu", &ns), 1);
        (void) fclose(file);
        sum += ns;
    }
    (void) closedir(tasks);
    return sum;
}

/* Has arenas whose tables it filled with memory, says so and waits for its end. */
static void spender(int ready)
{
    struct raw_arena arena;
    struct raw raw;

    (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
    raw_connect(&raw, &harness);
    raw_expect_arena(
        &raw, raw_arena_request(&raw, PAGE, HARNESS_CHUNK, CHUNKS * HARNESS_CHUNK), &arena);
    memset(arena.table.pages, 0, TABLE_PAGES * sizeof(arena.table.pages[0]));
    (void) !write(ready, "", 1);
    for (;;)
        (void) pause();
}

START_TEST(a_table_that_its_owner_filled_is_freed_by_another_thread_than_the_loops)
{
    uint64_t loop_ns, others_ns;
    int ready[2];
    char byte;
    pid_t pid;

    harness_start(&harness, NULL);
    ck_assert_int_eq(pipe(ready), 0);
    pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0)
        spender(ready[1]);
    ck_assert_int_eq(read(ready[0], &byte, 1), 1);
    loop_ns = run_ns(true);
    others_ns = run_ns(false);
    ck_assert_int_eq(kill(pid, SIGKILL), 0);
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
    harness_settle(&harness);
    /* It has 160 MiB to free; the loop only hears of a death. */
    for (uint64_t deadline = harness_now_ms() + HARNESS_DEADLINE_MS;
         run_ns(false) - others_ns <= run_ns(true) - loop_ns;) {
        ck_assert_uint_lt(harness_now_ms(), deadline);
        harness_breathe();
    }
    harness_stop(&harness);
}
END_TEST

UNIT_MAIN("integration_sharing_hostile",
    what_nobody_wrote_costs_the_broker_nothing_when_a_holder_leaves,
    a_return_of_everything_is_answered_before_every_page_was_looked_at,
    a_table_that_its_owner_filled_is_freed_by_another_thread_than_the_loops)
