/*
 * gmb_pressure_get() against the one load that it has to do. Both are timed as a scheduler would
 * meet them: what is read decides what is read next, so that a round can't overlap the one before.
 * The floor loads from the same cache line. Best of many short rounds, taken in turns.
 */
#include <errno.h>
#include <time.h>

#include "client/fork.h"
#include "proto/status_page.h"
#include "tests/bench/bench.h"

#define READS 100000u
#define ROUNDS 60u
#define BUDGET 3.0

static struct {
    struct status_header header;
    struct status_entry entries[2];
} page;

static double thread_ns(void)
{
    struct timespec now;

    (void) clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double) now.tv_sec * 1e9 + (double) now.tv_nsec;
}

/* The index of the next entry: from the level just read, and always 0. */
static double round_loads(unsigned *at)
{
    double start_ns = thread_ns();

    for (unsigned i = 0; i < READS; i++)
        *at = (unsigned) (__atomic_load_n(&page.entries[*at].head, __ATOMIC_SEQ_CST) >>
                          STATUS_LEVEL_SHIFT) &
              15u;
    return (thread_ns() - start_ns) / READS;
}

static double round_gets(const gmb_session *session, unsigned *at)
{
    double start_ns = thread_ns();

    for (unsigned i = 0; i < READS; i++)
        *at = (unsigned) gmb_pressure_get(session, *at);
    return (thread_ns() - start_ns) / READS;
}

int bench_pressure_read(struct bench_row *rows, size_t max)
{
    static struct gmb_session session;
    double load_ns = 1e9, get_ns = 1e9;
    unsigned at = 0;

    if (max < 1)
        return -ENOSPC;
    session.generation = atomic_load(&fork_generation);
    session.pid = getpid();
    session.status = (struct status_view){
        .page = (const struct status_page *) (const void *) &page,
        .bytes = sizeof(page),
        .entries = 2,
    };
    page.entries[0].head = STATUS_FLAG_LIVE;
    for (unsigned round = 0; round < ROUNDS; round++) {
        load_ns = MIN(load_ns, round_loads(&at));
        get_ns = MIN(get_ns, round_gets(&session, &at));
    }
    if (at != 0)
        return -EIO;
    rows[0] = (struct bench_row){
        .name = "pressure_read",
        .value = get_ns,
        .unit = "ns",
        .floor = load_ns,
        .ratio = get_ns / load_ns,
        .budget = BUDGET,
        .met = get_ns <= BUDGET * load_ns,
    };
    return 1;
}
