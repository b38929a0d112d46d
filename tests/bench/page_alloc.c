/*
 * A page of an arena, from birth to death, against the one thing that can't be cheaper and against
 * what other allocators take for an object of one cache line.
 *
 * Each contender runs a short round in turn, many times over, and its best round counts: what
 * disturbs the machine disturbs all of them. Threads of a round start together; its time is what
 * the slowest of them took, in its own processor time, so that sharing two processors among four
 * threads isn't counted.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <time.h>

#include "tests/bench/arena_bed.h"
#include "tests/bench/bench.h"

#define HELD 16u
#define PAIRS 20000u /* in one round */
#define ROUNDS 40u
#define THREADS_MAX 4u
#define OBJECT_BYTES 64u
#define BUDGET 5.0 /* atomic adds */

struct allocator {
    void *(*alloc)(size_t size);
    void (*free)(void *object);
};

struct lane {
    void (*work)(struct lane *lane);
    pthread_barrier_t *start;
    struct gmb_arena *arena;
    const struct allocator *allocator;
    _Alignas(64) uint64_t counter;
    double pair_ns;
};

static void work_add(struct lane *lane)
{
    for (unsigned i = 0; i < PAIRS; i++)
        __atomic_fetch_add(&lane->counter, 1, __ATOMIC_SEQ_CST);
}

static void work_pages(struct lane *lane)
{
    uint32_t held[HELD];

    if (gmb_page_alloc(lane->arena, HELD, held, GMB_WAIT_NONE) != 0)
        return;
    for (unsigned i = 0; i < PAIRS; i++) {
        uint32_t *page = &held[i % HELD];

        if (gmb_page_unref(lane->arena, 1, page) != 0 ||
            gmb_page_alloc(lane->arena, 1, page, GMB_WAIT_NONE) != 0)
            return;
    }
    if (gmb_page_unref(lane->arena, HELD, held) == 0)
        lane->counter = PAIRS;
}

static void work_objects(struct lane *lane)
{
    void *held[HELD] = {NULL};

    for (unsigned i = 0; i < PAIRS; i++) {
        void *volatile *object = &held[i % HELD];

        lane->allocator->free(*object);
        *object = lane->allocator->alloc(OBJECT_BYTES);
    }
    for (unsigned i = 0; i < HELD; i++)
        lane->allocator->free(held[i]);
    lane->counter = PAIRS;
}

static double thread_ns(void)
{
    struct timespec now;

    (void) clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double) now.tv_sec * 1e9 + (double) now.tv_nsec;
}

static void *lane_main(void *data)
{
    struct lane *lane = data;
    double start;

    (void) pthread_barrier_wait(lane->start);
    lane->counter = 0;
    start = thread_ns();
    lane->work(lane);
    lane->pair_ns = lane->counter == PAIRS ? (thread_ns() - start) / PAIRS : -1;
    return NULL;
}

/* One round of `threads` lanes like `model`: lowers `*best_ns` to the slowest lane. -EIO when one
 * failed. */
static int round_run(const struct lane *model, unsigned threads, double *best_ns)
{
    static struct lane lanes[THREADS_MAX];
    pthread_t ids[THREADS_MAX];
    pthread_barrier_t start;
    double slowest = 0;
    bool failed = false;

    (void) pthread_barrier_init(&start, NULL, threads);
    for (unsigned i = 0; i < threads; i++) {
        lanes[i] = *model;
        lanes[i].start = &start;
        if (pthread_create(&ids[i], NULL, lane_main, &lanes[i]) != 0)
            abort(); /* the others wait at the barrier for ever */
    }
    for (unsigned i = 0; i < threads; i++) {
        (void) pthread_join(ids[i], NULL);
        failed = failed || lanes[i].pair_ns < 0;
        slowest = MAX(slowest, lanes[i].pair_ns);
    }
    (void) pthread_barrier_destroy(&start);
    if (failed)
        return -EIO;
    *best_ns = MIN(*best_ns, slowest);
    return 0;
}

static struct bench_row row_make(const char *name, double value, double floor, double budget)
{
    return (struct bench_row){.name = name,
        .value = value,
        .unit = "ns",
        .floor = floor,
        .ratio = value / floor,
        .budget = budget,
        .met = budget == 0 || value <= budget * floor};
}

static int threads_measure(struct gmb_arena *arena, struct bench_row *rows)
{
    static const char *const names[] = {
        "page_alloc_free", "page_alloc_free_2_threads", "page_alloc_free_4_threads"};
    static const unsigned threads[] = {1, 2, 4};
    const struct lane add = {.work = work_add}, pages = {.work = work_pages, .arena = arena};
    double add_ns[3] = {1e9, 1e9, 1e9}, page_ns[3] = {1e9, 1e9, 1e9};
    int r = 0;

    for (unsigned round = 0; r == 0 && round < ROUNDS; round++) {
        for (unsigned i = 0; r == 0 && i < ARRAY_SIZE(threads); i++) {
            r = round_run(&add, threads[i], &add_ns[i]);
            if (r == 0)
                r = round_run(&pages, threads[i], &page_ns[i]);
        }
    }
    for (unsigned i = 0; i < ARRAY_SIZE(threads); i++)
        rows[i] = row_make(names[i], page_ns[i], add_ns[i], BUDGET);
    return r < 0 ? r : (int) ARRAY_SIZE(threads);
}

/* A row for each allocator that is there. */
static int allocators_measure(struct gmb_arena *arena, struct bench_row *rows, size_t max)
{
    static const struct {
        const char *row, *soname, *alloc, *free;
    } others[] = {
        {"page_alloc_free_malloc", NULL, "malloc", "free"},
        {"page_alloc_free_jemalloc", "libjemalloc.so.2", "malloc", "free"},
        {"page_alloc_free_mimalloc", "libmimalloc.so.2", "mi_malloc", "mi_free"},
    };
    int count = 0;

    for (size_t i = 0; i < ARRAY_SIZE(others) && (size_t) count < max; i++) {
        void *library = dlopen(others[i].soname, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
        struct allocator allocator = {NULL, NULL};
        const struct lane pages = {.work = work_pages, .arena = arena},
                          objects = {.work = work_objects, .allocator = &allocator};
        double page_ns = 1e9, object_ns = 1e9;

        if (library == NULL)
            continue;
        *(void **) &allocator.alloc = dlsym(library, others[i].alloc);
        *(void **) &allocator.free = dlsym(library, others[i].free);
        for (unsigned round = 0; allocator.alloc != NULL && round < ROUNDS; round++) {
            int r = round_run(&pages, 1, &page_ns);

            if (r == 0)
                r = round_run(&objects, 1, &object_ns);
            if (r < 0)
                return r;
        }
        if (allocator.alloc != NULL)
            rows[count++] = row_make(others[i].row, page_ns, object_ns, 0);
        /* Not closed: an allocator that has run keeps keys of threads. */
    }
    return count;
}

/* What it costs where several processes may hold the arena; no budget is set for it. */
static int shared_measure(struct bench_row *row)
{
    const struct lane add = {.work = work_add};
    struct lane pages = {.work = work_pages};
    double add_ns = 1e9, page_ns = 1e9;
    int r = arena_bed_make(32, 1024, ARENA_TABLE_SHARED, &pages.arena);

    for (unsigned round = 0; r == 0 && round < ROUNDS; round++) {
        r = round_run(&add, 1, &add_ns);
        if (r == 0)
            r = round_run(&pages, 1, &page_ns);
    }
    arena_bed_free(pages.arena);
    *row = row_make("page_alloc_free_shared", page_ns, add_ns, 0);
    return r;
}

int bench_page_alloc_free(struct bench_row *rows, size_t max)
{
    struct gmb_arena *arena = NULL;
    int r, more;

    if (max < 3)
        return -ENOSPC;
    r = arena_bed_make(32, 1024, 0, &arena);
    if (r == 0)
        r = threads_measure(arena, rows);
    if (r > 0 && (size_t) r < max) {
        more = shared_measure(&rows[r]);
        r = more < 0 ? more : r + 1;
    }
    if (r > 0) {
        more = allocators_measure(arena, rows + r, max - (size_t) r);
        r = more < 0 ? more : r + more;
    }
    arena_bed_free(arena);
    return r;
}
