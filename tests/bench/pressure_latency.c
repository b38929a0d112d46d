/*
 * A tenant stands one chunk below a watermark, and a request of another client of it takes that
 * chunk: the time from its being sent to the callback of a worker that subscribed, which the
 * library's thread calls. The floor is the same request's Grant in hand. Of the clients that
 * subscribed the worker is the last; the others read what they are sent between two rounds.
 */
#include <check.h>
#include <errno.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/resource.h>
#include <time.h>

#include "base/clock.h"
#include "client/gmb.h"
#include "tests/bench/bench.h"
#include "tests/integration/raw.h"

#define CLIENTS_MAX 1000
#define ROUNDS 60
#define PATIENCE_S 20
/* Longer than what the broker waits between two events of a device. */
#define PAUSE_NS (110 * NSEC_PER_MSEC)

static const char configuration[] =
    "[Broker]\nObserveInterval=1h\nPressureDwell=1ms\nPressureHysteresis=0%\n"
    "[Tenant bench]\nUser=*\n";

static struct {
    _Atomic uint32_t level;
    _Atomic uint64_t risen_ns; /* when the level was first above NONE */
    sem_t changed;
} worker;

static void on_pressure(void *user, unsigned device, const struct gmb_pressure *pressure)
{
    (void) user;
    (void) device;
    if (pressure->level > GMB_PRESSURE_NONE && atomic_load(&worker.level) == GMB_PRESSURE_NONE)
        atomic_store(&worker.risen_ns, clock_now(&clock_monotonic));
    atomic_store(&worker.level, pressure->level);
    (void) sem_post(&worker.changed);
}

static void on_advice(void *user, const struct gmb_advice *advice)
{
    (void) user;
    (void) advice;
}

static int level_await(bool pressed)
{
    struct timespec until;

    (void) clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE_S;
    while ((atomic_load(&worker.level) > GMB_PRESSURE_NONE) != pressed) {
        if (sem_timedwait(&worker.changed, &until) < 0 && errno == ETIMEDOUT)
            return -ETIMEDOUT;
    }
    return 0;
}

static void subscribe(struct raw *raw, const struct harness *harness)
{
    Gmb__ClientMessage message = GMB__CLIENT_MESSAGE__INIT;
    Gmb__PressureSubscribe body = GMB__PRESSURE_SUBSCRIBE__INIT;

    raw_connect(raw, harness);
    message.body_case = GMB__CLIENT_MESSAGE__BODY_PRESSURE_SUBSCRIBE;
    message.pressure_subscribe = &body;
    (void) raw_send(raw, &message);
}

/* Takes in whatever has come, unread. */
static void drain(struct raw *raws, size_t count)
{
    const uint8_t *bytes;
    size_t size;

    for (size_t i = 0; i < count; i++) {
        struct fdset fds = FDSET_EMPTY;

        while (conn_receive(raws[i].conn, &bytes, &size, &fds) == 0)
            fdset_close(&fds);
    }
}

static int round_measure(struct raw *actor, uint64_t *ret_ns, uint64_t *ret_grant_ns)
{
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    uint64_t start_ns, lease;
    int r;

    (void) nanosleep(&pause, NULL);
    start_ns = clock_now(&clock_monotonic);
    lease = raw_expect_lease(actor, raw_lease(actor, HARNESS_CHUNK, HARNESS_CHUNK, 0), 1);
    *ret_grant_ns = clock_now(&clock_monotonic) - start_ns;
    r = level_await(true);
    *ret_ns = atomic_load(&worker.risen_ns) - start_ns;
    raw_expect_done(actor, raw_release(actor, lease));
    return r < 0 ? r : level_await(false);
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *) a, y = *(const uint64_t *) b;

    return x < y ? -1 : x > y;
}

static void rows_write(
    struct bench_row *rows, const char *p50, const char *p99, uint64_t *ns, uint64_t *grant_ns)
{
    qsort(ns, ROUNDS, sizeof(*ns), compare);
    qsort(grant_ns, ROUNDS, sizeof(*grant_ns), compare);
    for (int i = 0; i < 2; i++) {
        size_t rank = i == 0 ? ROUNDS / 2 : (ROUNDS * 99 + 99) / 100 - 1;

        rows[i] = (struct bench_row){
            .name = i == 0 ? p50 : p99,
            .value = (double) ns[rank] / 1e3,
            .unit = "us",
            .floor = (double) grant_ns[rank] / 1e3,
        };
        rows[i].ratio = rows[i].value / rows[i].floor;
    }
}

/* With so many clients that have subscribed, the worker among them. */
static int clients_measure(const struct harness *harness, struct raw *actor, size_t clients,
    uint64_t *ns, uint64_t *grant_ns)
{
    static struct raw others[CLIENTS_MAX];
    struct gmb_options options = {.size = sizeof(options), .socket = harness->client_socket};
    gmb_session *session;
    int r;

    for (size_t i = 0; i + 1 < clients; i++)
        subscribe(&others[i], harness);
    atomic_store(&worker.level, GMB_PRESSURE_NONE);
    r = gmb_connect(&options, &session);
    if (r < 0)
        return -EIO;
    if (gmb_thread_start(session) < 0 ||
        gmb_pressure_subscribe(session, on_pressure, on_advice, NULL) < 0)
        r = -EIO;
    for (unsigned i = 0; r == 0 && i < ROUNDS; i++) {
        drain(others, clients - 1);
        r = round_measure(actor, &ns[i], &grant_ns[i]);
    }
    gmb_disconnect(session);
    for (size_t i = 0; i + 1 < clients; i++)
        raw_close(&others[i]);
    return r;
}

/* All but one of the chunks below the first watermark. */
static int stand_below(const struct harness *harness, struct raw *actor)
{
    struct gmb_options options = {.size = sizeof(options), .socket = harness->client_socket};
    struct gmb_device_info info = {.size = sizeof(info)};
    gmb_session *session;
    uint32_t chunks;
    int r = gmb_connect(&options, &session);

    if (r < 0)
        return -EIO;
    r = gmb_device_get(session, 0, &info);
    gmb_disconnect(session);
    if (r < 0)
        return -EIO;
    /* 80 % of the capacity, rounded up, is the first use that counts as LOW. */
    chunks = (uint32_t) ((info.capacity_bytes * 4 / 5 + HARNESS_CHUNK - 1) / HARNESS_CHUNK) - 1;
    (void) raw_expect_lease(
        actor, raw_lease(actor, chunks * HARNESS_CHUNK, HARNESS_CHUNK, 0), chunks);
    return 0;
}

int bench_pressure_latency(struct bench_row *rows, size_t max)
{
    static const char *const environment[] = {"GMB_SIM_FILL=none", NULL};
    static uint64_t ns[ROUNDS], grant_ns[ROUNDS];
    struct rlimit limit;
    struct harness harness;
    struct raw actor;
    int r;

    if (max < 4)
        return -ENOSPC;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        (void) setrlimit(RLIMIT_NOFILE, &limit);
    }
    (void) sem_init(&worker.changed, 0, 0);
    harness_start_with(&harness, configuration, environment);
    raw_connect(&actor, &harness);
    r = stand_below(&harness, &actor);
    if (r == 0)
        r = clients_measure(&harness, &actor, 1, ns, grant_ns);
    if (r == 0) {
        rows_write(rows, "pressure_latency", "pressure_latency_p99", ns, grant_ns);
        r = clients_measure(&harness, &actor, CLIENTS_MAX, ns, grant_ns);
    }
    if (r == 0)
        rows_write(rows + 2, "pressure_latency_1000", "pressure_latency_1000_p99", ns, grant_ns);
    raw_close(&actor);
    harness_discard(&harness);
    return r < 0 ? r : 4;
}
