/*
 * The mover is killed, told to end and stopped at each of its messages while pages are evicted and
 * restored, one run for each message: every page is the worker's, byte for byte.
 */
#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/integration/orders.h"
#include "tests/integration/pages.h"
#include "tests/integration/step.h"
#include "tests/unit/unit.h"

#define PAGE (UINT64_C(64) << 10)
#define PER_CHUNK ((uint32_t) (HARNESS_CHUNK / PAGE))
#define CHUNKS 4
#define BROKER HARNESS_BROKER "HostTier=256M\nMoverIdle=200ms\n"
/* A run in which the mover didn't get that far is the last; there are fewer messages than that. */
#define STEPS_MAX 200
#define STEPS_MIN 6

enum interruption { KILLED, ENDED, STOPPED_A_WHILE, STOPPED_KILLED, INTERRUPTION_MAX };

static const int signals[INTERRUPTION_MAX] = {
    [KILLED] = SIGKILL,
    [ENDED] = SIGTERM,
    [STOPPED_A_WHILE] = SIGSTOP,
    [STOPPED_KILLED] = SIGSTOP,
};

/* Whoever is stopped gets `signal`, beside the test, which waits for pages meanwhile. The broker
 * may end it before. */
static pid_t rouser_start(const struct harness *harness, const char *path, int signal)
{
    pid_t pid = fork(), movers[8];

    ck_assert_int_ge(pid, 0);
    if (pid != 0)
        return pid;
    (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) {
        size_t count = step_taken(path) ? harness_movers(harness, movers, ARRAY_SIZE(movers)) : 0;

        for (size_t i = 0; i < count; i++) {
            if (harness_process_state(movers[i]) == 'T')
                (void) kill(movers[i], signal);
        }
        harness_breathe();
    }
}

static void rouser_end(pid_t pid)
{
    ck_assert_int_eq(kill(pid, SIGKILL), 0);
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}

/* False when the mover didn't get as far as that message. */
static bool run_interrupted(int kind, unsigned n)
{
    static struct harness harness;
    static struct pages pages;
    char folder[SCRATCH_PATH_BYTES], path[96], variable[128], mover[160];
    const char *const environment[] = {variable, mover, NULL};
    pid_t rouser;
    bool taken;

    ck_assert_int_lt(kind, INTERRUPTION_MAX);
    ck_assert_int_eq(scratch_make(folder), 0);
    (void) snprintf(path, sizeof(path), "%s/step", folder);
    (void) snprintf(variable, sizeof(variable), "%s=%s", STEP_VARIABLE, path);
    (void) snprintf(mover, sizeof(mover), "GMB_MOVER=%s", getenv("GMBD_STEP_MOVER"));
    ck_assert_int_eq(chmod(folder, 0777), 0); /* the mover is another user, and takes the file */
    harness_start_with(&harness, BROKER HARNESS_TENANT, environment);
    rouser = rouser_start(&harness, path, kind == STOPPED_KILLED ? SIGKILL : SIGCONT);
    pages_open(&pages, &harness, PAGE, HARNESS_CHUNK, 2 * CHUNKS * HARNESS_CHUNK);
    pages_fill(&pages, CHUNKS * PER_CHUNK);
    step_arm(path, n, signals[kind], false);
    ck_assert_int_eq(chmod(path, 0666), 0);
    (void) order_evict(&harness, "test", CHUNKS * HARNESS_CHUNK);
    pages_wait_evicted(&pages, (CHUNKS - 1) * PER_CHUNK);
    pages_check(&pages, 0, pages.count, PER_CHUNK);
    taken = !step_disarm(path);
    rouser_end(rouser);
    pages_close(&pages);
    harness_stop(&harness);
    ck_assert_int_eq(scratch_remove(folder), 0);
    return taken;
}

START_TEST(a_mover_that_is_interrupted_at_any_message_loses_no_page)
{
    unsigned n = 1;

    while (n < STEPS_MAX && step_run_apart(run_interrupted, _i, n))
        n++;
    ck_assert_uint_lt(n, STEPS_MAX);
    ck_assert_uint_gt(n, STEPS_MIN);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("mover kills");
    TCase *tcase = tcase_create("mover kills");

    tcase_add_loop_test(
        tcase, a_mover_that_is_interrupted_at_any_message_loses_no_page, 0, INTERRUPTION_MAX);
    suite_add_tcase(suite, tcase);
    return unit_run_suite(suite);
}
