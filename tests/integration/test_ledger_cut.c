/*
 * The broker is killed behind every write of its ledger, one run for each: whatever was written is
 * enough for the next one, and the worker notices nothing but the time.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "tests/integration/lessee.h"
#include "tests/integration/raw.h"
#include "tests/unit/unit.h"

#define CHUNK HARNESS_CHUNK
/* Runs are shared out among so many tests, each a process of its own. */
#define SHARES 4
/* A run in which no write is left to be cut off is the last; there are fewer writes than that. */
#define WRITES_MAX 400

/* What is run each time: every kind of change, with two leases at once. */
static void script(struct lessee *worker, void *data)
{
    gmb_lease *a = lessee_take(worker, 3, "a"), *b;

    (void) data;
    lessee_write(worker, a, 1);
    b = lessee_take(worker, 2, "b");
    lessee_write(worker, b, 2);
    lessee_need(gmb_lease_grow(a, 2 * CHUNK, LESSEE_WAIT_NS), "grow");
    lessee_check(worker, b, 2);
    lessee_write(worker, a, 3);
    lessee_need_or_later(gmb_lease_shrink(a, 4 * CHUNK), "shrink");
    lessee_need_or_later(gmb_lease_release(b), "release");
    b = lessee_take(worker, 4, "c");
    lessee_write(worker, b, 4);
    lessee_check(worker, a, 3);
    lessee_check(worker, b, 4);
    ck_assert_uint_eq(gmb_lease_bytes(a), 4 * CHUNK);
    lessee_need_or_later(gmb_lease_release(a), "release");
    lessee_check(worker, b, 4);
    lessee_need_or_later(gmb_lease_release(b), "release");
}

/* False when the run had fewer writes. */
static bool run_cut(unsigned write)
{
    static struct harness harness;
    char path[128], environment[160];
    const char *const extra[] = {environment, NULL};
    struct lessee_process worker;
    FILE *file;
    bool cut;

    (void) snprintf(path, sizeof(path), "%s/cut", getenv("CUT_FOLDER"));
    (void) snprintf(environment, sizeof(environment), "GMBD_CUT=%s", path);
    worker = lessee_fork(script, NULL);
    harness_start_kept(&harness, NULL, extra);
    file = fopen(path, "we");
    ck_assert_ptr_nonnull(file);
    (void) fprintf(file, "%u", write);
    ck_assert_int_eq(fclose(file), 0);
    lessee_go(&worker, &harness);
    lessee_join(&worker);
    cut = unlink(path) < 0; /* whoever removes it, the test or the broker, decides */
    if (cut)
        harness_succeed(&harness, 0);
    raw_expect_accounts(&harness);
    harness_stop(&harness);
    return cut;
}

#define EXIT_CUT 10
#define EXIT_WHOLE 11

/* Each in a process of its own: a driver is opened once for one simulated GPU. */
static bool run_apart(unsigned write)
{
    pid_t pid = fork();
    int status;

    ck_assert_int_ge(pid, 0);
    if (pid == 0)
        exit(run_cut(write) ? EXIT_CUT : EXIT_WHOLE);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_msg(
        WIFEXITED(status) && (WEXITSTATUS(status) == EXIT_CUT || WEXITSTATUS(status) == EXIT_WHOLE),
        "the run that is cut off behind write %u failed", write);
    return WEXITSTATUS(status) == EXIT_CUT;
}

static void share_run(unsigned share)
{
    char folder[SCRATCH_PATH_BYTES];
    unsigned write = 1 + share;

    ck_assert_int_eq(scratch_make(folder), 0);
    (void) setenv("CUT_FOLDER", folder, 1);
    (void) setenv("GMBD_UNDER_KEEPER", getenv("GMBD_CUT_PROGRAM"), 1);
    while (write < WRITES_MAX && run_apart(write))
        write += SHARES;
    ck_assert_uint_lt(write, WRITES_MAX);
    /* Fewer would mean that the broker writes nothing down. */
    ck_assert_uint_gt(write, 30);
    ck_assert_int_eq(scratch_remove(folder), 0);
}

START_TEST(cut_off_at_any_write_nothing_is_lost_1)
{
    share_run(0);
}
END_TEST

START_TEST(cut_off_at_any_write_nothing_is_lost_2)
{
    share_run(1);
}
END_TEST

START_TEST(cut_off_at_any_write_nothing_is_lost_3)
{
    share_run(2);
}
END_TEST

START_TEST(cut_off_at_any_write_nothing_is_lost_4)
{
    share_run(3);
}
END_TEST

UNIT_MAIN("ledger_cut", cut_off_at_any_write_nothing_is_lost_1,
    cut_off_at_any_write_nothing_is_lost_2, cut_off_at_any_write_nothing_is_lost_3,
    cut_off_at_any_write_nothing_is_lost_4)
