/*
 * Processes allocate, reference, pin, check and free pages of one arena, several threads in each,
 * and are killed at any instruction. A broker (the test itself) moves pages that aren't pinned and
 * forgets what the dead had. Each survivor finds its own pages as it wrote them; in the end nothing
 * of the dead is left, every page is free and every token in its place.
 */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "client/arena_prefix.h"
#include "tests/arena/bed.h"
#include "tests/unit/unit.h"

#define PROCESSES 3u
#define THREADS 2u
#define CHUNKS 4u
#define PER_CHUNK 24u
#define PAGES (CHUNKS * PER_CHUNK)
#define HELD 8u
#define DEATHS 24u
#define LIFE_NS (3 * NSEC_PER_MSEC)
#define PATIENCE_NS (60 * NSEC_PER_SEC)

/* What the processes share beside the table. */
struct board {
    uint64_t bytes[PAGES];     /* of each page: who wrote it */
    uint32_t given[PROCESSES]; /* a page, + 1, that a process lets others look at */
    uint64_t key[PROCESSES];   /* under which it published one whose bytes are that */
    _Atomic uint64_t rounds[PROCESSES];
    _Atomic uint32_t failures;
    _Atomic bool over;
};

static struct bed bed, mine;
static struct board *board;
static unsigned number;

static void expect(bool condition)
{
    if (!condition)
        atomic_fetch_add(&board->failures, 1);
}

static uint64_t byte_read(uint32_t page)
{
    return __atomic_load_n(&board->bytes[page], __ATOMIC_RELAXED);
}

/* Pins it, looks whether it is as it was written, unpins it. */
static void page_check(uint32_t page, uint64_t value)
{
    enum arena_op op = arena_pages_pin(mine.table, 1, &page, 1);

    if (op == ARENA_OP_LOST)
        return;
    expect(op == ARENA_OP_OK || op == ARENA_OP_WAITING);
    while (op == ARENA_OP_WAITING) {
        (void) sched_yield();
        op = arena_pages_ready(mine.table, 1, &page);
    }
    if (op == ARENA_OP_OK)
        expect(byte_read(page) == value);
    expect(arena_pages_unpin(mine.table, 1, &page) == ARENA_OP_OK);
}

/* A page that another process has: it may be gone, or be one of its later ones. */
static void page_borrow(uint64_t random)
{
    uint32_t given = __atomic_load_n(&board->given[random % PROCESSES], __ATOMIC_RELAXED), page;

    if (given == 0)
        return;
    page = given - 1;
    if (arena_pages_ref(mine.table, 1, &page) != ARENA_OP_OK)
        return;
    if (arena_pages_pin(mine.table, 1, &page, 1) < ARENA_OP_LOST)
        expect(arena_pages_unpin(mine.table, 1, &page) == ARENA_OP_OK);
    expect(arena_pages_unref(mine.table, 1, &page) == ARENA_OP_OK);
}

/* A page that holds the value of its key is published, or there is one already. */
static void page_publish(uint32_t page, uint64_t value)
{
    const struct arena_prefix_key key = {.low = value, .high = 1};
    uint32_t there;

    expect(arena_prefix_publish(mine.table, page, &key, NULL, &there) < ARENA_PREFIX_MISUSE);
    __atomic_store_n(&board->key[number], value, __ATOMIC_RELAXED);
}

/* What another process published is what its key says, also when that process is dead. */
static void page_lookup(uint64_t random)
{
    uint64_t value = __atomic_load_n(&board->key[random % PROCESSES], __ATOMIC_RELAXED);
    const struct arena_prefix_key key = {.low = value, .high = 1};
    uint32_t page;

    if (arena_prefix_lookup(mine.table, 1, &key, &page, 2) == 0)
        return;
    page_check(page, value);
    if (random >> 8 & 1)
        (void) arena_prefix_unpublish(mine.table, 1, &page);
    expect(arena_pages_unref(mine.table, 1, &page) == ARENA_OP_OK);
    if ((random >> 9 & 15) == 0)
        expect(arena_prefix_trim(mine.table, 4) >= 0);
}

static uint64_t random_next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static void *life(void *data)
{
    uint64_t random = (uint64_t) (uintptr_t) data * 2654435761u + (uint64_t) getpid(), value;
    uint32_t pages[HELD], held = 0;
    uint64_t values[HELD];

    value = random;
    while (!atomic_load_explicit(&board->over, memory_order_relaxed)) {
        uint64_t choice = random_next(&random);

        if (held < HELD && choice % 3 != 0) {
            uint32_t want = 1 + (uint32_t) (choice >> 8) % (HELD - held);

            if (arena_pages_alloc(&mine.pool, want, pages + held, 1) != ARENA_OP_OK) {
                /* What is published fills the arena, and nobody uses it. */
                expect(arena_prefix_trim(mine.table, HELD) >= 0);
                continue;
            }
            for (uint32_t i = held; i < held + want; i++) {
                enum arena_op op = arena_pages_pin(mine.table, 1, &pages[i], 1);

                expect(op == ARENA_OP_OK || op == ARENA_OP_WAITING);
                while (op == ARENA_OP_WAITING) {
                    (void) sched_yield();
                    op = arena_pages_ready(mine.table, 1, &pages[i]);
                }
                values[i] = value + i;
                __atomic_store_n(&board->bytes[pages[i]], values[i], __ATOMIC_RELAXED);
                expect(arena_pages_unpin(mine.table, 1, &pages[i]) == ARENA_OP_OK);
                page_check(pages[i], values[i]);
            }
            if ((choice >> 20 & 1) != 0)
                page_publish(pages[held], values[held]);
            held += want;
            __atomic_store_n(&board->given[number], pages[0] + 1, __ATOMIC_RELAXED);
        } else if (held > 0) {
            for (uint32_t i = 0; i < held; i++)
                page_check(pages[i], values[i]);
            expect(arena_pages_unref(mine.table, held, pages) == ARENA_OP_OK);
            held = 0;
            value += HELD;
        }
        page_borrow(choice >> 16);
        page_lookup(choice >> 24);
        atomic_fetch_add_explicit(&board->rounds[number], 1, memory_order_relaxed);
    }
    expect(held == 0 || arena_pages_unref(mine.table, held, pages) == ARENA_OP_OK);
    return NULL;
}

static void process_main(unsigned as)
{
    pthread_t threads[THREADS];

    number = as;
    bed_join(&mine, &bed, as);
    for (uintptr_t i = 0; i < THREADS; i++)
        expect(pthread_create(&threads[i], NULL, life, (void *) (i + 1)) == 0);
    for (unsigned i = 0; i < THREADS; i++)
        (void) pthread_join(threads[i], NULL);
    arena_own_free(&mine.pool.table);
    _exit(0);
}

static pid_t process_start(unsigned as)
{
    pid_t pid = fork();

    ck_assert_int_ge(pid, 0);
    if (pid == 0)
        process_main(as);
    return pid;
}

/* Out of a page that isn't pinned, or back into one that is out. */
static void page_move(uint32_t page)
{
    static uint64_t tier[PAGES];
    uint64_t word = bed_word(&bed, page);
    uint64_t *at = &bed.table->pages[page].word;

    if (arena_word_state(word) == ARENA_PAGE_RESIDENT && arena_word_pins(word) == 0) {
        if (!__atomic_compare_exchange_n(at, &word,
                arena_word_with_state(word, ARENA_PAGE_EVICTING), false, __ATOMIC_SEQ_CST,
                __ATOMIC_SEQ_CST))
            return;
        tier[page] = byte_read(page);
        word = bed_word(&bed, page);
        while (
            arena_word_state(word) == ARENA_PAGE_EVICTING &&
            !__atomic_compare_exchange_n(at, &word, arena_word_with_state(word, ARENA_PAGE_EVICTED),
                false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
            ;
        if (arena_word_state(bed_word(&bed, page)) == ARENA_PAGE_EVICTED)
            __atomic_store_n(&board->bytes[page], 0, __ATOMIC_RELAXED);
    } else if (arena_word_state(word) == ARENA_PAGE_EVICTED) {
        __atomic_store_n(&board->bytes[page], tier[page], __ATOMIC_RELAXED);
        while (arena_word_state(word) == ARENA_PAGE_EVICTED &&
               !__atomic_compare_exchange_n(at, &word,
                   arena_word_with_state(word, ARENA_PAGE_RESIDENT), false, __ATOMIC_SEQ_CST,
                   __ATOMIC_SEQ_CST))
            ;
    }
}

/* The broker's turns. As the real one does it closes a chunk meanwhile: a page that is freed on its
 * way would be allocated again, and what is written there be written over. */
static void pages_move(void)
{
    for (uint32_t chunk = 0; chunk < CHUNKS; chunk++) {
        uint32_t *state = &bed.table->chunks[chunk].state, live = ARENA_CHUNK_LIVE;

        if (!__atomic_compare_exchange_n(
                state, &live, ARENA_CHUNK_CLOSED, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
            continue;
        for (uint32_t page = chunk * PER_CHUNK; page < (chunk + 1) * PER_CHUNK; page++)
            page_move(page);
        __atomic_store_n(state, ARENA_CHUNK_LIVE, __ATOMIC_SEQ_CST);
    }
}

static void forget(unsigned dead)
{
    for (uint32_t page = 0; page < PAGES; page++)
        arena_table_page_forget(bed.table, page, 1u << dead);
}

START_TEST(death_at_any_instruction_takes_its_own_and_nothing_else)
{
    uint64_t end = clock_now(&clock_monotonic) + PATIENCE_NS;
    pid_t pids[PROCESSES];
    int status;

    bed_make(&bed, PER_CHUNK, CHUNKS, ARENA_TABLE_SHARED);
    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(board, MAP_FAILED);
    for (unsigned i = 0; i < PROCESSES; i++)
        pids[i] = process_start(i);
    for (unsigned death = 0; death < DEATHS; death++) {
        unsigned victim = 1 + death % (PROCESSES - 1);
        uint64_t rounds = atomic_load(&board->rounds[victim]), since;

        /* It has begun to work, and then lives for a while. */
        while (atomic_load(&board->rounds[victim]) == rounds && clock_now(&clock_monotonic) < end) {
            pages_move();
            (void) sched_yield();
        }
        since = clock_now(&clock_monotonic);
        while (clock_now(&clock_monotonic) - since < LIFE_NS / (1 + death % 7))
            pages_move();
        ck_assert_int_eq(kill(pids[victim], SIGKILL), 0);
        ck_assert_int_eq(waitpid(pids[victim], &status, 0), pids[victim]);
        ck_assert(WIFSIGNALED(status));
        __atomic_store_n(&board->given[victim], 0, __ATOMIC_RELAXED);
        forget(victim);
        for (uint32_t page = 0; page < PAGES; page++) {
            uint64_t word = bed_word(&bed, page);

            ck_assert_uint_eq((arena_word_pins(word) | arena_word_refs(word)) & 1u << victim, 0);
        }
        pids[victim] = process_start(victim);
    }
    atomic_store(&board->over, true);
    for (unsigned i = 0; i < PROCESSES; i++) {
        while (waitpid(pids[i], &status, WNOHANG) == 0)
            pages_move();
        ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    ck_assert_uint_eq(atomic_load(&board->failures), 0);
    ck_assert_uint_gt(atomic_load(&board->rounds[0]), DEATHS);
    /* What the index still has outlived who published it. */
    expect(arena_prefix_trim(bed.table, PAGES) >= 0);
    forget(PROCESSES);
    bed_check(&bed);
    ck_assert_int_eq(munmap(board, sizeof(*board)), 0);
    bed_end(&bed);
}
END_TEST

UNIT_MAIN("arena_death", death_at_any_instruction_takes_its_own_and_nothing_else)
