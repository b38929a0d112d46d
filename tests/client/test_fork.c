/* A forked child: told so by every call, and unable to disturb its parent's session. */
#include <semaphore.h>
#include <string.h>
#include <sys/wait.h>

#include "tests/client/script.h"
#include "tests/unit/unit.h"

static struct script script;

static int called_back;
static sem_t called;

static void note(void *user, gmb_lease *lease, int error)
{
    called_back = error;
    (void) sem_post(&called);
}

/* Exit status of a child that finds everything as it should: 0, else the line that failed. */
#define CHILD_CHECK(condition)                                                                     \
    do {                                                                                           \
        if (!(condition))                                                                          \
            _exit(__LINE__ & 0xff ? __LINE__ & 0xff : 1);                                          \
    } while (0)

static void child(gmb_lease *lease)
{
    struct gmb_lease_params params = {.size = sizeof(params), .bytes = CHUNK};
    struct gmb_device_info info = {.size = sizeof(info)};
    struct gmb_options options = {.size = sizeof(options), .socket = "/nonexistent"};
    gmb_session *other = NULL;
    gmb_lease *another = NULL;
    size_t fds = fds_open();

    CHILD_CHECK(gmb_lease_new(script.session, &params, &another) == GMB_E_FORKED);
    CHILD_CHECK(gmb_lease_new_async(script.session, &params, note, NULL, NULL) == GMB_E_FORKED);
    CHILD_CHECK(gmb_lease_grow(lease, CHUNK, 0) == GMB_E_FORKED);
    CHILD_CHECK(gmb_lease_grow_async(lease, CHUNK, 0, note, NULL, NULL) == GMB_E_FORKED);
    CHILD_CHECK(gmb_lease_shrink(lease, 0) == GMB_E_FORKED);
    CHILD_CHECK(gmb_lease_release(lease) == GMB_E_FORKED);
    CHILD_CHECK(gmb_cancel(script.session, 1) == GMB_E_FORKED);
    CHILD_CHECK(gmb_dispatch(script.session, -1) == GMB_E_FORKED);
    CHILD_CHECK(gmb_thread_start(script.session) == GMB_E_FORKED);
    CHILD_CHECK(gmb_device_get(script.session, 0, &info) == GMB_E_FORKED);
    CHILD_CHECK(strstr(gmb_error_text(), "forked") != NULL);
    gmb_disconnect(script.session);
    /* The socket, two poll sets, two eventfds and the timer. */
    CHILD_CHECK(fds_open() == fds - 6);
    CHILD_CHECK(gmb_connect(&options, &other) == GMB_E_DISCONNECTED);
    _exit(0);
}

static void child_wait(pid_t pid)
{
    int status;

    ck_assert_int_gt(pid, 0);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %#x", (unsigned) status);
}

/* With requests in flight and a background thread, which the child doesn't have. */
START_TEST(child_is_told_and_parent_goes_on)
{
    struct gmb_lease_params params = {.size = sizeof(params), .bytes = CHUNK};
    struct call call = {0};
    uint64_t id;
    pid_t pid;

    ck_assert_int_eq(sem_init(&called, 0, 0), 0);
    script_begin(&script);
    script_connect(&script);
    call.lease = script_lease(&script, 2);
    ck_assert_int_eq(gmb_lease_new_async(script.session, &params, note, NULL, NULL), 0);
    id = broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_LEASE_REQUEST);
    if (_i == 1)
        ck_assert_int_eq(gmb_thread_start(script.session), 0);
    pid = fork();
    if (pid == 0)
        child(call.lease);
    child_wait(pid);

    broker_expect_silence(&script);
    call.bytes = CHUNK;
    call_start(&script, &call, call_grow);
    broker_grant(&script, broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_LEASE_GROW), 2, 1, 3);
    ck_assert_int_eq(call_join(&call), 0);
    ck_assert_uint_eq(fake_gpu_accessible(), 3 * CHUNK);
    /* The request of before the fork is the parent's, and so is its end. */
    broker_error(&script, id, GMB_STATUS_EXHAUSTED, GMB_LIMIT_DEVICE, "full");
    if (_i == 0)
        ck_assert_int_eq(gmb_dispatch(script.session, -1), 1);
    /* Disconnecting before the background thread has read the answer would cancel the request. */
    ck_assert_int_eq(sem_wait(&called), 0);
    ck_assert_int_eq(called_back, GMB_E_EXHAUSTED);
    script_end(&script);
}
END_TEST

static struct {
    pthread_mutex_t lock;
    bool stop;
} forking = {PTHREAD_MUTEX_INITIALIZER, false};

/* NULL if every child ended well. Says in any case that it has ended. */
static void *fork_often(void *data)
{
    bool well = true;

    for (int i = 0; i < 20 && well; i++) {
        pid_t pid = fork();
        int status = -1;

        if (pid == 0) {
            gmb_disconnect(script.session);
            /* No plain exit: a leak check there would find what was on other threads' stacks. */
            (void) execl("/bin/true", "true", (char *) NULL);
            _exit(1);
        }
        well = pid > 0 && waitpid(pid, &status, 0) == pid && status == 0;
    }
    (void) pthread_mutex_lock(&forking.lock);
    forking.stop = true;
    (void) pthread_mutex_unlock(&forking.lock);
    return well ? NULL : &forking;
}

/* The child frees what other threads were changing at the moment of the fork. */
START_TEST(fork_finds_whole_structures_while_other_threads_work)
{
    struct call call = {.bytes = CHUNK};
    pthread_t thread;
    void *failed;
    bool stop = false;

    script_begin(&script);
    script_connect(&script);
    ck_assert_int_eq(pthread_create(&thread, NULL, fork_often, NULL), 0);
    while (!stop) {
        call.lease = script_lease(&script, 1);
        call_start(&script, &call, call_release);
        broker_done(&script, broker_expect_id(&script, GMB__CLIENT_MESSAGE__BODY_LEASE_RELEASE));
        ck_assert_int_eq(call_join(&call), 0);
        (void) pthread_mutex_lock(&forking.lock);
        stop = forking.stop;
        (void) pthread_mutex_unlock(&forking.lock);
    }
    ck_assert_int_eq(pthread_join(thread, &failed), 0);
    ck_assert_ptr_null(failed);
    script_end(&script);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client fork");
    TCase *tcase = tcase_create("client fork");

    tcase_add_loop_test(tcase, child_is_told_and_parent_goes_on, 0, 2);
    tcase_add_test(tcase, fork_finds_whole_structures_while_other_threads_work);
    tcase_set_timeout(tcase, 30);
    suite_add_tcase(suite, tcase);
    return unit_run_suite(suite);
}
