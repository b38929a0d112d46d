/*
 * The broker is killed behind every write of its ledger, one run for each: whatever was written is
 * enough for the next one, and the worker notices nothing but the time.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "client/gmb.h"
#include "tests/integration/raw.h"
#include "tests/unit/unit.h"

#define CHUNK HARNESS_CHUNK
#define WAIT_NS (UINT64_C(30) * 1000000000)
/* Runs are shared out among so many tests, each a process of its own. */
#define SHARES 4
/* A run in which no write is left to be cut off is the last; there are fewer writes than that. */
#define WRITES_MAX 400

struct worker {
    gmb_session *session;
    int (*set_current)(void *context);
    int (*to_device)(uint64_t address, const void *bytes, size_t size);
    int (*to_host)(void *bytes, uint64_t address, size_t size);
};

static void need(int r, const char *what)
{
    ck_assert_msg(r == 0, "%s: %d, %s", what, r, gmb_error_text());
}

/* What the broker could not be told is told when the library is back with it. */
static void need_or_later(int r, const char *what)
{
    ck_assert_msg(r == 0 || r == GMB_E_DISCONNECTED, "%s: %d, %s", what, r, gmb_error_text());
}

static void symbol_get(struct worker *worker, const char *name, void *ret_function)
{
    void *symbol = gmb_driver_symbol(worker->session, name);

    ck_assert_ptr_nonnull(symbol);
    memcpy(ret_function, &symbol, sizeof(symbol));
}

static void worker_connect(struct worker *worker, const struct harness *harness)
{
    struct gmb_options options = {.size = sizeof(options),
        .socket = harness->client_socket,
        .timeout_ns = WAIT_NS,
        .offline = GMB_OFFLINE_WAIT};
    uint64_t deadline = harness_now_ms() + HARNESS_DEADLINE_MS;

    /* Only a session that was welcomed comes back by itself. */
    while (gmb_connect(&options, &worker->session) != 0) {
        ck_assert_msg(harness_now_ms() < deadline, "connect: %s", gmb_error_text());
        harness_breathe();
    }
    symbol_get(worker, "cuCtxSetCurrent", &worker->set_current);
    symbol_get(worker, "cuMemcpyHtoD_v2", &worker->to_device);
    symbol_get(worker, "cuMemcpyDtoH_v2", &worker->to_host);
}

static gmb_lease *lease_take(struct worker *worker, uint64_t chunks, const char *label)
{
    struct gmb_lease_params params = {.size = sizeof(params),
        .bytes = chunks * CHUNK,
        .max_bytes = 8 * CHUNK,
        .chunk_bytes = CHUNK,
        .wait_ns = WAIT_NS,
        .label = label};
    gmb_lease *lease;

    need(gmb_lease_new(worker->session, &params, &lease), label);
    need(worker->set_current(gmb_lease_context(lease)), "context");
    return lease;
}

/* The first bytes of each chunk say whose it is and where. */
static void pattern_write(struct worker *worker, gmb_lease *lease, uint64_t mark)
{
    for (uint64_t at = 0; at < gmb_lease_bytes(lease); at += CHUNK) {
        uint64_t words[2] = {mark, at};

        need(worker->to_device(gmb_lease_address(lease) + at, words, sizeof(words)), "write");
    }
}

static void pattern_check(struct worker *worker, gmb_lease *lease, uint64_t mark)
{
    for (uint64_t at = 0; at < gmb_lease_bytes(lease); at += CHUNK) {
        uint64_t words[2];

        need(worker->to_host(words, gmb_lease_address(lease) + at, sizeof(words)), "read");
        ck_assert_uint_eq(words[0], mark);
        ck_assert_uint_eq(words[1], at);
    }
}

/* What is run each time: every kind of change, with two leases at once. */
static void script(struct worker *worker)
{
    gmb_lease *a = lease_take(worker, 3, "a"), *b;

    pattern_write(worker, a, 1);
    b = lease_take(worker, 2, "b");
    pattern_write(worker, b, 2);
    need(gmb_lease_grow(a, 2 * CHUNK, WAIT_NS), "grow");
    pattern_check(worker, b, 2);
    pattern_write(worker, a, 3);
    need_or_later(gmb_lease_shrink(a, 4 * CHUNK), "shrink");
    need_or_later(gmb_lease_release(b), "release");
    b = lease_take(worker, 4, "c");
    pattern_write(worker, b, 4);
    pattern_check(worker, a, 3);
    pattern_check(worker, b, 4);
    ck_assert_uint_eq(gmb_lease_bytes(a), 4 * CHUNK);
    need_or_later(gmb_lease_release(a), "release");
    pattern_check(worker, b, 4);
    need_or_later(gmb_lease_release(b), "release");
}

/* The device's parts make its total, and what the tenant uses is what it has. */
static void accounts_check(const struct harness *harness)
{
    Gmb__ControlRequest request = GMB__CONTROL_REQUEST__INIT;
    Gmb__StatusGet body = GMB__STATUS_GET__INIT;
    const Gmb__DeviceStatus *device;
    Gmb__ControlReply *reply;

    request.body_case = GMB__CONTROL_REQUEST__BODY_STATUS_GET;
    request.status_get = &body;
    reply = raw_control(harness, &request);
    ck_assert_int_eq(reply->body_case, GMB__CONTROL_REPLY__BODY_STATUS);
    device = reply->status->devices[0];
    ck_assert_uint_eq(device->reserve_bytes + device->leased_bytes + device->cached_bytes +
                          device->clean_bytes + device->releasing_bytes + device->orphaned_bytes +
                          device->unaccounted_bytes + device->free_bytes,
        device->total_bytes);
    ck_assert_uint_eq(device->orphaned_bytes, 0);
    frame_message_free(&reply->base);
}

/*
 * The worker, in a process of its own: what it could not tell the broker ends with it. It is forked
 * before the harness opens the driver, and told afterwards where the broker is.
 */
static pid_t worker_fork(int *ret_go)
{
    int go[2];
    pid_t pid;

    ck_assert_int_eq(pipe(go), 0);
    pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        static struct harness harness;
        struct worker worker;
        char sim[128];

        (void) close(go[1]);
        if (read(go[0], &harness, sizeof(harness)) != (ssize_t) sizeof(harness))
            _exit(EXIT_FAILURE);
        (void) snprintf(sim, sizeof(sim), "%s/sim", harness.dir);
        (void) setenv("GMB_SIM_DIR", sim, 1);
        (void) setenv("GMB_SIM_MEMORY", "1G", 1);
        worker_connect(&worker, &harness);
        script(&worker);
        gmb_disconnect(worker.session);
        _exit(EXIT_SUCCESS);
    }
    (void) close(go[0]);
    *ret_go = go[1];
    return pid;
}

static void worker_run(pid_t pid, int go, const struct harness *harness)
{
    int status;

    ck_assert_int_eq(write(go, harness, sizeof(*harness)), sizeof(*harness));
    (void) close(go);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the worker failed");
}

/* False when the run had fewer writes. */
static bool run_cut(unsigned write)
{
    static struct harness harness;
    char path[128], environment[160];
    const char *const extra[] = {environment, NULL};
    FILE *file;
    bool cut;
    pid_t pid;
    int go;

    (void) snprintf(path, sizeof(path), "%s/cut", getenv("CUT_FOLDER"));
    (void) snprintf(environment, sizeof(environment), "GMBD_CUT=%s", path);
    pid = worker_fork(&go);
    harness_start_kept(&harness, NULL, extra);
    file = fopen(path, "we");
    ck_assert_ptr_nonnull(file);
    (void) fprintf(file, "%u", write);
    ck_assert_int_eq(fclose(file), 0);
    worker_run(pid, go, &harness);
    cut = unlink(path) < 0; /* whoever removes it, the test or the broker, decides */
    if (cut)
        harness_succeed(&harness, 0);
    accounts_check(&harness);
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
