/*
 * A worker that writes nonsense into its page table, and sends nonsense about it, while an operator
 * moves its memory and the mover dies: its own pages are lost, nobody else's, and the broker is
 * afterwards as it was.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/integration/orders.h"
#include "tests/integration/pages.h"
#include "tests/integration/raw_arena.h"
#include "tests/unit/unit.h"

#define PAGE (UINT64_C(64) << 10)
#define PER_CHUNK ((uint32_t) (HARNESS_CHUNK / PAGE))
#define MIB(n) ((uint64_t) (n) << 20)
#define BROKER HARNESS_BROKER "HostTier=256M\nMoverIdle=200ms\nRecallTimeout=50ms\n"

/* The attacker's arena: small pages, so that there is much to say about each chunk. */
#define SMALL (UINT64_C(4) << 10)
#define CHUNKS 64u
#define NOBODY 65534

static uint64_t random_next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* ------------------------------------------------------------------ the attacker */

struct noise {
    struct raw_arena *arena;
    atomic_bool end;
    uint64_t seed;
};

/* What the broker is in the middle of becomes something else, of this generation or the next. */
static void page_play(uint64_t *word, uint64_t value)
{
    uint64_t was = __atomic_load_n(word, __ATOMIC_SEQ_CST);
    enum arena_page_state state = arena_word_state(was);
    uint32_t generation = arena_word_generation(was) + (uint32_t) (value >> 16 & 1);

    if (state == ARENA_PAGE_FREE || state == ARENA_PAGE_LOST)
        state = ARENA_PAGE_RESIDENT;
    else if (state != ARENA_PAGE_RESIDENT || value % 8 == 0)
        state = (enum arena_page_state)(value % ARENA_PAGE_STATE_MAX);
    __atomic_store_n(
        word, arena_word_make(state, 0, (uint32_t) (value >> 8 & 3), generation), __ATOMIC_SEQ_CST);
}

/* Some writes are what a worker might do at the wrong time, some are anything. */
static void noise_write(struct raw_arena *arena, uint64_t *seed)
{
    const struct arena_table *table = &arena->table;
    uint64_t value = random_next(seed);
    uint32_t number = (uint32_t) (random_next(seed) % table->page_count);
    uint64_t *word = &table->pages[number].word;

    switch (value >> 60) {
    case 0:
        ((uint8_t *) arena->memory)[random_next(seed) % arena->bytes] = (uint8_t) value;
        break;
    case 1:
        __atomic_store_n(word, random_next(seed), __ATOMIC_SEQ_CST);
        break;
    case 2:
        table->pages[number].flags = (uint32_t) value;
        table->pages[number].last_use = (uint32_t) (value >> 8);
        table->chunks[number % CHUNKS].last_use = (uint32_t) (value >> 16);
        break;
    case 3:
    case 4:
        __atomic_store_n(
            &table->chunks[number % CHUNKS].state, (uint32_t) (value % 5), __ATOMIC_SEQ_CST);
        break;
    case 5:
        arena_table_free(table, number % CHUNKS)[0] = value;
        break;
    case 6:
    case 7:
    case 8:
        __atomic_store_n(&table->chunks[number % CHUNKS].state, ARENA_CHUNK_LIVE, __ATOMIC_SEQ_CST);
        break;
    default:
        page_play(word, value);
    }
}

static void *noise_run(void *data)
{
    struct noise *noise = data;
    bool mad = noise->seed % 4 == 0; /* else there is something to move at times */

    while (!atomic_load(&noise->end)) {
        for (int i = 0; i < 64; i++)
            noise_write(noise->arena, &noise->seed);
        if (!mad)
            harness_breathe();
    }
    return NULL;
}

/* Every page in use: what an operator may take. */
static void pages_claim(const struct raw_arena *arena)
{
    for (uint32_t i = 0; i < CHUNKS; i++)
        __atomic_store_n(&arena->table.chunks[i].state, ARENA_CHUNK_LIVE, __ATOMIC_SEQ_CST);
    for (uint32_t i = 0; i < arena->table.page_count; i++)
        __atomic_store_n(&arena->table.pages[i].word, arena_word_make(ARENA_PAGE_RESIDENT, 0, 1, 1),
            __ATOMIC_SEQ_CST);
}

static bool answers_drop(struct raw *raw)
{
    const uint8_t *bytes;
    size_t size;
    int r;

    while ((r = conn_receive(raw->conn, &bytes, &size, &raw->fds)) == 0)
        fdset_close(&raw->fds);
    return r == -EAGAIN;
}

static void nonsense_say(struct raw *raw, const struct raw_arena *arena, uint64_t *seed)
{
    uint32_t pages[LIMIT_WANT_PAGES], first = (uint32_t) (random_next(seed) % (CHUNKS + 2));
    uint32_t count = (uint32_t) (random_next(seed) % CHUNKS) + 1;

    switch (random_next(seed) % 8) {
    case 0:
    case 1:
        (void) raw_fill(raw, arena->lease, first, count, 0);
        break;
    case 2:
        (void) raw_return(raw, arena->lease, first, count % 4 + 1);
        break;
    case 3:
        raw_mapped(raw, arena->lease, first, random_next(seed) % 2 == 0 ? count : UINT32_MAX);
        break;
    case 4:
        pages_claim(arena);
        break;
    case 5:
    case 6:
        for (size_t i = 0; i < ARRAY_SIZE(pages); i++)
            pages[i] = (uint32_t) (random_next(seed) % (arena->table.page_count + 100));
        raw_want(raw, arena->lease, pages, ARRAY_SIZE(pages));
        break;
    default:
        raw_mapped(raw, arena->lease, 0, CHUNKS);
    }
}

static void connection_attack(const struct harness *harness, uint64_t *seed, int ready)
{
    struct raw_arena arena;
    struct noise noise = {.arena = &arena};
    pthread_t thread;
    struct raw raw;

    raw_connect(&raw, harness);
    raw_expect_arena(
        &raw, raw_arena_request(&raw, SMALL, HARNESS_CHUNK, CHUNKS * HARNESS_CHUNK), &arena);
    (void) raw_fill(&raw, arena.lease, 0, CHUNKS, 0);
    pages_claim(&arena);
    (void) !write(ready, "", 1);
    noise.seed = random_next(seed);
    ck_assert_int_eq(pthread_create(&thread, NULL, noise_run, &noise), 0);
    /* Until it is killed; one in two ends by itself before that. */
    for (uint64_t left = random_next(seed) % 2 == 0 ? random_next(seed) % 400 : UINT64_MAX;
         left > 0 && answers_drop(&raw); left--) {
        if (!conn_wants_write(raw.conn))
            nonsense_say(&raw, &arena, seed);
        else
            (void) !conn_flush(raw.conn);
        harness_breathe();
    }
    (void) raw_release(&raw, arena.lease);
    atomic_store(&noise.end, true);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    raw_arena_close(&arena);
    raw_close(&raw);
}

/* A process of its own, killed in the middle of it. */
static pid_t attacker_start(const struct harness *harness, uint64_t seed)
{
    int ready[2];
    pid_t pid;
    char byte;

    ck_assert_int_eq(pipe(ready), 0);
    pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid > 0) {
        (void) close(ready[1]);
        ck_assert_int_eq(read(ready[0], &byte, 1), 1);
        (void) close(ready[0]);
        return pid;
    }
    (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (geteuid() == 0 && (setgid(NOBODY) < 0 || setuid(NOBODY) < 0))
        _exit(1);
    connection_attack(harness, &seed, ready[1]);
    _exit(0);
}

/* ------------------------------------------------------------------ everybody else */

/* The broker's mover, if one runs. */
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

static void operator_turn(struct harness *harness, const char *evil, uint64_t *seed)
{
    static const char *const most[] = {"0", "32M", "64M", "infinity"};
    uint64_t value = random_next(seed);
    pid_t mover;

    switch (value >> 8 & 7) {
    case 0:
        (void) order_dry_run(harness, evil, MIB(4096), true);
        break;
    case 1:
        (void) raw_set(harness, evil, "HostMax", most[value >> 16 & 3]);
        break;
    case 2:
        mover = mover_pid(harness);
        if (mover > 0)
            (void) kill(mover, SIGKILL);
        break;
    case 3:
        (void) order_drain(harness, false);
        (void) order_drain(harness, true);
        break;
    default:
        (void) order_evict(harness, evil, MIB(value >> 16 & 127) + 1);
    }
}

/* How long an innocent question takes, in microseconds. */
static uint64_t round_trip(struct raw *raw)
{
    struct timespec before, after;
    Gmb__BrokerMessage *message;

    (void) clock_gettime(CLOCK_MONOTONIC, &before);
    (void) raw_release(raw, 1);
    message = raw_receive(raw);
    ck_assert_ptr_nonnull(message);
    frame_message_free(&message->base);
    (void) clock_gettime(CLOCK_MONOTONIC, &after);
    return (uint64_t) (after.tv_sec - before.tv_sec) * 1000000 + (uint64_t) (after.tv_nsec / 1000) -
           (uint64_t) (before.tv_nsec / 1000);
}

static void storm(struct harness *harness, const char *evil, unsigned attackers, uint64_t ms)
{
    static struct pages pages;
    uint64_t seed = 88172645463325252, until, longest = 0, turns = 0;
    const char *given = getenv("ARENA_HOSTILE_SEED");
    pid_t pids[8];
    struct raw raw;

    seed += given != NULL ? strtoull(given, NULL, 0) * 1000003 : 0;
    pages_open(&pages, harness, PAGE, HARNESS_CHUNK, MIB(64));
    pages_fill(&pages, 8 * PER_CHUNK);
    raw_connect(&raw, harness);
    for (unsigned i = 0; i < attackers; i++)
        pids[i] = attacker_start(harness, random_next(&seed) | 1);
    until = harness_now_ms() + ms;
    while (harness_now_ms() < until) {
        unsigned who = (unsigned) (random_next(&seed) % attackers);

        operator_turn(harness, evil, &seed);
        for (int i = 0; i < 4; i++)
            longest = MAX(longest, round_trip(&raw));
        if (turns % 8 == 0)
            (void) order_evict(harness, "test", MIB(8));
        if (turns++ % 16 == 0)
            pages_check(&pages, 0, pages.count, 5);
        if (random_next(&seed) % 16 == 0) {
            ck_assert_int_eq(kill(pids[who], SIGKILL), 0);
            ck_assert_int_eq(waitpid(pids[who], NULL, 0), pids[who]);
            pids[who] = attacker_start(harness, random_next(&seed) | 1);
        }
    }
    for (unsigned i = 0; i < attackers; i++) {
        ck_assert_int_eq(kill(pids[i], SIGKILL), 0);
        ck_assert_int_eq(waitpid(pids[i], NULL, 0), pids[i]);
    }
    pages_check(&pages, 0, pages.count, pages.count);
    if (getenv("ARENA_HOSTILE_MS") != NULL)
        (void) fprintf(stderr, "# %llu turns, longest round trip %llu us\n",
            (unsigned long long) turns, (unsigned long long) longest);
    ck_assert_uint_lt(longest, 5000000);
    raw_close(&raw);
    pages_close(&pages);
}

START_TEST(tables_full_of_noise_harm_only_their_owner)
{
    const char *ms = getenv("ARENA_HOSTILE_MS");
    struct harness harness;

    unit_need_root();
    harness_start(
        &harness, BROKER "[Tenant evil]\nUser=65534\nHostMax=64M\n[Tenant test]\nUser=*\n");
    storm(&harness, "evil", 3, ms != NULL ? strtoull(ms, NULL, 10) : 4000);
    harness_stop(&harness);
}
END_TEST

static void *mover_kill_run(void *data)
{
    struct harness *harness = data;
    uint64_t until = harness_now_ms() + HARNESS_DEADLINE_MS;
    pid_t last = 0;

    for (int kills = 0; kills < 7 && harness_now_ms() < until;) {
        pid_t pid = mover_pid(harness);

        if (pid > 0 && pid != last) {
            /* Later each time: before it is ready, while it maps, while it copies. */
            for (int i = 0; i < kills; i++)
                harness_breathe();
            kills += kill(pid, SIGKILL) == 0;
            last = pid;
        }
        harness_breathe();
    }
    return NULL;
}

START_TEST(a_mover_killed_again_and_again_loses_no_page)
{
    static struct pages pages;
    struct harness harness;
    pthread_t thread;

    harness_start(&harness, BROKER HARNESS_TENANT);
    pages_open(&pages, &harness, PAGE, HARNESS_CHUNK, MIB(128));
    pages_fill(&pages, 32 * PER_CHUNK);
    ck_assert_uint_ge(order_evict(&harness, "test", MIB(64)), MIB(64));
    pages_wait_evicted(&pages, 31 * PER_CHUNK);
    ck_assert_int_eq(pthread_create(&thread, NULL, mover_kill_run, &harness), 0);
    pages_check(&pages, 0, pages.count, pages.count);
    ck_assert_int_eq(pthread_cancel(thread), 0);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    pages_close(&pages);
    harness_stop(&harness);
}
END_TEST

/* The open file is the client's as well: it may fill what can be filled and let writers wait. */
START_TEST(an_arenas_fd_cannot_be_made_to_hold_up_the_broker)
{
    const uint64_t most = UINT64_MAX - 1;
    struct harness harness;
    struct raw_arena arena;
    struct raw raw;
    uint32_t page = 0;

    harness_start(&harness, BROKER HARNESS_TENANT);
    raw_connect(&raw, &harness);
    raw_expect_arena(&raw, raw_arena_request(&raw, PAGE, HARNESS_CHUNK, MIB(64)), &arena);
    ck_assert_int_eq(fcntl(arena.event_fd, F_SETFL, O_NONBLOCK), 0);
    (void) !write(arena.event_fd, &most, sizeof(most));
    ck_assert_int_eq(fcntl(arena.event_fd, F_SETFL, 0), 0);
    /* Each is answered through the fd; that the broker lives on the fill says. */
    raw_want(&raw, arena.lease, &page, 1);
    raw_want(&raw, arena.lease, &page, 1);
    raw_expect_fill(
        &raw, raw_fill(&raw, arena.lease, 0, 1, HARNESS_DEADLINE_MS * UINT64_C(1000000)), 0, 1);
    raw_expect_done(&raw, raw_release(&raw, arena.lease));
    raw_arena_close(&arena);
    raw_close(&raw);
    harness_stop(&harness);
}
END_TEST

UNIT_MAIN("arena_hostile", an_arenas_fd_cannot_be_made_to_hold_up_the_broker,
    a_mover_killed_again_and_again_loses_no_page, tables_full_of_noise_harm_only_their_owner)
