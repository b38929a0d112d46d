/*
 * Many threads on one session: whoever reads, everybody gets the own answer. A thread plays a
 * broker that grants, in two parts where it can, and answers everything; TSan watches.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>

#include "tests/client/script.h"
#include "tests/unit/unit.h"

#define THREADS 8
#define ROUNDS 40

static struct script script;

/* The leases of the played broker. */
static uint32_t lease_chunks[THREADS * ROUNDS * 2 + 64];
static uint64_t last_lease;

static void grant_send(uint64_t id, uint64_t lease, uint32_t first, uint32_t count)
{
    uint32_t total = first + count, half = count / 2;
    struct grant grant;

    if (half > 0) {
        grant_fill(&grant, id, first, half, total);
        grant.grant.lease = lease;
        broker_send(&script, &grant.message.base, half);
    }
    grant_fill(&grant, id, first + half, count - half, total);
    grant.grant.lease = lease;
    broker_send(&script, &grant.message.base, count - half);
    lease_chunks[lease] = total;
}

static void message_play(const Gmb__ClientMessage *message)
{
    uint64_t lease;

    switch ((int) message->body_case) {
    case GMB__CLIENT_MESSAGE__BODY_LEASE_REQUEST:
        grant_send(
            message->id, ++last_lease, 0, (uint32_t) (message->lease_request->bytes / CHUNK));
        break;
    case GMB__CLIENT_MESSAGE__BODY_LEASE_GROW:
        lease = message->lease_grow->lease;
        grant_send(message->id, lease, lease_chunks[lease],
            (uint32_t) (message->lease_grow->bytes / CHUNK));
        break;
    case GMB__CLIENT_MESSAGE__BODY_LEASE_SHRINK:
        lease_chunks[message->lease_shrink->lease] = message->lease_shrink->keep_chunks;
        broker_done(&script, message->id);
        break;
    default:
        broker_done(&script, message->id);
    }
}

/* Plays until the session is disconnected. */
static void *broker_main(void *data)
{
    for (;;) {
        struct pollfd poll_fd = {.fd = conn_fd(script.conn), .events = POLLIN};
        struct fdset fds = FDSET_EMPTY;
        Gmb__ClientMessage *message;
        const uint8_t *bytes;
        size_t size;
        int r = conn_receive(script.conn, &bytes, &size, &fds);

        if (r == -EAGAIN) {
            if (conn_wants_write(script.conn))
                poll_fd.events |= POLLOUT;
            (void) poll(&poll_fd, 1, -1);
            r = conn_flush(script.conn);
            if (r == 0)
                continue;
        }
        if (r < 0 || frame_decode_client(bytes, size, &message) < 0)
            return NULL;
        message_play(message);
        message_free(message);
    }
}

/* Takes, grows, shrinks and releases; the number of the failed step, or 0. */
static void *worker_main(void *data)
{
    unsigned number = (unsigned) (uintptr_t) data;

    for (unsigned round = 0; round < ROUNDS; round++) {
        struct gmb_lease_params params = {
            .size = sizeof(params),
            .bytes = (1 + (number + round) % 3) * CHUNK,
            .max_bytes = 8 * CHUNK,
        };
        gmb_lease *lease;

        if (gmb_lease_new(script.session, &params, &lease) != 0)
            return (void *) (uintptr_t) 1;
        if (gmb_lease_grow(lease, 2 * CHUNK, 0) != 0)
            return (void *) (uintptr_t) 2;
        if (gmb_lease_bytes(lease) != params.bytes + 2 * CHUNK)
            return (void *) (uintptr_t) 3;
        if (gmb_lease_shrink(lease, CHUNK) != 0)
            return (void *) (uintptr_t) 4;
        if (gmb_lease_release(lease) != 0)
            return (void *) (uintptr_t) 5;
    }
    return NULL;
}

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned count;
    int errors;
    bool signals_open; /* a signal is not blocked where callbacks run */
} heard = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static void release_heard(void *user, gmb_lease *lease, int error)
{
    sigset_t blocked;
    int r = error != 0 ? error : gmb_lease_release(lease);

    (void) pthread_mutex_lock(&heard.lock);
    (void) pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    heard.signals_open = heard.signals_open || !sigismember(&blocked, SIGTERM);
    heard.count++;
    heard.errors += r != 0;
    (void) pthread_cond_signal(&heard.changed);
    (void) pthread_mutex_unlock(&heard.lock);
}

static void async_ask(unsigned count)
{
    struct gmb_lease_params params = {.size = sizeof(params), .bytes = CHUNK};

    for (unsigned i = 0; i < count; i++)
        ck_assert_int_eq(
            gmb_lease_new_async(script.session, &params, release_heard, NULL, NULL), 0);
}

static void begin(pthread_t *broker)
{
    script_begin(&script);
    script_connect(&script);
    ck_assert_int_eq(pthread_create(broker, NULL, broker_main, NULL), 0);
}

static void end(pthread_t broker)
{
    gmb_disconnect(TAKE_PTR(script.session));
    ck_assert_int_eq(pthread_join(broker, NULL), 0);
    script_end(&script);
}

static void workers_run(pthread_t threads[THREADS])
{
    for (uintptr_t i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, worker_main, (void *) i), 0);
}

static void workers_join(pthread_t threads[THREADS])
{
    for (unsigned i = 0; i < THREADS; i++) {
        void *step;

        ck_assert_int_eq(pthread_join(threads[i], &step), 0);
        ck_assert_uint_eq((uintptr_t) step, 0);
    }
    ck_assert_uint_eq(fake_gpu_mapped(), 0);
}

START_TEST(blocking_calls_of_many_threads_share_one_reader)
{
    pthread_t broker, threads[THREADS];

    begin(&broker);
    workers_run(threads);
    workers_join(threads);
    end(broker);
}
END_TEST

START_TEST(background_thread_serves_callbacks_beside_blocking_calls)
{
    pthread_t broker, threads[THREADS];

    begin(&broker);
    ck_assert_int_eq(gmb_thread_start(script.session), 0);
    ck_assert_int_eq(gmb_thread_start(script.session), GMB_E_INVALID);
    ck_assert_int_eq(gmb_dispatch(script.session, 0), GMB_E_INVALID);
    workers_run(threads);
    async_ask(60);
    (void) pthread_mutex_lock(&heard.lock);
    while (heard.count < 60)
        (void) pthread_cond_wait(&heard.changed, &heard.lock);
    ck_assert_int_eq(heard.errors, 0);
    ck_assert(!heard.signals_open);
    (void) pthread_mutex_unlock(&heard.lock);
    workers_join(threads);
    end(broker);
}
END_TEST

START_TEST(event_loop_serves_callbacks_beside_blocking_calls)
{
    pthread_t broker, threads[THREADS];
    int count = 0;

    begin(&broker);
    workers_run(threads);
    async_ask(60);
    while (count < 60) {
        struct pollfd poll_fd = {.fd = gmb_fd(script.session), .events = POLLIN};
        int r;

        ck_assert_int_eq(poll(&poll_fd, 1, 10000), 1);
        r = gmb_dispatch(script.session, 0);
        ck_assert_int_ge(r, 0);
        count += r;
    }
    ck_assert_int_eq(heard.errors, 0);
    workers_join(threads);
    end(broker);
}
END_TEST

START_TEST(disconnect_ends_an_idle_background_thread)
{
    pthread_t broker;

    begin(&broker);
    ck_assert_int_eq(gmb_thread_start(script.session), 0);
    end(broker);
}
END_TEST

/* The thread outlives the connection and still calls back. */
START_TEST(background_thread_tells_that_the_broker_has_gone)
{
    script_begin(&script);
    script_connect(&script);
    ck_assert_int_eq(gmb_thread_start(script.session), 0);
    async_ask(1);
    (void) broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_LEASE_REQUEST);
    broker_close(&script);
    (void) pthread_mutex_lock(&heard.lock);
    while (heard.count < 1)
        (void) pthread_cond_wait(&heard.changed, &heard.lock);
    ck_assert_int_eq(heard.errors, 1);
    (void) pthread_mutex_unlock(&heard.lock);
    script_end(&script);
}
END_TEST

UNIT_MAIN("client threads", blocking_calls_of_many_threads_share_one_reader,
    background_thread_serves_callbacks_beside_blocking_calls,
    event_loop_serves_callbacks_beside_blocking_calls, disconnect_ends_an_idle_background_thread,
    background_thread_tells_that_the_broker_has_gone)
