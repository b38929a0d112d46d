/*
 * Start-up of a second worker: one process creates, writes and seals a segment, another opens it.
 * The writer's copies stand for a load from the page cache; one from a disk takes longer still.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "tests/bench/bench.h"
#include "tests/integration/segments.h"

#define ROUNDS 7
#define WEIGHTS MIB(128)

static int compare(const void *a, const void *b)
{
    double x = *(const double *) a, y = *(const double *) b;

    return (x > y) - (x < y);
}

static double milliseconds_since(uint64_t start_ns)
{
    return (double) (clock_now(&clock_monotonic) - start_ns) / (double) NSEC_PER_MSEC;
}

/* One writer, one reader, each a process that is connected already. */
static void measure(
    struct harness *harness, double *ret_make_ms, double *ret_open_ms, uint64_t *ret_taken_bytes)
{
    struct member writer, reader;
    uint64_t start_ns, free_bytes;

    member_start(&writer, harness, 0);
    member_start(&reader, harness, 0);
    start_ns = clock_now(&clock_monotonic);
    segment_make(&writer, "weights", WEIGHTS, 1);
    *ret_make_ms = milliseconds_since(start_ns);
    free_bytes = harness_free_bytes(harness);
    start_ns = clock_now(&clock_monotonic);
    segment_do(&reader, 0, MEMBER_OPEN, "weights", 0);
    *ret_open_ms = milliseconds_since(start_ns);
    *ret_taken_bytes += free_bytes - harness_free_bytes(harness);
    segment_do(&reader, 0, MEMBER_REMOVE, "weights", 0);
    member_end(&reader, 0);
    member_end(&writer, 0);
    segments_clear(harness);
}

int bench_segment_attach(struct bench_row *rows, size_t max)
{
    double make_ms[ROUNDS], open_ms[ROUNDS];
    struct harness harness;
    uint64_t taken = 0;

    if (max < 2 || setenv("MEMBER", MEMBER_PATH, 1) < 0)
        return -ENOSPC;
    harness_start(&harness, "[Broker]\nHostTier=64M\nMoverIdle=1h\n[Tenant bench]\nUser=*\n");
    for (unsigned i = 0; i < ROUNDS; i++)
        measure(&harness, &make_ms[i], &open_ms[i], &taken);
    harness_discard(&harness);
    qsort(make_ms, ROUNDS, sizeof(make_ms[0]), compare);
    qsort(open_ms, ROUNDS, sizeof(open_ms[0]), compare);
    rows[0] = (struct bench_row){
        .name = "segment_attach",
        .value = open_ms[ROUNDS / 2],
        .unit = "ms",
        .floor = make_ms[ROUNDS / 2],
        .budget = 0.2,
    };
    rows[1] = (struct bench_row){
        .name = "segment_attach_bytes",
        .value = (double) taken,
        .unit = "B",
        .floor = ROUNDS * (double) WEIGHTS,
        .budget = 1e-9, /* none at all */
    };
    for (size_t i = 0; i < 2; i++) {
        rows[i].ratio = rows[i].value / rows[i].floor;
        rows[i].met = rows[i].ratio <= rows[i].budget;
    }
    return 2;
}
