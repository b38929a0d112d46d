/*
 * A tenant has all of a device in cold pages of one worker, and a request waits: the time from its
 * being sent to its last chunk's fd in hand. Another tenant's goes before it: eviction, recall,
 * unmapping, release, a look at free memory and creation lie in it. A request of its own is given
 * the chunks as they come back. The mover runs already, as it does where arenas are. Between two
 * rounds the lease goes back and the pages are pinned once, so that everything is taken again.
 */
#include <check.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

#include "base/clock.h"
#include "tests/bench/bench.h"
#include "tests/integration/pages.h"
#include "tests/integration/raw.h"

#define MIB (UINT64_C(1) << 20)
#define DEVICE_MIB 384 /* without the reserve, which the mover's memory comes out of */
#define RESERVE_MIB 64
#define PAGE_BYTES (UINT64_C(64) << 10)
#define WAIT_NS UINT64_C(20000000000)
/* Shorter than what the core lets a wait grow to before it asks arenas for memory. */
#define FILL_WAIT_NS (20 * NSEC_PER_MSEC)
#define ROUNDS_MAX 40
#define OTHER 65534

static const char configuration[] =
    "[Broker]\nRecycleIdle=1ms\nObserveInterval=50ms\nHostTier=512M\nMoverIdle=1h\n"
    "[Device *]\nReserve=64M\n[Tenant other]\nUser=65534\nPriority=900\n"
    "[Tenant bench]\nUser=*\n";

static const struct {
    uint64_t bytes;
    unsigned rounds;
    bool own; /* the request of the tenant that has everything */
    const char *median, *p99;
} cases[] = {
    {2 * MIB, ROUNDS_MAX, false, "reclaim_latency_2M", "reclaim_latency_2M_p99"},
    {32 * MIB, ROUNDS_MAX, false, "reclaim_latency_32M", "reclaim_latency_32M_p99"},
    {256 * MIB, 15, false, "reclaim_latency_256M", "reclaim_latency_256M_p99"},
    {2 * MIB, ROUNDS_MAX, true, "reclaim_latency_own_2M", "reclaim_latency_own_2M_p99"},
    {32 * MIB, ROUNDS_MAX, true, "reclaim_latency_own_32M", "reclaim_latency_own_32M_p99"},
    {256 * MIB, 15, true, "reclaim_latency_own_256M", "reclaim_latency_own_256M_p99"},
};

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *) a, y = *(const uint64_t *) b;

    return x < y ? -1 : x > y;
}

/* Everything that the tenant may have becomes pages. */
static void device_fill(struct pages *pages)
{
    uint64_t deadline = harness_now_ms() + HARNESS_DEADLINE_MS;

    while (pages_stats(pages).mapped_bytes < DEVICE_MIB * MIB && harness_now_ms() < deadline &&
           pages->count + 32 <= PAGES_MAX) {
        if (gmb_page_alloc(pages->arena, 32, pages->pages + pages->count, FILL_WAIT_NS) != 0)
            continue;
        pages->count += 32;
    }
}

static uint64_t round_measure(struct raw *raw, struct pages *pages, uint64_t bytes)
{
    uint64_t start_ns = clock_now(&clock_monotonic), took_ns, lease;
    uint64_t id = raw_lease(raw, bytes, HARNESS_CHUNK, WAIT_NS);

    lease = raw_expect_lease(raw, id, (uint32_t) (bytes / HARNESS_CHUNK));
    took_ns = clock_now(&clock_monotonic) - start_ns;
    raw_expect_done(raw, raw_release(raw, lease));
    pages_restore(pages);
    return took_ns;
}

/*
 * Where the simulated device lies: in huge pages, on a file system that only this process and its
 * children see. In small ones, freeing a chunk takes the kernel four times as long as copying it,
 * which is nothing that a GPU does.
 */
static void memory_folder(void)
{
    static char path[] = "/dev/shm"; /* where the simulator has it by default */

    (void) setenv("GMB_TEST_DIR", path, 1);
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("gmb-bench", path, "tmpfs", 0, "huge=always,mode=1777") < 0)
        (void) fprintf(stderr, "gmb-bench: device memory is in small pages: freeing it is slow\n");
}

/* A connection belongs to whoever made it. */
static void other_connect(struct raw *raw, const struct harness *harness)
{
    ck_assert_int_eq(seteuid(OTHER), 0);
    raw_connect(raw, harness);
    ck_assert_int_eq(seteuid(0), 0);
}

/* What copying so many bytes costs this machine, once. */
static uint64_t copy_measure(uint64_t bytes)
{
    char *from = malloc(bytes), *to = malloc(bytes);
    uint64_t best = UINT64_MAX;

    for (int i = 0; from != NULL && to != NULL && i < 5; i++) {
        uint64_t start_ns;

        memset(from, i, bytes);
        start_ns = clock_now(&clock_monotonic);
        memcpy(to, from, bytes);
        if (i > 0 && to[bytes / 2] == (char) i)
            best = MIN(best, clock_now(&clock_monotonic) - start_ns);
    }
    free(from);
    free(to);
    return best;
}

static void rows_write(struct bench_row *rows, size_t which, uint64_t *ns, uint64_t copy_ns)
{
    unsigned count = cases[which].rounds;

    qsort(ns, count, sizeof(*ns), compare);
    rows[0] =
        (struct bench_row){.name = cases[which].median, .value = (double) ns[count / 2] / 1e6};
    rows[1] = (struct bench_row){
        .name = cases[which].p99, .value = (double) ns[(count * 99 + 99) / 100 - 1] / 1e6};
    for (int i = 0; i < 2; i++) {
        rows[i].unit = "ms";
        rows[i].floor = (double) copy_ns / 1e6;
        rows[i].ratio = rows[i].value / rows[i].floor;
    }
}

int bench_reclaim_latency(struct bench_row *rows, size_t max)
{
    static uint64_t ns[ROUNDS_MAX];
    static struct pages pages;
    struct raw own, other;
    struct harness harness;
    char memory[16];

    if (max < 2 * ARRAY_SIZE(cases))
        return -ENOSPC;
    if (geteuid() != 0)
        return -EPERM; /* nobody else to be */
    memory_folder();
    (void) setenv("GMB_SIM_FILL", "none", 1);
    (void) snprintf(memory, sizeof(memory), "%dM", DEVICE_MIB + RESERVE_MIB);
    (void) setenv("GMB_SIM_MEMORY", memory, 1);
    (void) setenv("GMB_MOVER", GMB_MOVER_PATH, 0);
    harness_start(&harness, configuration);
    pages_open(&pages, &harness, PAGE_BYTES, HARNESS_CHUNK, 2 * DEVICE_MIB * MIB);
    raw_connect(&own, &harness);
    other_connect(&other, &harness);
    device_fill(&pages);
    (void) round_measure(&own, &pages, 2 * MIB); /* starts the mover */
    for (size_t which = 0; which < ARRAY_SIZE(cases); which++) {
        for (unsigned i = 0; i < cases[which].rounds; i++)
            ns[i] = round_measure(cases[which].own ? &own : &other, &pages, cases[which].bytes);
        rows_write(rows + 2 * which, which, ns, copy_measure(cases[which].bytes));
    }
    raw_close(&own);
    raw_close(&other);
    pages_close(&pages);
    harness_discard(&harness);
    return 2 * ARRAY_SIZE(cases);
}
