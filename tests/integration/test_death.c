/*
 * Processes that die, stop or leave things behind. Death is the pidfd's; bytes come back when
 * nobody holds them any more.
 */
#include <signal.h>
#include <sys/wait.h>

#include "base/error.h"
#include "tests/integration/holder.h"
#include "tests/unit/unit.h"

enum step { STEP_DIALLED, STEP_GREETED, STEP_ASKED, STEP_GRANTED, STEP_WAITING, STEP_MAX };

/* Goes as far as the step that `told` is. */
static void step_take(const struct harness *harness, void *told)
{
    const enum step step = *(enum step *) told;
    struct raw raw;

    if (step == STEP_DIALLED)
        raw_dial(&raw, harness);
    else
        raw_connect(&raw, harness);
    if (step == STEP_ASKED)
        (void) raw_lease(&raw, HARNESS_MEMORY / 2, HARNESS_CHUNK, 0);
    if (step >= STEP_GRANTED)
        (void) raw_expect_lease(&raw, raw_lease(&raw, HARNESS_MEMORY / 2, 1 << 26, UINT64_MAX), 8);
    if (step == STEP_WAITING)
        (void) raw_lease(&raw, HARNESS_MEMORY, 1 << 26, UINT64_MAX);
}

static pid_t child_start(const struct harness *harness, enum step step)
{
    return holder_start(harness, step_take, &step, sizeof(step));
}

START_TEST(a_worker_killed_at_any_step_leaves_nothing)
{
    struct harness harness;

    harness_start(&harness, NULL);
    for (unsigned step = 0; step < STEP_MAX; step++) {
        holder_kill(child_start(&harness, (enum step) step));
        harness_settle(&harness);
    }
    harness_stop(&harness);
}
END_TEST

START_TEST(a_worker_stopped_at_any_step_holds_nobody_up)
{
    struct harness harness;

    harness_start(&harness, NULL);
    for (unsigned step = 0; step < STEP_MAX; step++) {
        pid_t pid = child_start(&harness, (enum step) step);
        struct raw raw;
        uint64_t lease;

        ck_assert_int_eq(kill(pid, SIGSTOP), 0);
        raw_connect(&raw, &harness);
        if (step == STEP_WAITING) {
            /* Who is of the same tenant queues behind it, and is answered in time all the same. */
            raw_expect_error(&raw, raw_lease(&raw, HARNESS_CHUNK, HARNESS_CHUNK, 30000000),
                GMB_STATUS_TIMED_OUT);
        } else {
            lease = raw_expect_lease(
                &raw, raw_lease(&raw, HARNESS_CHUNK, HARNESS_CHUNK, UINT64_MAX), 1);
            raw_expect_done(&raw, raw_release(&raw, lease));
        }
        raw_close(&raw);
        holder_kill(pid);
        harness_settle(&harness);
    }
    harness_stop(&harness);
}
END_TEST

static void take_and_close(const struct harness *harness, void *told)
{
    struct raw raw;

    (void) told;
    raw_connect(&raw, harness);
    (void) raw_expect_lease(&raw, raw_lease(&raw, 4 * HARNESS_CHUNK, HARNESS_CHUNK, 0), 4);
    raw_close(&raw);
}

START_TEST(a_closed_socket_frees_nothing_while_its_process_lives)
{
    Gmb__TenantDevice tenant;
    struct harness harness;
    uint64_t deadline;
    char told = 0;
    pid_t pid;

    harness_start(&harness, NULL);
    pid = holder_start(&harness, take_and_close, &told, sizeof(told));
    /* However long it takes the broker to see the end of the connection, the charge stays. */
    deadline = harness_now_ms() + 300;
    while (harness_now_ms() < deadline) {
        raw_tenant(&harness, "test", &tenant);
        ck_assert_uint_eq(tenant.used_bytes, 4 * HARNESS_CHUNK);
        harness_breathe();
    }
    holder_kill(pid);
    harness_stop(&harness);
}
END_TEST

START_TEST(an_fd_leaked_to_a_third_process_is_orphaned_until_it_is_closed)
{
    Gmb__BrokerMessage *message;
    Gmb__TenantDevice tenant;
    struct harness harness;
    uint64_t deadline, lease;
    struct raw raw;
    int leaked;

    if (raw_slabs())
        return; /* no fd comes with a slab */
    harness_start(&harness, NULL);
    raw_connect(&raw, &harness);
    (void) raw_lease(&raw, HARNESS_CHUNK, HARNESS_CHUNK, 0);
    message = raw_receive(&raw);
    ck_assert_ptr_nonnull(message);
    lease = message->grant->lease;
    frame_message_free(&message->base);
    leaked = fdset_take(&raw.fds, 0);
    ck_assert_int_ge(leaked, 0);
    raw_expect_done(&raw, raw_release(&raw, lease));
    raw_close(&raw);
    deadline = harness_now_ms() + HARNESS_DEADLINE_MS;
    do {
        ck_assert_msg(harness_now_ms() < deadline, "the bytes are never called orphaned");
        raw_tenant(&harness, "test", &tenant);
        ck_assert_uint_eq(tenant.used_bytes, HARNESS_CHUNK);
        harness_breathe();
    } while (tenant.orphaned_bytes == 0);
    ck_assert_uint_eq(tenant.orphaned_bytes, HARNESS_CHUNK);
    (void) close(leaked);
    do {
        ck_assert_msg(harness_now_ms() < deadline, "the bytes stay orphaned");
        raw_tenant(&harness, "test", &tenant);
        harness_breathe();
    } while (tenant.used_bytes != 0);
    harness_stop(&harness);
}
END_TEST

START_TEST(a_socket_passed_on_is_still_its_creators)
{
    Gmb__ControlRequest request;
    Gmb__ControlReply *reply;
    Gmb__ClientsGet body;
    struct harness harness;
    int pipes[2];
    struct raw raw;
    pid_t pid;

    /* The connection is made here; the child speaks on it, and is not who the broker sees. */
    harness_start(&harness, NULL);
    raw_dial(&raw, &harness);
    ck_assert_int_eq(pipe(pipes), 0);
    pid = fork();
    if (pid == 0) {
        Gmb__BrokerMessage *message;

        (void) raw_hello(&raw, 1);
        message = raw_receive(&raw);
        _exit(message != NULL && message->body_case == GMB__BROKER_MESSAGE__BODY_WELCOME ? 0 : 1);
    }
    {
        int status;

        ck_assert_int_eq(waitpid(pid, &status, 0), pid);
        ck_assert_int_eq(status, 0);
    }
    gmb__control_request__init(&request);
    gmb__clients_get__init(&body);
    request.body_case = GMB__CONTROL_REQUEST__BODY_CLIENTS_GET;
    request.clients_get = &body;
    reply = raw_control(&harness, &request);
    ck_assert_uint_eq(reply->client_page->n_clients, 1);
    ck_assert_int_eq(reply->client_page->clients[0]->pid, getpid());
    ck_assert_str_eq(reply->client_page->clients[0]->program, "raw");
    frame_message_free(&reply->base);
    raw_close(&raw);
    harness_stop(&harness);
}
END_TEST

START_TEST(who_dies_before_its_connection_is_accepted_gets_no_session)
{
    struct harness harness;

    /* Its pid may be anybody's by then. */
    harness_start(&harness, NULL);
    ck_assert_int_eq(kill(harness.pid, SIGSTOP), 0);
    for (int i = 0; i < 50; i++) {
        pid_t pid = fork();

        ck_assert_int_ge(pid, 0);
        if (pid == 0) {
            struct raw raw;

            raw_dial(&raw, &harness);
            (void) raw_hello(&raw, 1);
            _exit(0);
        }
        ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
    }
    ck_assert_int_eq(kill(harness.pid, SIGCONT), 0);
    harness_settle(&harness);
    ck_assert(!harness_logged(&harness, "client 4294967297"));
    harness_stop(&harness);
}
END_TEST

UNIT_MAIN("death", a_worker_killed_at_any_step_leaves_nothing,
    a_worker_stopped_at_any_step_holds_nobody_up,
    a_closed_socket_frees_nothing_while_its_process_lives,
    an_fd_leaked_to_a_third_process_is_orphaned_until_it_is_closed,
    a_socket_passed_on_is_still_its_creators,
    who_dies_before_its_connection_is_accepted_gets_no_session)
