/*
 * Threads allocate, fill, pin, check and free, while another plays the broker: it evicts what isn't
 * pinned, closes chunks, takes the memory of vacant ones away and brings it and the pages back. A
 * page's bytes are one number, which its owner wrote; what is evicted is wiped, so that a page seen
 * too early, or allocated twice, shows.
 */
#include <pthread.h>
#include <sched.h>

#include "base/clock.h"
#include "tests/arena/bed.h"
#include "tests/unit/unit.h"

#define THREADS 3u
#define CHUNKS 6u
#define PER_CHUNK 16u
#define PAGES (CHUNKS * PER_CHUNK)
#define HELD 12u
#define ROUNDS 4000u /* at least; and until the broker has done its part */
#define BROKER_TURNS 200u
#define PATIENCE_NS (40 * NSEC_PER_SEC)
#define WIPED UINT64_C(0xdeaddeaddeaddead)

static struct bed bed;
static uint64_t device[PAGES], tier[PAGES]; /* what lies where */
static atomic_bool over;
static atomic_uint failures, evicted, restored, closed;

static void expect(bool condition)
{
    if (!condition)
        atomic_fetch_add(&failures, 1);
}

static uint64_t device_read(uint32_t page)
{
    return __atomic_load_n(&device[page], __ATOMIC_RELAXED);
}

static void device_write(uint32_t page, uint64_t value)
{
    __atomic_store_n(&device[page], value, __ATOMIC_RELAXED);
}

static bool swap(uint32_t page, uint64_t word, enum arena_page_state to)
{
    return __atomic_compare_exchange_n(&bed.table->pages[page].word, &word,
        arena_word_with_state(word, to), false, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED);
}

/* RESIDENT → EVICTING → EVICTED, unless somebody pins or frees it meanwhile. */
static void broker_evict(uint32_t page)
{
    uint64_t word = bed_word(&bed, page), copy;

    if (arena_word_state(word) != ARENA_PAGE_RESIDENT || arena_word_pins(word) > 0 ||
        !swap(page, word, ARENA_PAGE_EVICTING))
        return;
    copy = device_read(page);
    sched_yield();
    /* Pages that wait in the tier are their generation's: the word decides whether the copy counts.
     */
    tier[page] = copy;
    word = bed_word(&bed, page);
    if (arena_word_state(word) == ARENA_PAGE_EVICTING && swap(page, word, ARENA_PAGE_EVICTED))
        atomic_fetch_add(&evicted, 1);
}

static void broker_restore(uint32_t page)
{
    uint64_t word = bed_word(&bed, page);

    if (arena_word_state(word) != ARENA_PAGE_EVICTED || !swap(page, word, ARENA_PAGE_RESTORING))
        return;
    device_write(page, tier[page]);
    for (;;) {
        word = bed_word(&bed, page);
        if (arena_word_state(word) != ARENA_PAGE_RESTORING)
            return; /* freed */
        if (swap(page, word, ARENA_PAGE_RESIDENT))
            break;
    }
    atomic_fetch_add(&restored, 1);
}

/* LIVE → CLOSED, empties it as far as pins allow, takes the memory away; or gives up. */
static void broker_close(uint32_t chunk)
{
    uint32_t live = ARENA_CHUNK_LIVE, first = chunk * PER_CHUNK;

    if (!__atomic_compare_exchange_n(&bed.table->chunks[chunk].state, &live,
            (uint32_t) ARENA_CHUNK_CLOSED, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        return;
    for (unsigned turn = 0; turn < 50; turn++) {
        for (uint32_t page = first; page < first + PER_CHUNK; page++)
            broker_evict(page);
        if (arena_table_chunk_vacant(bed.table, chunk) != ARENA_VACANT)
            continue;
        for (uint32_t page = first; page < first + PER_CHUNK; page++)
            device_write(page, WIPED);
        arena_chunk_vacate(&bed.pool, chunk);
        atomic_fetch_add(&closed, 1);
        return;
    }
    bed_chunk_set(&bed, chunk, ARENA_CHUNK_LIVE);
}

static void *broker_main(void *data)
{
    for (uint32_t turn = 0; !atomic_load(&over); turn++) {
        uint32_t chunk = turn / 2 % CHUNKS, first = chunk * PER_CHUNK;

        if (arena_chunk_state(bed.table, chunk) == ARENA_CHUNK_EMPTY)
            arena_chunk_open(&bed.pool, chunk);
        else if (turn % 2 == 0)
            broker_close(chunk);
        /* Wanted pages first; some others, too. */
        if (arena_chunk_state(bed.table, chunk) != ARENA_CHUNK_LIVE)
            continue;
        for (uint32_t page = first; page < first + PER_CHUNK; page++)
            broker_restore(page);
        sched_yield();
    }
    return NULL;
}

struct worker {
    uint32_t pages[HELD];
    uint64_t values[HELD];
    uint64_t random;
    size_t held;
};

/* Pins a page and waits until it is there. */
static void page_enter(uint32_t page)
{
    enum arena_op op = arena_pages_pin(bed.table, 1, &page, 1);

    while (op == ARENA_OP_WAITING) {
        sched_yield();
        op = arena_pages_ready(bed.table, 1, &page);
    }
    expect(op == ARENA_OP_OK);
}

static void worker_take(struct worker *worker)
{
    size_t n = 1 + worker->random % 3;

    if (worker->held + n > HELD ||
        arena_pages_alloc(&bed.pool, n, worker->pages + worker->held, 1) != ARENA_OP_OK)
        return;
    for (size_t i = worker->held; i < worker->held + n; i++) {
        worker->values[i] = worker->random ^ i;
        page_enter(worker->pages[i]);
        device_write(worker->pages[i], worker->values[i]);
        expect(arena_pages_unpin(bed.table, 1, &worker->pages[i]) == ARENA_OP_OK);
    }
    worker->held += n;
}

static void worker_check(struct worker *worker)
{
    size_t at = worker->random % worker->held;

    page_enter(worker->pages[at]);
    expect(device_read(worker->pages[at]) == worker->values[at]);
    expect(arena_pages_unpin(bed.table, 1, &worker->pages[at]) == ARENA_OP_OK);
}

static void worker_give(struct worker *worker, size_t n)
{
    worker->held -= n;
    expect(arena_pages_unref(bed.table, n, worker->pages + worker->held) == ARENA_OP_OK);
}

static bool broker_busy(void)
{
    return atomic_load(&evicted) < BROKER_TURNS || atomic_load(&restored) < BROKER_TURNS ||
           atomic_load(&closed) < BROKER_TURNS;
}

static void *worker_main(void *data)
{
    uint64_t deadline_ns = clock_now(&clock_monotonic) + PATIENCE_NS;
    struct worker *worker = data;

    for (unsigned round = 0;
         round < ROUNDS || (broker_busy() && clock_now(&clock_monotonic) < deadline_ns); round++) {
        worker->random =
            worker->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        worker->random ^= worker->random >> 33;
        if (worker->random % 4 == 0 && worker->held > 0)
            worker_give(worker, 1 + worker->random / 4 % worker->held);
        else if (worker->random % 4 == 1 && worker->held > 0)
            worker_check(worker);
        else
            worker_take(worker);
    }
    if (worker->held > 0)
        worker_give(worker, worker->held);
    return NULL;
}

START_TEST(nothing_is_lost_or_shared_under_eviction_and_closing)
{
    struct worker workers[THREADS] = {0};
    pthread_t threads[THREADS], broker;

    bed_begin(&bed, PER_CHUNK, CHUNKS);
    bed_open_all(&bed);
    ck_assert_int_eq(pthread_create(&broker, NULL, broker_main, NULL), 0);
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i].random = i + 1;
        ck_assert_int_eq(pthread_create(&threads[i], NULL, worker_main, &workers[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
    atomic_store(&over, true);
    ck_assert_int_eq(pthread_join(broker, NULL), 0);
    ck_assert_uint_eq(atomic_load(&failures), 0);
    /* The test has done what it is named after. */
    ck_assert(!broker_busy());
    bed_check(&bed);
    for (uint32_t page = 0; page < PAGES; page++)
        ck_assert_int_eq(arena_word_state(bed_word(&bed, page)), ARENA_PAGE_FREE);
    bed_end(&bed);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("arena stress");
    TCase *tcase = tcase_create("arena stress");
    SRunner *runner;
    int failed;

    tcase_set_timeout(tcase, 100);
    tcase_add_test(tcase, nothing_is_lost_or_shared_under_eviction_and_closing);
    suite_add_tcase(suite, tcase);
    runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
