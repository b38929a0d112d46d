/*
 * An attacker as in test_attack.c: what it says when, whom it says to be, what it looks at, and
 * how it dies.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/frame.h"
#include "tests/integration/attack.h"
#include "tests/unit/unit.h"

/* The attacker's own use, as the broker counts it. */
static Gmb__TenantDevice attacker_use(void)
{
    Gmb__TenantDevice use;

    raw_tenant(&attack_bed.harness, "attacker", &use);
    return use;
}

/* ------------------------------------------------------------------ order */

/* A message of this kind without content, whatever kinds there are. */
static void send_empty(struct raw *raw, uint32_t field)
{
    uint8_t frame[8] = {8, 9}, *at = frame + 2; /* id 9 */

    for (uint32_t tag = field << 3 | 2; tag != 0; tag >>= 7)
        *at++ = (uint8_t) ((tag & 0x7f) | (tag > 0x7f ? 0x80 : 0));
    *at++ = 0;
    raw_send_bytes(raw, frame, (size_t) (at - frame));
}

/* Nothing but that it broke the protocol, and the end. */
static void expect_breach(struct raw *raw)
{
    Gmb__BrokerMessage *message = raw_receive(raw);

    ck_assert_ptr_nonnull(message);
    ck_assert_int_eq(message->body_case, GMB__BROKER_MESSAGE__BODY_ERROR);
    ck_assert_uint_eq(message->error->status, GMB_STATUS_PROTOCOL);
    frame_message_free(&message->base);
    raw_expect_end(raw);
    raw_close(raw);
}

/* Every message there is but `only`, in the state that `reach` brings about. */
static void say_everything_but(
    uint32_t only, void (*reach)(struct raw *raw, const struct harness *harness))
{
    for (unsigned i = 0; i < gmb__client_message__descriptor.n_fields; i++) {
        uint32_t field = gmb__client_message__descriptor.fields[i].id;
        struct raw raw = {0};

        if (field == 1 || field == only)
            continue;
        reach(&raw, &attack_bed.harness);
        send_empty(&raw, field);
        expect_breach(&raw);
    }
}

/* Who has nothing is forgotten when it hangs up. */
static uint64_t own_lease(struct raw *raw)
{
    return raw_expect_lease(raw, raw_lease(raw, 1, HARNESS_CHUNK, 0), 1);
}

static void reach_resuming(struct raw *raw, const struct harness *harness)
{
    raw_connect(raw, harness);
    (void) own_lease(raw);
    ck_assert(raw_come_back(raw, harness));
}

static void speak_out_of_order(void)
{
    struct raw raw;

    say_everything_but(GMB__CLIENT_MESSAGE__BODY_HELLO, raw_dial);
    say_everything_but(GMB__CLIENT_MESSAGE__BODY_RESUME, reach_resuming);
    raw_connect(&raw, &attack_bed.harness);
    raw_expect_error(&raw, raw_hello(&raw, 1), GMB_STATUS_PROTOCOL);
    raw_expect_end(&raw);
    raw_close(&raw);
    raw_connect(&raw, &attack_bed.harness);
    send_empty(&raw, GMB__CLIENT_MESSAGE__BODY_RESUME);
    expect_breach(&raw);
}

START_TEST(messages_out_of_order_end_the_attackers_connection_alone)
{
    attack_begin();
    attack_run(speak_out_of_order);
    attack_end();
}
END_TEST

/* ------------------------------------------------------------------ tokens */

static struct raw robbed; /* of the victim's: its token is known to the attacker */
static uint64_t robbed_lease;

/* Whoever says its token gets a session of its own, and nothing of it. */
static void replay_token(void)
{
    struct raw raw = {.next_id = 1};
    uint8_t token[sizeof(raw.token)];
    uint64_t own;

    memcpy(raw.token, robbed.token, sizeof(raw.token));
    ck_assert(!raw_come_back(&raw, &attack_bed.harness));
    ck_assert_mem_ne(raw.token, robbed.token, sizeof(raw.token));
    raw_expect_error(&raw, raw_release(&raw, robbed_lease), GMB_STATUS_NOT_FOUND);
    /* Its own token, and in what it says to have a lease of the victim's. */
    (void) own_lease(&raw);
    memcpy(token, raw.token, sizeof(token));
    ck_assert(raw_come_back(&raw, &attack_bed.harness));
    ck_assert_mem_eq(raw.token, token, sizeof(token));
    ck_assert_uint_eq(raw_resume_one(&raw, robbed_lease, 1), 1);
    raw_expect_error(&raw, raw_grow(&raw, robbed_lease, 1), GMB_STATUS_NOT_FOUND);
    /* What isn't there is given back to a session that resumed, as its word may have crossed. */
    raw_expect_done(&raw, raw_release(&raw, robbed_lease));
    /* Its own again, over and over: one session, with one lease. */
    own = own_lease(&raw);
    for (unsigned i = 0; i < 32; i++) {
        ck_assert(raw_come_back(&raw, &attack_bed.harness));
        ck_assert_uint_eq(raw_resume_one(&raw, own, 1), 0);
    }
    raw_expect_done(&raw, raw_release(&raw, own));
    raw_close(&raw);
}

START_TEST(a_token_that_became_known_is_good_for_nothing)
{
    attack_begin();
    raw_connect(&robbed, &attack_bed.harness);
    robbed_lease = raw_expect_lease(&robbed, raw_lease(&robbed, 1, HARNESS_CHUNK, 0), 1);
    attack_run(replay_token);
    /* While its owner is away, too. */
    (void) conn_free(TAKE_PTR(robbed.conn));
    attack_run(replay_token);
    ck_assert(raw_come_back(&robbed, &attack_bed.harness));
    ck_assert_uint_eq(raw_resume_one(&robbed, robbed_lease, 1), 0);
    raw_expect_done(&robbed, raw_release(&robbed, robbed_lease));
    raw_close(&robbed);
    attack_end();
}
END_TEST

/* ------------------------------------------------------------------ looking around */

static void look_around(void)
{
    static const uint8_t leases_get[] = {8, 1, 42, 0}; /* what an operator would send */
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    Gmb__BrokerMessage *message;
    struct raw raw;
    char path[64];

    (void) snprintf(
        address.sun_path, sizeof(address.sun_path), "%s", attack_bed.harness.control_socket);
    ck_assert_int_eq(connect(fd, (struct sockaddr *) &address, sizeof(address)), -1);
    ck_assert_int_eq(errno, EACCES);
    (void) close(fd);

    raw_dial(&raw, &attack_bed.harness);
    ck_assert_int_eq(
        send(conn_fd(raw.conn), leases_get, sizeof(leases_get), 0), sizeof(leases_get));
    message = raw_receive(&raw);
    ck_assert_ptr_nonnull(message);
    ck_assert_int_eq(message->body_case, GMB__BROKER_MESSAGE__BODY_ERROR);
    ck_assert_uint_eq(message->error->status, GMB_STATUS_PROTOCOL);
    frame_message_free(&message->base);
    raw_expect_end(&raw);
    raw_close(&raw);

    /* A greeting tells the attacker of itself alone. */
    raw_dial(&raw, &attack_bed.harness);
    (void) raw_hello(&raw, 1);
    message = raw_receive(&raw);
    ck_assert_ptr_nonnull(message);
    ck_assert_int_eq(message->body_case, GMB__BROKER_MESSAGE__BODY_WELCOME);
    ck_assert_str_eq(message->welcome->tenant, "attacker");
    ck_assert_uint_eq(message->welcome->devices[0]->memory_max_bytes, 128 << 20);
    frame_message_free(&message->base);
    raw_close(&raw);

    (void) snprintf(path, sizeof(path), "/proc/%d/fd", (int) attack_bed.harness.pid);
    ck_assert_int_eq(open(path, O_RDONLY | O_DIRECTORY), -1);
    (void) snprintf(path, sizeof(path), "/proc/%d/mem", (int) attack_bed.harness.pid);
    ck_assert_int_eq(open(path, O_RDWR), -1);
    ck_assert_int_eq(kill(attack_bed.harness.pid, SIGTERM), -1);
    ck_assert_int_eq(errno, EPERM);
}

START_TEST(status_leases_and_names_of_others_are_not_to_be_had)
{
    attack_begin();
    attack_run(look_around);
    attack_end();
}
END_TEST

/* ------------------------------------------------------------------ death */

/* It hangs up as the dead do, and lives. */
static void pretend_to_be_dead(void)
{
    struct raw raw;

    for (unsigned i = 0; i < 3; i++) {
        raw_connect(&raw, &attack_bed.harness);
        if (i == 0)
            (void) raw_expect_lease(
                &raw, raw_lease(&raw, 128 << 20, HARNESS_CHUNK, 0), ATTACK_CHUNKS);
        raw_expect_error(&raw, raw_lease(&raw, 1, HARNESS_CHUNK, 0), GMB_STATUS_EXHAUSTED);
        raw_close(&raw);
    }
}

START_TEST(who_hangs_up_and_lives_is_charged_as_before)
{
    attack_begin();
    attack_run(pretend_to_be_dead);
    attack_end();
}
END_TEST

/* Takes all that its tenant may have, keeps the fds, and leaves them to a child that stays. */
static int heir[2]; /* its pid */

static void fork_and_die(void)
{
    pid_t self;

    Gmb__BrokerMessage *message;
    struct raw raw;
    uint32_t chunks = 0;
    int kept[ATTACK_CHUNKS];

    raw_connect(&raw, &attack_bed.harness);
    (void) raw_lease(&raw, 128 << 20, HARNESS_CHUNK, 0);
    while (chunks < ATTACK_CHUNKS) {
        message = raw_receive(&raw);
        ck_assert_ptr_nonnull(message);
        ck_assert_int_eq(message->body_case, GMB__BROKER_MESSAGE__BODY_GRANT);
        for (size_t i = 0; i < message->grant->n_chunks; i++)
            kept[chunks++] = fdset_take(&raw.fds, i);
        frame_message_free(&message->base);
    }
    if (fork() > 0)
        _exit(0);
    for (size_t i = 0; i < ARRAY_SIZE(kept); i++)
        ck_assert_int_ge(kept[i], 0);
    self = getpid();
    (void) !write(heir[1], &self, sizeof(self));
    for (;;)
        (void) pause();
}

static void expect_no_memory(void)
{
    struct raw raw;

    raw_connect(&raw, &attack_bed.harness);
    raw_expect_error(&raw, raw_lease(&raw, 1, HARNESS_CHUNK, 0), GMB_STATUS_EXHAUSTED);
    raw_close(&raw);
}

START_TEST(a_fork_that_keeps_everything_keeps_it_on_its_tenants_account)
{
    uint64_t deadline;
    int status;
    pid_t pid;

    /* A slab has no fds to be kept. */
    if (raw_slabs())
        return;
    attack_begin();
    /* Its orphan becomes ours, to be ended. */
    ck_assert_int_eq(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    ck_assert_int_eq(pipe(heir), 0);
    pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        if (setgid(ATTACK_USER) < 0 || setuid(ATTACK_USER) < 0)
            _exit(2);
        fork_and_die();
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
    deadline = harness_now_ms() + HARNESS_DEADLINE_MS;
    while (attacker_use().orphaned_bytes != 128 << 20) {
        ck_assert_uint_lt(harness_now_ms(), deadline);
        ck_assert_uint_eq(attacker_use().used_bytes, 128 << 20);
        harness_breathe();
    }
    attack_run(expect_no_memory);
    ck_assert_int_eq(read(heir[0], &pid, sizeof(pid)), sizeof(pid));
    ck_assert_int_eq(kill(pid, SIGKILL), 0);
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
    wait_until(attacker_use().used_bytes == 0);
    attack_end();
}
END_TEST

UNIT_MAIN("attacks on sessions", messages_out_of_order_end_the_attackers_connection_alone,
    a_token_that_became_known_is_good_for_nothing,
    status_leases_and_names_of_others_are_not_to_be_had,
    who_hangs_up_and_lives_is_charged_as_before,
    a_fork_that_keeps_everything_keeps_it_on_its_tenants_account)
