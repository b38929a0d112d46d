/*
 * The broker is killed, restarted politely, ended by the watchdog and replaced by another build,
 * again and again, while many workers take, grow, shrink and give back leases. RESTARTS says how
 * often.
 *
 * After each of them every worker goes on with what it had, byte for byte; then all rest for a
 * moment, and what the broker counts is held against what they have.
 */
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/integration/lessee.h"
#include "tests/integration/raw.h"
#include "tests/unit/unit.h"

#define CHUNK HARNESS_CHUNK
#define WORKERS 32
#define PATIENCE_MS 60000
#define WATCHDOG "8" /* seconds: longer than a busy machine makes a healthy broker wait */

/* What is shared with a worker. */
struct slot {
    unsigned number;
    atomic_uint rounds;
    atomic_bool resting;
    atomic_uint leases;
    atomic_ullong bytes; /* that it has while it rests */
};

static struct board {
    atomic_bool rest, stop;
    struct slot slots[WORKERS];
} * board;

static struct lessee_process processes[WORKERS];

/* ------------------------------------------------------------------ workers */

/* Nobody else writes the same. */
static uint64_t mark_of(const struct slot *slot, unsigned kind, unsigned round)
{
    return (uint64_t) (slot->number + 1) << 40 | (uint64_t) kind << 32 | round;
}

static void rest(struct slot *slot, const gmb_lease *fixed, const gmb_lease *moving)
{
    atomic_store(&slot->bytes, gmb_lease_bytes(fixed) + gmb_lease_bytes(moving));
    atomic_store(&slot->leases, 2);
    atomic_store(&slot->resting, true);
    while (atomic_load(&board->rest))
        harness_breathe();
    atomic_store(&slot->resting, false);
}

/* Every request but a return succeeds, whatever becomes of the broker meanwhile. */
static void round_run(
    struct lessee *lessee, struct slot *slot, gmb_lease *moving, unsigned round, unsigned chunks)
{
    gmb_lease *extra;

    lessee_check(lessee, moving, mark_of(slot, 1, round));
    lessee_need(gmb_lease_grow(moving, CHUNK, LESSEE_WAIT_NS), "grow");
    lessee_write(lessee, moving, mark_of(slot, 1, round + 1));
    extra = lessee_take(lessee, chunks, "extra");
    lessee_write(lessee, extra, mark_of(slot, 2, round));
    lessee_need_or_later(gmb_lease_shrink(moving, CHUNK), "shrink");
    lessee_check(lessee, moving, mark_of(slot, 1, round + 1));
    lessee_check(lessee, extra, mark_of(slot, 2, round));
    lessee_need_or_later(gmb_lease_release(extra), "release");
}

static void work(struct lessee *lessee, void *data)
{
    struct slot *slot = data;
    gmb_lease *fixed, *moving;

    lessee_need(gmb_thread_start(lessee->session), "thread");
    fixed = lessee_take(lessee, 1 + slot->number % 3, "fixed");
    moving = lessee_take(lessee, 1, "moving");
    lessee_write(lessee, fixed, mark_of(slot, 0, 0));
    lessee_write(lessee, moving, mark_of(slot, 1, 0));
    for (unsigned round = 0; !atomic_load(&board->stop); round++) {
        if (atomic_load(&board->rest))
            rest(slot, fixed, moving);
        round_run(lessee, slot, moving, round, 1 + round % 2);
        lessee_check(lessee, fixed, mark_of(slot, 0, 0));
        atomic_fetch_add(&slot->rounds, 1);
        harness_breathe();
    }
    lessee_need_or_later(gmb_lease_release(fixed), "release");
    lessee_need_or_later(gmb_lease_release(moving), "release");
}

static void workers_fork(void)
{
    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(board, MAP_FAILED);
    for (unsigned i = 0; i < WORKERS; i++) {
        board->slots[i].number = i;
        processes[i] = lessee_fork(work, &board->slots[i]);
    }
}

/* ------------------------------------------------------------------ looks */

static void patience(uint64_t deadline, const char *what)
{
    for (unsigned i = 0; i < WORKERS; i++)
        ck_assert_msg(lessee_runs(&processes[i]), "worker %u has ended", i);
    ck_assert_msg(harness_now_ms() < deadline, "not in time: %s", what);
    harness_breathe();
}

/* Until everybody has begun a round and ended it. */
static void rounds_wait(void)
{
    uint64_t deadline = harness_now_ms() + PATIENCE_MS;
    unsigned before[WORKERS];

    for (unsigned i = 0; i < WORKERS; i++)
        before[i] = atomic_load(&board->slots[i].rounds);
    for (unsigned i = 0; i < WORKERS; i++) {
        while (atomic_load(&board->slots[i].rounds) < before[i] + 2)
            patience(deadline, "rounds of every worker");
    }
}

static bool counted(const struct harness *harness, uint64_t bytes, uint32_t leases)
{
    Gmb__ControlReply *reply = raw_status(harness);
    const Gmb__Status *status = reply->status;
    bool same = status->clients == WORKERS && status->leases == leases &&
                status->devices[0]->leased_bytes == bytes &&
                status->devices[0]->orphaned_bytes == 0;

    frame_message_free(&reply->base);
    return same;
}

/* Returns may be on their way still. */
static void books_compare(const struct harness *harness)
{
    uint64_t deadline = harness_now_ms() + PATIENCE_MS, bytes = 0;
    uint32_t leases = 0;

    atomic_store(&board->rest, true);
    for (unsigned i = 0; i < WORKERS; i++) {
        while (!atomic_load(&board->slots[i].resting))
            patience(deadline, "rest of every worker");
        bytes += atomic_load(&board->slots[i].bytes);
        leases += atomic_load(&board->slots[i].leases);
    }
    while (!counted(harness, bytes, leases))
        patience(deadline, "the broker counts what the workers have");
    raw_expect_accounts(harness);
    atomic_store(&board->rest, false);
}

/* ------------------------------------------------------------------ restarts */

enum restart { RESTART_KILL, RESTART_POLITE, RESTART_UPGRADE, RESTART_WATCHDOG, RESTART_MAX };

static char folder[SCRATCH_PATH_BYTES], program[96];

/* Which build lies where the keeper starts it. */
static void install(const char *path)
{
    char fresh[96];

    (void) snprintf(program, sizeof(program), "%s/gmbd", folder);
    (void) snprintf(fresh, sizeof(fresh), "%s/fresh", folder);
    ck_assert_int_eq(symlink(path, fresh), 0);
    ck_assert_int_eq(rename(fresh, program), 0);
}

static void version_get(const struct harness *harness, char ret[64])
{
    Gmb__ControlReply *reply = raw_status(harness);

    (void) snprintf(ret, 64, "%s", reply->status->version);
    frame_message_free(&reply->base);
}

static void upgrade(struct harness *harness)
{
    static bool next;
    char before[64], after[64];

    version_get(harness, before);
    next = !next;
    install(getenv(next ? "GMBD_NEXT" : "GMBD"));
    ck_assert_int_eq(kill(harness->keeper, SIGUSR1), 0);
    harness_succeed(harness, 0);
    version_get(harness, after);
    ck_assert_str_ne(before, after);
}

static void restart_run(struct harness *harness, enum restart restart)
{
    harness_keeper_renew(harness); /* which starts the next one at once */
    switch (restart) {
    case RESTART_KILL:
        harness_succeed(harness, SIGKILL);
        break;
    case RESTART_POLITE:
        ck_assert_int_eq(kill(harness->keeper, SIGUSR1), 0);
        harness_succeed(harness, 0);
        break;
    case RESTART_UPGRADE:
        upgrade(harness);
        break;
    case RESTART_WATCHDOG:
        harness_succeed(harness, SIGSTOP);
        break;
    case RESTART_MAX:
        break;
    }
}

static void keeper_settle(const struct harness *harness, size_t fds)
{
    uint64_t deadline = harness_now_ms() + PATIENCE_MS;

    while (harness_open_fds(harness->keeper) != fds) {
        ck_assert_msg(harness_now_ms() < deadline, "the keeper has %zu fds and had %zu",
            harness_open_fds(harness->keeper), fds);
        harness_breathe();
    }
}

START_TEST(no_restart_under_load_loses_a_lease_or_grants_memory_twice)
{
    static char under[128];
    const char *const environment[] = {"HARNESS_WATCHDOG=" WATCHDOG, under, NULL};
    unsigned restarts = (unsigned) strtoul(getenv("RESTARTS"), NULL, 10);
    static struct harness harness;
    size_t keeper_fds;

    ck_assert_int_eq(scratch_make(folder), 0);
    install(getenv("GMBD"));
    (void) snprintf(under, sizeof(under), "GMBD_UNDER_KEEPER=%s", program);
    workers_fork();
    harness_start_kept(&harness, NULL, environment);
    keeper_fds = harness_open_fds(harness.keeper);
    for (unsigned i = 0; i < WORKERS; i++)
        lessee_go(&processes[i], &harness);
    rounds_wait();
    for (unsigned i = 0; i < restarts; i++) {
        restart_run(&harness, i % RESTART_MAX);
        rounds_wait();
        books_compare(&harness);
    }
    atomic_store(&board->stop, true);
    for (unsigned i = 0; i < WORKERS; i++)
        lessee_join(&processes[i]);
    harness_settle(&harness);
    keeper_settle(&harness, keeper_fds);
    harness_stop(&harness);
    ck_assert_int_eq(scratch_remove(folder), 0);
}
END_TEST

UNIT_MAIN("restarts", no_restart_under_load_loses_a_lease_or_grants_memory_twice)
