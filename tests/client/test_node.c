/* libgmb against the real broker and the simulated driver, in real processes. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/client/node.h"
#include "tests/unit/unit.h"

#define TENANT_ALL "[Tenant chat]\nUser=*\n"
/* Root can be two users, and so two tenants; elsewhere the two are clients of one. */
#define TENANT_TWO "[Tenant other]\nUser=65534\n[Tenant chat]\nUser=*\n"

static struct node node;

static gmb_lease *lease_take(gmb_session *session, uint64_t bytes, uint64_t max_bytes)
{
    struct gmb_lease_params params = {
        .size = sizeof(params), .bytes = bytes, .max_bytes = max_bytes, .wait_ns = WAIT_NS};
    gmb_lease *lease = NULL;

    WORKER_CHECK(gmb_lease_new(session, &params, &lease) == 0);
    return lease;
}

static void run_grow_and_shrink(const struct node *on, int fd, uint64_t argument)
{
    gmb_session *session = worker_connect(on);
    gmb_lease *lease = lease_take(session, 3 * CHUNK_BYTES, 20 * CHUNK_BYTES);
    uint64_t address = gmb_lease_address(lease);

    lease_fill(session, lease, 0, 3 * CHUNK_BYTES, 0xa5);
    WORKER_CHECK(gmb_lease_grow(lease, 17 * CHUNK_BYTES, 0) == 0);
    WORKER_CHECK(gmb_lease_bytes(lease) == 20 * CHUNK_BYTES);
    WORKER_CHECK(gmb_lease_address(lease) == address);
    WORKER_CHECK(lease_holds(session, lease, 0, 3 * CHUNK_BYTES, 0xa5));
    lease_fill(session, lease, 3 * CHUNK_BYTES, 17 * CHUNK_BYTES, 0x5a);
    WORKER_CHECK(gmb_lease_shrink(lease, 4 * CHUNK_BYTES) == 0);
    WORKER_CHECK(gmb_lease_address(lease) == address);
    WORKER_CHECK(lease_holds(session, lease, 0, 3 * CHUNK_BYTES, 0xa5));
    WORKER_CHECK(lease_holds(session, lease, 3 * CHUNK_BYTES, CHUNK_BYTES, 0x5a));
    WORKER_CHECK(gmb_lease_grow(lease, CHUNK_BYTES, 0) == 0);
    WORKER_CHECK(lease_holds(session, lease, 0, 3 * CHUNK_BYTES, 0xa5));
    say(fd, gmb_lease_bytes(lease));
    (void) hear(fd);
    WORKER_CHECK(gmb_lease_release(lease) == 0);
    gmb_disconnect(session);
}

START_TEST(grow_and_shrink_keep_address_and_contents)
{
    struct worker worker;

    node_start(&node, 64 * CHUNK_BYTES, TENANT_ALL);
    worker_start(&node, &worker, run_grow_and_shrink, 0);
    ck_assert_uint_eq(hear(worker.fd), 5 * CHUNK_BYTES);
    ck_assert_uint_eq(node_leased(&node), 5 * CHUNK_BYTES);
    say(worker.fd, 0);
    worker_end(&worker);
    node_stop(&node);
}
END_TEST

#define RACE_CHUNKS 61

/* Takes one chunk after the other until it is refused, and says how many it got. */
static void run_racer(const struct node *on, int fd, uint64_t argument)
{
    gmb_lease *leases[RACE_CHUNKS + 1];
    uint64_t count = 0;
    gmb_session *session;

    if (argument == 1 && geteuid() == 0)
        WORKER_CHECK(setgid(65534) == 0 && setuid(65534) == 0);
    session = worker_connect(on);
    say(fd, 0);
    (void) hear(fd);
    for (;;) {
        struct gmb_lease_params params = {.size = sizeof(params), .bytes = CHUNK_BYTES};
        int r = gmb_lease_new(session, &params, &leases[count]);

        if (r != 0) {
            WORKER_CHECK(r == GMB_E_EXHAUSTED);
            WORKER_CHECK(strcmp(gmb_error_limit(), "device") == 0);
            break;
        }
        WORKER_CHECK(++count <= RACE_CHUNKS);
    }
    say(fd, count);
    (void) hear(fd);
    while (count > 0)
        WORKER_CHECK(gmb_lease_release(leases[--count]) == 0);
    gmb_disconnect(session);
}

/* A limit that is checked and memory taken in two steps would let both pass. */
START_TEST(two_tenants_racing_for_the_last_bytes_share_exactly_what_there_is)
{
    struct worker racers[2];
    uint64_t count = 0;

    node_start(&node, RACE_CHUNKS * CHUNK_BYTES, TENANT_TWO);
    for (uint64_t i = 0; i < 2; i++)
        worker_start(&node, &racers[i], run_racer, i);
    for (unsigned i = 0; i < 2; i++)
        (void) hear(racers[i].fd);
    for (unsigned i = 0; i < 2; i++)
        say(racers[i].fd, 0);
    for (unsigned i = 0; i < 2; i++)
        count += hear(racers[i].fd);
    ck_assert_uint_eq(count, RACE_CHUNKS);
    ck_assert_uint_eq(node_leased(&node), RACE_CHUNKS * CHUNK_BYTES);
    for (unsigned i = 0; i < 2; i++)
        say(racers[i].fd, 0);
    for (unsigned i = 0; i < 2; i++)
        worker_end(&racers[i]);
    node_stop(&node);
}
END_TEST

static void run_forker(const struct node *on, int fd, uint64_t argument)
{
    gmb_session *session = worker_connect(on);
    gmb_lease *lease = lease_take(session, CHUNK_BYTES, 4 * CHUNK_BYTES);
    int status = -1;
    pid_t pid;

    lease_fill(session, lease, 0, CHUNK_BYTES, 0x77);
    if (argument == 1)
        WORKER_CHECK(gmb_thread_start(session) == 0);
    pid = fork();
    if (pid == 0) {
        WORKER_CHECK(gmb_lease_grow(lease, CHUNK_BYTES, 0) == GMB_E_FORKED);
        WORKER_CHECK(gmb_lease_release(lease) == GMB_E_FORKED);
        gmb_disconnect(session);
        _exit(0);
    }
    WORKER_CHECK(waitpid(pid, &status, 0) == pid && status == 0);
    WORKER_CHECK(gmb_lease_grow(lease, CHUNK_BYTES, 0) == 0);
    WORKER_CHECK(lease_holds(session, lease, 0, CHUNK_BYTES, 0x77));
    WORKER_CHECK(gmb_lease_release(lease) == 0);
    gmb_disconnect(session);
}

START_TEST(forked_child_is_told_and_parent_goes_on)
{
    struct worker worker;

    node_start(&node, 64 * CHUNK_BYTES, TENANT_ALL);
    for (uint64_t threaded = 0; threaded < 2; threaded++) {
        worker_start(&node, &worker, run_forker, threaded);
        worker_end(&worker);
    }
    node_stop(&node);
}
END_TEST

static void run_orphan(const struct node *on, int fd, uint64_t argument)
{
    struct gmb_lease_params params = {.size = sizeof(params), .bytes = CHUNK_BYTES};
    gmb_session *session = worker_connect(on);
    gmb_lease *lease = lease_take(session, 2 * CHUNK_BYTES, 0), *other;

    lease_fill(session, lease, 0, CHUNK_BYTES, 0x11);
    say(fd, 0);
    (void) hear(fd);
    WORKER_CHECK(lease_holds(session, lease, 0, CHUNK_BYTES, 0x11));
    lease_fill(session, lease, CHUNK_BYTES, CHUNK_BYTES, 0x22);
    WORKER_CHECK(lease_holds(session, lease, CHUNK_BYTES, CHUNK_BYTES, 0x22));
    WORKER_CHECK(gmb_lease_new(session, &params, &other) == GMB_E_DISCONNECTED);
    WORKER_CHECK(gmb_dispatch(session, 0) == 0);
    WORKER_CHECK(gmb_connection(session) == GMB_CONNECTION_AWAY);
    WORKER_CHECK(lease_holds(session, lease, 0, CHUNK_BYTES, 0x11));
    WORKER_CHECK(gmb_lease_release(lease) == 0);
    gmb_disconnect(session);
}

START_TEST(leases_outlive_the_broker)
{
    struct worker worker;

    node_start(&node, 64 * CHUNK_BYTES, TENANT_ALL);
    worker_start(&node, &worker, run_orphan, 0);
    (void) hear(worker.fd);
    node_kill_broker(&node);
    say(worker.fd, 0);
    worker_end(&worker);
    node_stop(&node);
}
END_TEST

#define CROWD 200

static void run_one_of_a_crowd(const struct node *on, int fd, uint64_t argument)
{
    gmb_session *session;
    gmb_lease *lease;

    (void) hear(fd);
    session = worker_connect(on);
    lease = lease_take(session, CHUNK_BYTES, 0);
    lease_fill(session, lease, 0, 4096, (unsigned char) argument);
    WORKER_CHECK(lease_holds(session, lease, 0, 4096, (unsigned char) argument));
    WORKER_CHECK(gmb_lease_release(lease) == 0);
    gmb_disconnect(session);
}

/* More than fit at once: those who come late wait for those who were first. */
START_TEST(two_hundred_workers_that_start_together_all_get_their_turn)
{
    struct worker workers[CROWD];

    node_start(&node, 50 * CHUNK_BYTES, TENANT_ALL);
    for (uint64_t i = 0; i < CROWD; i++)
        worker_start(&node, &workers[i], run_one_of_a_crowd, i);
    for (unsigned i = 0; i < CROWD; i++)
        say(workers[i].fd, 0);
    for (unsigned i = 0; i < CROWD; i++)
        worker_end(&workers[i]);
    node_stop(&node);
}
END_TEST

struct turn {
    gmb_session *session;
    int left, count;
    uint64_t address;
};

/* Grows a new lease once, then releases it. */
static void turn_taken(void *user, gmb_lease *lease, int error)
{
    struct turn *turn = user;

    WORKER_CHECK(error == 0);
    __atomic_fetch_add(&turn->count, 1, __ATOMIC_SEQ_CST);
    if (gmb_lease_bytes(lease) == CHUNK_BYTES) {
        WORKER_CHECK(
            gmb_lease_grow_async(lease, CHUNK_BYTES, WAIT_NS, turn_taken, turn, NULL) == 0);
        return;
    }
    WORKER_CHECK(gmb_lease_bytes(lease) == 2 * CHUNK_BYTES);
    WORKER_CHECK(gmb_lease_release(lease) == 0);
    __atomic_fetch_sub(&turn->left, 1, __ATOMIC_SEQ_CST);
}

static void run_callbacks(const struct node *on, int fd, uint64_t argument)
{
    struct turn turn = {.session = worker_connect(on), .left = 40};
    struct gmb_lease_params params = {.size = sizeof(params),
        .bytes = CHUNK_BYTES,
        .max_bytes = 2 * CHUNK_BYTES,
        .wait_ns = WAIT_NS};
    uint64_t rounds = 0;

    if (argument == 1)
        WORKER_CHECK(gmb_thread_start(turn.session) == 0);
    for (int i = 0; i < 40; i++)
        WORKER_CHECK(gmb_lease_new_async(turn.session, &params, turn_taken, &turn, NULL) == 0);
    while (__atomic_load_n(&turn.left, __ATOMIC_SEQ_CST) > 0) {
        struct pollfd poll_fd = {.fd = gmb_fd(turn.session), .events = POLLIN};

        WORKER_CHECK(++rounds < 20000);
        if (argument == 1) {
            (void) poll(NULL, 0, 1);
            continue;
        }
        WORKER_CHECK(poll(&poll_fd, 1, 20000) == 1);
        WORKER_CHECK(gmb_dispatch(turn.session, 0) >= 0);
    }
    WORKER_CHECK(turn.count == 80);
    gmb_disconnect(turn.session);
}

/* 80 chunks at most at a time on a device of 100: the loop and the thread see every callback. */
START_TEST(event_loop_and_background_thread_see_every_callback)
{
    struct worker worker;

    node_start(&node, 100 * CHUNK_BYTES, TENANT_ALL);
    worker_start(&node, &worker, run_callbacks, (uint64_t) _i);
    worker_end(&worker);
    node_stop(&node);
}
END_TEST

static void run_leaver(const struct node *on, int fd, uint64_t argument)
{
    gmb_session *session = worker_connect(on);

    (void) lease_take(session, 8 * CHUNK_BYTES, 0);
    (void) lease_take(session, 8 * CHUNK_BYTES, 0);
    gmb_disconnect(session);
    say(fd, 0);
    (void) hear(fd);
}

/* The process lives on: nothing but the disconnecting can have given its memory back. */
START_TEST(disconnect_gives_everything_back)
{
    struct worker worker;

    node_start(&node, 64 * CHUNK_BYTES, TENANT_ALL);
    worker_start(&node, &worker, run_leaver, 0);
    (void) hear(worker.fd);
    node_wait_idle(&node);
    say(worker.fd, 0);
    worker_end(&worker);
    node_stop(&node);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client node");
    TCase *tcase = tcase_create("client node");

    tcase_add_test(tcase, grow_and_shrink_keep_address_and_contents);
    tcase_add_test(tcase, two_tenants_racing_for_the_last_bytes_share_exactly_what_there_is);
    tcase_add_test(tcase, forked_child_is_told_and_parent_goes_on);
    tcase_add_test(tcase, leases_outlive_the_broker);
    tcase_add_test(tcase, two_hundred_workers_that_start_together_all_get_their_turn);
    tcase_add_loop_test(tcase, event_loop_and_background_thread_see_every_callback, 0, 2);
    tcase_add_test(tcase, disconnect_gives_everything_back);
    tcase_set_timeout(tcase, 60);
    suite_add_tcase(suite, tcase);
    return unit_run_suite(suite);
}
