/*
 * The broker dies under workers that hold all kinds of sizes and go on asking: the time until
 * somebody new is granted a lease by its successor, and until every worker is back with what it
 * had. Both count from the signal, so that the end of the old process and the start of the new one
 * lie in them. A newer keeper takes over between two rounds, since one that saw a broker die a
 * moment ago waits before it starts the next.
 */
#include <check.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/pidfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "client/gmb.h"
#include "tests/bench/bench.h"
#include "tests/integration/raw.h"

#define CHUNK HARNESS_CHUNK
#define WORKERS 16
#define LEASES 4 /* of each, of 1, 2, 8 and 21 chunks */
#define CHUNKS 512
#define ROUNDS 50
#define BUDGET_MS 100 /* beyond the floor: docs/architecture.md, section 13 */
#define WAIT_NS UINT64_C(30000000000)

static const char configuration[] = "[Broker]\nRecycleIdle=1h\nObserveInterval=1h\n"
                                    "[Tenant bench]\nUser=*\n";

struct worker {
    gmb_session *session;
    pthread_t thread; /* the load: asks for one more lease and gives it back, again and again */
};

static struct worker workers[WORKERS];
static atomic_bool ending;

static gmb_lease *lease_take(gmb_session *session, uint64_t chunks)
{
    struct gmb_lease_params params = {.size = sizeof(params),
        .bytes = chunks * CHUNK,
        .chunk_bytes = CHUNK,
        .wait_ns = WAIT_NS,
        .label = "bench"};
    gmb_lease *lease;
    int r = gmb_lease_new(session, &params, &lease);

    ck_assert_msg(r == 0, "lease: %s", gmb_error_text());
    return lease;
}

static void *load(void *data)
{
    struct worker *worker = data;

    while (!atomic_load(&ending)) {
        gmb_lease *lease = lease_take(worker->session, 2);
        int r;

        (void) poll(NULL, 0, 5);
        r = gmb_lease_release(lease);
        ck_assert_msg(r == 0 || r == GMB_E_DISCONNECTED, "release: %s", gmb_error_text());
    }
    return NULL;
}

static void workers_start(const struct harness *harness)
{
    static const uint64_t chunks[LEASES] = {1, 2, 8, 21};
    struct gmb_options options = {.size = sizeof(options),
        .socket = harness->client_socket,
        .timeout_ns = WAIT_NS,
        .offline = GMB_OFFLINE_WAIT};

    for (size_t i = 0; i < WORKERS; i++) {
        ck_assert_int_eq(gmb_connect(&options, &workers[i].session), 0);
        ck_assert_int_eq(gmb_thread_start(workers[i].session), 0);
        for (size_t k = 0; k < LEASES; k++)
            (void) lease_take(workers[i].session, chunks[k]);
        /* A quarter of them, so that the processor isn't what is measured. */
        if (i % 4 == 0)
            ck_assert_int_eq(pthread_create(&workers[i].thread, NULL, load, &workers[i]), 0);
    }
}

static void workers_end(void)
{
    atomic_store(&ending, true);
    for (size_t i = 0; i < WORKERS; i++) {
        if (i % 4 == 0)
            ck_assert_int_eq(pthread_join(workers[i].thread, NULL), 0);
        gmb_disconnect(workers[i].session);
    }
}

/* Milliseconds that importing as many chunks takes as the workers hold. */
static int floor_measure(struct harness *harness, double *ret_ms)
{
    static struct gpu_chunk imports[CHUNKS];
    const struct gpu_device *device = harness->gpu->devices[0];
    const struct gpu_ops *ops = harness->gpu->ops;
    struct gpu_shareable shareable = {.fd = -1};
    struct gpu_chunk chunk = {0};
    uint64_t start_ns;
    int r = ops->chunk_create(harness->gpu, device, CHUNK, &chunk, NULL);

    if (r == 0)
        r = ops->chunk_export(harness->gpu, &chunk, &shareable, NULL);
    start_ns = clock_now(&clock_monotonic);
    for (size_t i = 0; r == 0 && i < CHUNKS; i++)
        r = ops->chunk_import_borrow(harness->gpu, device, &shareable, CHUNK, &imports[i], NULL);
    *ret_ms = (double) (clock_now(&clock_monotonic) - start_ns) / 1e6;
    for (size_t i = 0; i < CHUNKS; i++)
        (void) ops->chunk_release(harness->gpu, &imports[i], NULL);
    close_fd(&shareable.fd);
    (void) ops->chunk_release(harness->gpu, &chunk, NULL);
    return r == 0 ? 0 : -EIO;
}

static bool all_connected(const struct harness *harness)
{
    Gmb__ControlRequest request = GMB__CONTROL_REQUEST__INIT;
    Gmb__ClientsGet body = GMB__CLIENTS_GET__INIT;
    Gmb__ControlReply *reply;
    size_t connected = 0;

    request.body_case = GMB__CONTROL_REQUEST__BODY_CLIENTS_GET;
    request.clients_get = &body;
    reply = raw_control(harness, &request);
    ck_assert_int_eq(reply->body_case, GMB__CONTROL_REPLY__BODY_CLIENT_PAGE);
    for (size_t i = 0; i < reply->client_page->n_clients; i++)
        connected += reply->client_page->clients[i]->connected;
    frame_message_free(&reply->base);
    if (connected < WORKERS)
        return false;
    for (size_t i = 0; i < WORKERS; i++) {
        if (gmb_connection(workers[i].session) != GMB_CONNECTION_READY)
            return false;
    }
    return true;
}

static double since_ms(uint64_t start_ns)
{
    return (double) (clock_now(&clock_monotonic) - start_ns) / 1e6;
}

static void round_run(struct harness *harness, double *ret_granted_ms, double *ret_resumed_ms)
{
    uint64_t deadline, start_ns;
    struct pollfd dead = {.events = POLLIN};
    struct raw raw;

    harness_keeper_renew(harness);
    dead.fd = pidfd_open(harness->pid, 0);
    ck_assert_int_ge(dead.fd, 0);
    start_ns = clock_now(&clock_monotonic);
    ck_assert_int_eq(kill(harness->pid, SIGKILL), 0);
    /* Who connects before is the old broker's, and hears nothing. */
    ck_assert_int_eq(poll(&dead, 1, HARNESS_DEADLINE_MS), 1);
    close_fd(&dead.fd);
    raw_connect(&raw, harness);
    (void) raw_expect_lease(&raw, raw_lease(&raw, CHUNK, CHUNK, WAIT_NS), 1);
    *ret_granted_ms = since_ms(start_ns);
    raw_close(&raw);
    deadline = harness_now_ms() + HARNESS_DEADLINE_MS;
    while (!all_connected(harness)) {
        ck_assert_uint_lt(harness_now_ms(), deadline);
        harness_breathe();
    }
    *ret_resumed_ms = since_ms(start_ns);
    harness_succeed(harness, 0);
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *) a, y = *(const double *) b;

    return x < y ? -1 : x > y;
}

static size_t rows_add(struct bench_row *rows, double *took_ms, double floor_ms, bool judged,
    const char *median, const char *p99)
{
    const char *const names[] = {median, p99};
    const size_t places[] = {ROUNDS / 2, ROUNDS * 99 / 100};

    qsort(took_ms, ROUNDS, sizeof(*took_ms), compare);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        rows[i] = (struct bench_row){
            .name = names[i], .value = took_ms[places[i]], .unit = "ms", .floor = floor_ms};
        rows[i].ratio = rows[i].value / floor_ms;
        rows[i].budget = judged ? BUDGET_MS + floor_ms : 0;
        rows[i].met = rows[i].value <= rows[i].budget;
    }
    return ARRAY_SIZE(names);
}

int bench_restart_blackout(struct bench_row *rows, size_t max)
{
    static const char *const environment[] = {"GMB_SIM_MEMORY=4G", "GMB_SIM_FILL=none", NULL};
    static double granted_ms[ROUNDS], resumed_ms[ROUNDS];
    struct harness harness;
    size_t count = 0;
    double floor_ms;
    int r;

    if (max < 4)
        return -ENOSPC;
    bench_fds_raise();
    harness_start_kept(&harness, configuration, environment);
    r = floor_measure(&harness, &floor_ms);
    if (r == 0) {
        workers_start(&harness);
        for (size_t i = 0; i < ROUNDS; i++)
            round_run(&harness, &granted_ms[i], &resumed_ms[i]);
        workers_end();
    }
    harness_discard(&harness);
    if (r < 0)
        return r;
    count += rows_add(rows, granted_ms, floor_ms, true, "restart_blackout", "restart_blackout_p99");
    count += rows_add(
        rows + count, resumed_ms, floor_ms, false, "restart_resumed", "restart_resumed_p99");
    return (int) count;
}
