/*
 * Broker and worker are killed, told to end and stopped at each message of a script (kills.c), one
 * run for each message, or at one message of each. Another worker, which has a lease and more all
 * the while, must not notice; whoever lives ends the script; what the dead had comes back.
 */
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "tests/integration/kills.h"
#include "tests/integration/raw.h"
#include "tests/integration/segments.h"
#include "tests/integration/step.h"
#include "tests/unit/unit.h"

#define CHUNK HARNESS_CHUNK
#define PATIENCE_MS 60000
/* A run in which nobody got that far is the last; there are fewer messages than that. */
#define STEPS_MAX 600

enum interruption {
    BROKER_KILLED,
    BROKER_ENDED_TWICE,     /* a polite restart; told to end again before it is over */
    BROKER_RENEWED_TWICE,   /* a polite restart, and again before it is over */
    BROKER_STOPPED_A_WHILE, /* and goes on */
    BROKER_STOPPED_KILLED,
    BOTH_KILLED, /* the worker is dead before there is a broker again */
    WORKER_KILLED,
    WORKER_ENDED,
    WORKER_STOPPED_A_WHILE,
    WORKER_STOPPED_OVER_A_RESTART, /* and goes on with another broker */
    WORKER_STOPPED_DIES_ALONE,     /* while the broker is away */
    INTERRUPTION_MAX
};

static const struct {
    bool broker, parent; /* who counts messages; whether the keeper is told */
    int signal;
    bool survives; /* the worker */
} kinds[INTERRUPTION_MAX] = {
    [BROKER_KILLED] = {true, false, SIGKILL, true},
    [BROKER_ENDED_TWICE] = {true, true, SIGUSR1, true},
    [BROKER_RENEWED_TWICE] = {true, true, SIGUSR1, true},
    [BROKER_STOPPED_A_WHILE] = {true, false, SIGSTOP, true},
    [BROKER_STOPPED_KILLED] = {true, false, SIGSTOP, true},
    [BOTH_KILLED] = {true, false, SIGSTOP, false},
    [WORKER_KILLED] = {false, false, SIGKILL, false},
    [WORKER_ENDED] = {false, false, SIGTERM, false},
    [WORKER_STOPPED_A_WHILE] = {false, false, SIGSTOP, true},
    [WORKER_STOPPED_OVER_A_RESTART] = {false, false, SIGSTOP, true},
    [WORKER_STOPPED_DIES_ALONE] = {false, false, SIGSTOP, false},
};

/* ------------------------------------------------------------------ workers */

static const struct kills_script *script;

static struct board {
    atomic_bool held, stop; /* by the one that must not notice; that it may end */
    char path[128];         /* for the other one: where its step stands; else empty */
} * board;

static void scripted(struct lessee *lessee, void *data)
{
    if (board->path[0] != '\0')
        (void) setenv(STEP_VARIABLE, board->path, 1);
    script->work(lessee, data);
}

static void beside(lessee_run *run, struct lessee *lessee)
{
    if (run != NULL)
        run(lessee, NULL);
}

static void bystander(struct lessee *lessee, void *data)
{
    gmb_lease *lease = lessee_take(lessee, 2, "bystander");

    (void) data;
    lessee_need(gmb_thread_start(lessee->session), "thread");
    lessee_write(lessee, lease, 77);
    beside(script->hold, lessee);
    atomic_store(&board->held, true);
    while (!atomic_load(&board->stop)) {
        lessee_check(lessee, lease, 77);
        beside(script->look, lessee);
        harness_breathe();
    }
    beside(script->look, lessee);
    beside(script->let_go, lessee);
    lessee_need(gmb_lease_grow(lease, CHUNK, LESSEE_WAIT_NS), "grow");
    lessee_need_or_later(gmb_lease_shrink(lease, 2 * CHUNK), "shrink");
    lessee_check(lessee, lease, 77);
    lessee_need_or_later(gmb_lease_release(lease), "release");
}

/* ------------------------------------------------------------------ interruptions */

static void patience(uint64_t deadline, const char *what)
{
    ck_assert_msg(harness_now_ms() < deadline, "not in time: %s", what);
    harness_breathe();
}

static void wait_stopped(pid_t pid)
{
    uint64_t deadline = harness_now_ms() + PATIENCE_MS;

    while (harness_process_state(pid) != 'T')
        patience(deadline, "the process stops");
}

/* `may_be_done`: at the broker's last messages the script is over. */
static void worker_dies(struct lessee_process *worker, bool may_be_done)
{
    int status;

    ck_assert_int_eq(waitpid(worker->pid, &status, 0), worker->pid);
    ck_assert_msg(WIFSIGNALED(status) || (may_be_done && status == 0),
        "the worker ended by itself with %d", status);
    worker->pid = 0;
}

/* Broker and worker at once; the keeper sees it only when both are gone. */
static void both_kill(struct harness *harness, struct lessee_process *worker)
{
    ck_assert_int_eq(kill(harness->keeper, SIGSTOP), 0);
    wait_stopped(harness->keeper);
    ck_assert_int_eq(kill(harness->pid, SIGKILL), 0);
    ck_assert_int_eq(kill(worker->pid, SIGKILL), 0);
    worker_dies(worker, true);
    ck_assert_int_eq(kill(harness->keeper, SIGCONT), 0);
    harness_succeed(harness, 0);
}

/* What is left to do once it has come so far. */
static void go_on(struct harness *harness, struct lessee_process *worker, enum interruption kind)
{
    pid_t stopped = kinds[kind].broker ? harness->pid : worker->pid;

    if (kinds[kind].signal == SIGSTOP)
        wait_stopped(stopped);
    switch (kind) {
    case BROKER_KILLED:
        harness_succeed(harness, 0);
        break;
    case BROKER_ENDED_TWICE:
        (void) kill(harness->pid, SIGTERM); /* unless it has ended */
        harness_succeed(harness, 0);
        break;
    case BROKER_RENEWED_TWICE:
        ck_assert_int_eq(kill(harness->keeper, SIGUSR1), 0);
        break;
    case BROKER_STOPPED_A_WHILE:
    case WORKER_STOPPED_A_WHILE:
        ck_assert_int_eq(kill(stopped, SIGCONT), 0);
        break;
    case BROKER_STOPPED_KILLED:
        harness_succeed(harness, SIGKILL);
        break;
    case BOTH_KILLED:
    case WORKER_STOPPED_DIES_ALONE:
        both_kill(harness, worker);
        break;
    case WORKER_KILLED:
    case WORKER_ENDED:
        worker_dies(worker, false);
        break;
    case WORKER_STOPPED_OVER_A_RESTART:
        harness_succeed(harness, SIGKILL);
        ck_assert_int_eq(kill(stopped, SIGCONT), 0);
        break;
    case INTERRUPTION_MAX:
        break;
    }
}

/* The second SIGUSR1 ends the first one's broker or the one after it. A keeper hands over when none
 * is about to end. */
static void calm_wait(struct harness *harness)
{
    harness_keeper_renew(harness);
    harness_find(harness);
    ck_assert(harness_logged(harness, "the broker ended with"));
}

static void wait_dead_gone(const struct harness *harness)
{
    uint64_t deadline = harness_now_ms() + PATIENCE_MS;
    uint32_t clients;

    do {
        Gmb__ControlReply *reply = raw_status(harness);

        clients = reply->status->clients;
        frame_message_free(&reply->base);
        patience(deadline, "the dead worker is forgotten");
    } while (clients > 1);
}

/* False when nobody got as far as that message. */
static bool run_interrupted(int number, unsigned n)
{
    static struct harness harness;
    char folder[SCRATCH_PATH_BYTES], path[96], variable[128], under[160];
    const char *const environment[] = {variable, under, NULL};
    struct lessee_process worker, other;
    enum interruption kind = (enum interruption) number;
    uint64_t deadline;
    bool taken = false;

    ck_assert_int_lt(number, INTERRUPTION_MAX);
    ck_assert_int_eq(scratch_make(folder), 0);
    (void) snprintf(path, sizeof(path), "%s/step", folder);
    (void) snprintf(
        variable, sizeof(variable), "%s=%s", STEP_VARIABLE, kinds[kind].broker ? path : "/nowhere");
    (void) snprintf(under, sizeof(under), "GMBD_UNDER_KEEPER=%s", getenv("GMBD_STEP_PROGRAM"));
    (void) snprintf(board->path, sizeof(board->path), "%s", kinds[kind].broker ? "" : path);
    atomic_store(&board->held, false);
    atomic_store(&board->stop, false);
    (void) setenv("GMB_SIM_DEVICES", script->devices, 1);
    worker = lessee_fork(scripted, NULL);
    other = lessee_fork(bystander, NULL);
    harness_start_kept(&harness, KILLS_CONFIG, environment);
    lessee_go(&other, &harness);
    deadline = harness_now_ms() + PATIENCE_MS;
    while (!atomic_load(&board->held))
        patience(deadline, "the lease of the bystander");
    step_arm(path, n, kinds[kind].signal, kinds[kind].parent);
    lessee_go(&worker, &harness);
    while (!(taken = step_taken(path)) && lessee_runs(&worker))
        patience(deadline, "the script");
    if (taken)
        go_on(&harness, &worker, kind);
    else
        taken = !step_disarm(path);
    if (worker.pid != 0 && (kinds[kind].survives || !taken))
        lessee_join(&worker);
    if (kind == BROKER_RENEWED_TWICE && taken)
        calm_wait(&harness);
    wait_dead_gone(&harness);
    atomic_store(&board->stop, true);
    lessee_join(&other);
    segments_clear(&harness);
    raw_expect_accounts(&harness);
    harness_stop(&harness);
    ck_assert_int_eq(scratch_remove(folder), 0);
    return taken;
}

/* ------------------------------------------------------------------ runs */

static void play_all(int kind)
{
    unsigned n = 1;

    while (n < STEPS_MAX && step_run_apart(run_interrupted, kind, n))
        n++;
    ck_assert_uint_lt(n, STEPS_MAX);
    ck_assert_uint_gt(n, script->messages);
}

/* Each kind of interruption at another one. */
static void play_one(int kind)
{
    unsigned n = 1 + (unsigned) kind * script->messages / INTERRUPTION_MAX;

    ck_assert(step_run_apart(run_interrupted, kind, n));
}

START_TEST(whoever_is_interrupted_at_any_message_nobody_else_notices)
{
    script = kills_find(getenv("KILLS_SCRIPT"));
    ck_assert_ptr_nonnull(script);
    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(board, MAP_FAILED);
    if (getenv("KILLS_ALL") != NULL)
        play_all(_i);
    else
        play_one(_i);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("kills");
    TCase *tcase = tcase_create("kills");

    tcase_add_loop_test(
        tcase, whoever_is_interrupted_at_any_message_nobody_else_notices, 0, INTERRUPTION_MAX);
    suite_add_tcase(suite, tcase);
    return unit_run_suite(suite);
}
