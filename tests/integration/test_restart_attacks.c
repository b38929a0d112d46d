/*
 * What a restart can meet that nobody means well by: peers that break in while a client comes back,
 * and a start that was given what it can't use. Nothing is lost by it or there twice, and whatever
 * is refused is named.
 */
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "daemon/ledger/ledger_format.h"
#include "tests/integration/raw.h"
#include "tests/integration/tamper_arm.h"
#include "tests/unit/unit.h"

#define CHUNK HARNESS_CHUNK
#define PATIENCE_NS (60 * NSEC_PER_SEC)

static struct harness harness;
/* The client whose session is at stake, and its two leases. */
static struct raw raw;
static uint64_t leases[2];
static const uint32_t chunks[2] = {4, 2};
#define HELD ((chunks[0] + chunks[1]) * CHUNK)

/* ------------------------------------------------------------------ helpers */

static void begin(const char *variable)
{
    const char *environment[] = {variable, NULL};

    tamper_start(&harness, NULL, environment);
    raw_connect(&raw, &harness);
    for (unsigned i = 0; i < 2; i++)
        leases[i] = raw_expect_lease(&raw, raw_lease(&raw, chunks[i] * CHUNK, CHUNK, 0), chunks[i]);
}

static void succeed(void)
{
    harness_keeper_renew(&harness);
    harness_succeed(&harness, SIGKILL);
}

/* The next broker finds what is spoiled so. */
static void succeed_spoiled(const char *what)
{
    tamper_arm(what);
    succeed();
    tamper_expect_done();
}

static uint64_t leased(void)
{
    Gmb__TenantDevice device;

    raw_tenant(&harness, "test", &device);
    return device.leased_bytes;
}

/* Says that it has leases [first, end) as they are. */
static uint64_t say(struct raw *from, unsigned first, unsigned end)
{
    Gmb__HeldLease held[2], *pointers[2];

    for (unsigned i = first; i < end; i++) {
        pointers[i] = &held[i];
        gmb__held_lease__init(&held[i]);
        held[i].lease = leases[i];
        held[i].chunks = chunks[i];
    }
    return raw_say_held(from, pointers + first, end - first, end == 2);
}

static void expect_resumed(struct raw *from, uint64_t id)
{
    Gmb__BrokerMessage *answer = raw_receive(from);

    ck_assert_ptr_nonnull(answer);
    ck_assert_uint_eq(answer->id, id);
    ck_assert_int_eq(answer->body_case, GMB__BROKER_MESSAGE__BODY_RESUMED);
    ck_assert_uint_eq(answer->resumed->n_lost, 0);
    frame_message_free(&answer->base);
}

/* Another connection of this process, with the token. */
static struct raw twin(void)
{
    struct raw other = {.next_id = 1000};

    memcpy(other.token, raw.token, sizeof(other.token));
    return other;
}

/* It has both leases as they were, once, and the session serves; then all ends. */
static void finish(struct raw *from)
{
    uint64_t more;

    ck_assert_uint_eq(leased(), HELD);
    more = raw_expect_lease(from, raw_lease(from, CHUNK, CHUNK, PATIENCE_NS), 1);
    ck_assert_uint_eq(leased(), HELD + CHUNK);
    raw_expect_done(from, raw_release(from, more));
    for (unsigned i = 0; i < 2; i++)
        raw_expect_done(from, raw_release(from, leases[i]));
    ck_assert_uint_eq(leased(), 0);
    raw_expect_accounts(&harness);
    raw_close(from);
    tamper_stop(&harness);
}

static void come_back_and_finish(void)
{
    ck_assert(raw_come_back(&raw, &harness));
    expect_resumed(&raw, say(&raw, 0, 2));
    finish(&raw);
}

/* ------------------------------------------------------------------ while it comes back */

static const struct {
    const char *bytes;
    size_t size;
} garbage[] = {
    {"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 11}, /* no varint */
    {"\x00\x00\x00\x00", 4},
    {"\x08\x01", 2},             /* an id without a body */
    {"\x08\x01\x12\x7f\x08", 5}, /* a length past the end */
    {"come back, broker", 17},
};

START_TEST(garbage_of_a_client_that_comes_back_ends_its_connection_alone)
{
    begin(NULL);
    succeed();
    for (size_t i = 0; i < ARRAY_SIZE(garbage); i++) {
        ck_assert(raw_come_back(&raw, &harness));
        /* Before it has said anything, and in the middle. */
        if (i % 2 != 0)
            expect_resumed(&raw, say(&raw, 0, 1));
        raw_send_bytes(&raw, garbage[i].bytes, garbage[i].size);
        raw_expect_error(&raw, 0, GMB_STATUS_PROTOCOL);
        raw_expect_end(&raw);
        ck_assert_uint_eq(leased(), HELD);
    }
    come_back_and_finish();
}
END_TEST

/* Id 1, Resume {held {lease 1, chunks 4}, last}: its form, not its leases. */
static const uint8_t whole[] = {8, 1, 0xf2, 1, 8, 10, 4, 8, 1, 16, 4, 16, 1};

START_TEST(part_of_a_frame_and_the_end_cost_a_client_that_comes_back_nothing)
{
    begin(NULL);
    succeed();
    for (size_t size = 1; size < sizeof(whole); size++) {
        ck_assert(raw_come_back(&raw, &harness));
        if (size % 2 != 0)
            expect_resumed(&raw, say(&raw, 0, 1));
        raw_send_bytes(&raw, whole, size);
        raw_close(&raw);
        ck_assert_uint_eq(leased(), HELD);
    }
    /* Nor does it cost the next broker. */
    succeed();
    ck_assert_uint_eq(leased(), HELD);
    come_back_and_finish();
}
END_TEST

/* ------------------------------------------------------------------ one token twice */

enum progress { PROGRESS_WELCOMED, PROGRESS_HALF, PROGRESS_ACTIVE, PROGRESS_MAX };

START_TEST(the_later_of_two_connections_with_one_token_has_the_session)
{
    struct raw other;

    begin(NULL);
    succeed();
    ck_assert(raw_come_back(&raw, &harness));
    if (_i == PROGRESS_HALF)
        expect_resumed(&raw, say(&raw, 0, 1));
    else if (_i == PROGRESS_ACTIVE)
        expect_resumed(&raw, say(&raw, 0, 2));
    other = twin();
    ck_assert(raw_come_back(&other, &harness));
    ck_assert_mem_eq(other.token, raw.token, sizeof(raw.token));
    /* What the first one still says is nobody's word. */
    (void) raw_release(&raw, leases[0]);
    (void) raw_say_held(&raw, NULL, 0, true);
    raw_expect_end(&raw);
    raw_close(&raw);
    ck_assert_uint_eq(leased(), HELD);
    expect_resumed(&other, say(&other, 0, 2));
    finish(&other);
}
END_TEST

START_TEST(what_the_earlier_connection_waited_for_is_granted_to_nobody)
{
    struct raw other, hog;
    uint64_t all, rest = HARNESS_MEMORY / CHUNK - HELD / CHUNK;

    begin(NULL);
    succeed();
    ck_assert(raw_come_back(&raw, &harness));
    expect_resumed(&raw, say(&raw, 0, 2));
    raw_connect(&hog, &harness);
    all =
        raw_expect_lease(&hog, raw_lease(&hog, rest * CHUNK, CHUNK, PATIENCE_NS), (uint32_t) rest);
    (void) raw_lease(&raw, 3 * CHUNK, CHUNK, PATIENCE_NS);
    (void) raw_grow(&raw, leases[0], CHUNK);
    other = twin();
    ck_assert(raw_come_back(&other, &harness));
    raw_expect_end(&raw);
    raw_close(&raw);
    expect_resumed(&other, say(&other, 0, 2));
    raw_expect_done(&hog, raw_release(&hog, all));
    raw_close(&hog);
    finish(&other);
}
END_TEST

#define TWINS 8

/* Reads on until it is resumed; false when it was hung up on before. */
static bool resumed(struct raw *from)
{
    Gmb__BrokerMessage *message;
    bool done = false;

    while (!done && (message = raw_receive(from)) != NULL) {
        ck_assert_int_ne(message->body_case, GMB__BROKER_MESSAGE__BODY_ERROR);
        done = message->body_case == GMB__BROKER_MESSAGE__BODY_RESUMED;
        if (done)
            ck_assert_uint_eq(message->resumed->n_lost, 0);
        frame_message_free(&message->base);
    }
    return done;
}

static bool serves(struct raw *from)
{
    Gmb__BrokerMessage *message;
    bool served;

    (void) raw_release(from, UINT64_MAX); /* done: it may have been before */
    message = raw_receive(from);
    served = message != NULL;
    if (served)
        frame_message_free(&message->base);
    return served;
}

START_TEST(of_many_connections_with_one_token_at_once_one_has_the_session)
{
    struct raw twins[TWINS], *only = NULL;
    bool there[TWINS];

    begin(NULL);
    succeed();
    /* All of them lie there, with all that they have to say, when it looks. */
    ck_assert_int_eq(kill(harness.pid, SIGSTOP), 0);
    for (size_t i = 0; i < TWINS; i++) {
        twins[i] = twin();
        raw_knock(&twins[i], &harness);
        (void) say(&twins[i], 0, 2);
    }
    ck_assert_int_eq(kill(harness.pid, SIGCONT), 0);
    for (size_t i = 0; i < TWINS; i++)
        there[i] = resumed(&twins[i]);
    for (size_t i = 0; i < TWINS; i++) {
        if (there[i] && serves(&twins[i])) {
            ck_assert_ptr_null(only);
            only = &twins[i];
        } else {
            raw_close(&twins[i]);
        }
    }
    ck_assert_ptr_nonnull(only);
    raw_close(&raw);
    finish(only);
}
END_TEST

/* ------------------------------------------------------------------ the ledger's headers */

/* Both: at their checksum, their magic, and where checksum and what it covers are at odds. */
static const size_t header_damage[][LEDGER_HEADERS] = {
    {offsetof(struct ledger_header, checksum), offsetof(struct ledger_header, checksum)},
    {offsetof(struct ledger_header, magic), offsetof(struct ledger_header, magic)},
    {offsetof(struct ledger_header, epoch), offsetof(struct ledger_header, checksum) + 7},
    {offsetof(struct ledger_header, device_count), offsetof(struct ledger_header, devices)},
};

START_TEST(a_ledger_without_a_whole_header_is_named_and_the_next_one_counts)
{
    char what[64];
    uint64_t lease;

    begin(NULL);
    (void) snprintf(what, sizeof(what), "flip %zu\nflip %zu", header_damage[_i][0],
        LEDGER_PAGE + header_damage[_i][1]);
    succeed_spoiled(what);
    tamper_expect_said(&harness, "can't be read (no header of it is whole)");
    ck_assert_uint_eq(leased(), 0);
    /* It is greeted as a new one: nothing is guessed. */
    ck_assert(!raw_come_back(&raw, &harness));
    lease = raw_expect_lease(&raw, raw_lease(&raw, 3 * CHUNK, CHUNK, 0), 3);
    raw_expect_accounts(&harness);
    /* What the store has now is of that broker alone. */
    succeed();
    tamper_expect_said(&harness, "");
    ck_assert_uint_eq(leased(), 3 * CHUNK);
    ck_assert(raw_come_back(&raw, &harness));
    ck_assert_uint_eq(raw_resume_one(&raw, lease, 3), 0);
    raw_expect_done(&raw, raw_release(&raw, lease));
    raw_close(&raw);
    tamper_stop(&harness);
}
END_TEST

/* ------------------------------------------------------------------ given what it can't use */

#define STARTED "the broker is process "

/* The next broker finds what is spoiled so, refuses to start with it and says this; the one after
 * that finds nothing spoiled. */
static void succeed_refused(const char *what, const char *said)
{
    size_t before;

    tamper_arm(what);
    harness_keeper_renew(&harness);
    before = harness_log_count(&harness, STARTED);
    ck_assert_int_eq(kill(harness.pid, SIGKILL), 0);
    wait_until(harness_log_count(&harness, STARTED) >= before + 2);
    tamper_expect_done();
    ck_assert_msg(harness_logged(&harness, said), "it doesn't log: %s", said);
    harness_find(&harness);
}

/* Sockets, ledger, host tier and chunks. */
static unsigned passed(void)
{
    return 4 + chunks[0] + chunks[1];
}

START_TEST(a_start_that_cannot_tell_what_it_was_given_is_refused_and_costs_nothing)
{
    static const int more[] = {-1, 1};
    char what[32], said[128];

    begin(NULL);
    (void) snprintf(what, sizeof(what), "misname %d", more[_i]);
    (void) snprintf(said, sizeof(said),
        "LISTEN_FDS says that %u file descriptors were passed, and LISTEN_FDNAMES has %u names: "
        "which is which can't be told",
        passed(), passed() + (unsigned) more[_i]);
    succeed_refused(what, said);
    tamper_expect_said(&harness, "");
    come_back_and_finish();
}
END_TEST

START_TEST(a_manager_that_cannot_be_reached_refuses_the_start_and_costs_nothing)
{
    begin(NULL);
    succeed_refused("env NOTIFY_SOCKET /nowhere/notify",
        "the service manager can't be reached (NOTIFY_SOCKET=/nowhere/notify): No such file");
    come_back_and_finish();
}
END_TEST

#define BESIDE 64u /* that a start needs, and the store's are beside */

START_TEST(a_start_with_more_than_it_may_have_open_is_refused_and_costs_nothing)
{
    char said[160];

    begin(NULL);
    (void) snprintf(said, sizeof(said),
        "%u file descriptors were passed, %u more are needed to start, and this process may have "
        "%u open (RLIMIT_NOFILE): raise LimitNOFILE=",
        passed(), BESIDE, passed() + BESIDE - 1);
    succeed_refused("nofile 63", said);
    come_back_and_finish();
}
END_TEST

START_TEST(a_start_with_little_room_serves_and_says_what_will_not_be_kept)
{
    uint64_t more;

    begin(NULL);
    succeed_spoiled("nofile 64");
    ck_assert(
        harness_logged(&harness, "fds that the store takes this broker uses 0, since it may"));
    ck_assert(raw_come_back(&raw, &harness));
    expect_resumed(&raw, say(&raw, 0, 2));
    more = raw_expect_lease(&raw, raw_lease(&raw, 3 * CHUNK, CHUNK, PATIENCE_NS), 3);
    ck_assert(harness_logged(&harness, "fd store has no room for more than"));
    ck_assert_uint_eq(leased(), HELD + 3 * CHUNK);
    raw_expect_done(&raw, raw_release(&raw, more));
    succeed();
    come_back_and_finish();
}
END_TEST

/* ------------------------------------------------------------------ another process's */

/* How many fds of the broker's are a ledger. */
static unsigned ledgers(void)
{
    char path[64], target[64];
    unsigned count = 0;

    for (int fd = 0; fd < 256; fd++) {
        ssize_t size;

        (void) snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int) harness.pid, fd);
        size = readlink(path, target, sizeof(target) - 1);
        target[MAX(size, (ssize_t) 0)] = '\0';
        count += strstr(target, "gmbd-ledger") != NULL;
    }
    return count;
}

START_TEST(what_was_passed_to_another_process_is_left_alone)
{
    static const char said[] = "LISTEN_PID=1 in the environment is another process: the fds that "
                               "were passed to it and its fd store are left alone";
    struct harness kept;
    struct raw guest;
    char text[512];
    uint64_t lease;
    size_t ready;

    begin(NULL);
    /* The keeper's sockets are among what isn't its own. */
    (void) snprintf(text, sizeof(text),
        HARNESS_BROKER "ClientSocket=%s/own.sock\nControlSocket=%s/own.control\n" HARNESS_TENANT,
        harness.dir, harness.dir);
    harness_configure(&harness, text);
    tamper_arm("env LISTEN_PID 1");
    harness_keeper_renew(&harness);
    ready = harness_log_count(&harness, "ready: driver");
    ck_assert_int_eq(kill(harness.pid, SIGKILL), 0);
    wait_until(harness_log_count(&harness, "ready: driver") > ready);
    kept = harness;
    (void) snprintf(
        harness.client_socket, sizeof(harness.client_socket), "%s/own.sock", harness.dir);
    (void) snprintf(
        harness.control_socket, sizeof(harness.control_socket), "%s/own.control", harness.dir);
    harness_find(&harness);
    tamper_expect_said(&harness, said);
    ck_assert_uint_eq(leased(), 0);
    ck_assert_uint_eq(ledgers(), 1); /* as it was passed, and none of its own */
    raw_connect(&guest, &harness);
    lease = raw_expect_lease(&guest, raw_lease(&guest, 3 * CHUNK, CHUNK, 0), 3);
    raw_expect_done(&guest, raw_release(&guest, lease));
    raw_close(&guest);
    /* The next one finds what the one before that left. */
    memcpy(harness.client_socket, kept.client_socket, sizeof(kept.client_socket));
    memcpy(harness.control_socket, kept.control_socket, sizeof(kept.control_socket));
    harness_configure(&harness, HARNESS_BROKER HARNESS_TENANT);
    succeed();
    tamper_expect_said(&harness, "");
    ck_assert(harness_logged(&harness, "start 2 with this ledger"));
    come_back_and_finish();
}
END_TEST

/* ------------------------------------------------------------------ a store that ends */

/* Takes what it is sent and keeps nothing, until it is killed. */
static pid_t deaf_manager(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    char text[512];
    pid_t pid;

    (void) snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
    ck_assert_int_eq(bind(fd, (struct sockaddr *) &address, sizeof(address)), 0);
    pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
        while (recv(fd, text, sizeof(text), 0) >= 0)
            continue;
        _exit(0);
    }
    (void) close(fd);
    return pid;
}

/* Nothing of what was given back is the tenant's, or on its way to the driver. */
static bool returned(void)
{
    char failure[LIMIT_TEXT_BYTES];
    Gmb__DeviceStatus device;

    raw_device(&harness, &device, failure);
    return device.cached_bytes + device.clean_bytes + device.releasing_bytes == 0;
}

START_TEST(a_store_that_ends_later_is_said_and_no_stale_fd_is_taken_for_a_new_one)
{
    char path[96], what[128];
    Gmb__ControlReply *reply;
    pid_t manager;
    uint64_t gone;

    begin(NULL);
    gone = leases[0];
    (void) snprintf(path, sizeof(path), "%s/deaf", harness.dir);
    manager = deaf_manager(path);
    (void) snprintf(what, sizeof(what), "env NOTIFY_SOCKET %s", path);
    succeed_spoiled(what);
    ck_assert(raw_come_back(&raw, &harness));
    expect_resumed(&raw, say(&raw, 0, 2));
    ck_assert_int_eq(kill(manager, SIGKILL), 0);
    ck_assert_int_eq(waitpid(manager, NULL, 0), manager);
    /* The store isn't told that these are gone, and what takes their numbers isn't stored. */
    raw_expect_done(&raw, raw_release(&raw, gone));
    wait_until(returned());
    leases[0] =
        raw_expect_lease(&raw, raw_lease(&raw, chunks[0] * CHUNK, CHUNK, PATIENCE_NS), chunks[0]);
    reply = raw_status(&harness);
    ck_assert_ptr_nonnull(strstr(reply->status->degraded, "fd store is full, or keeps nothing"));
    frame_message_free(&reply->base);
    ck_assert(harness_logged(&harness, "the service manager doesn't keep file descriptors"));
    succeed();
    tamper_expect_said(&harness, "4 chunks have no memory here");
    ck_assert(harness_logged(&harness, "4 file descriptors that no record names were let go"));
    come_back_and_finish();
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("restart_attacks");
    TCase *tcase = tcase_create("restart_attacks");

    tcase_add_test(tcase, garbage_of_a_client_that_comes_back_ends_its_connection_alone);
    tcase_add_test(tcase, part_of_a_frame_and_the_end_cost_a_client_that_comes_back_nothing);
    tcase_add_loop_test(
        tcase, the_later_of_two_connections_with_one_token_has_the_session, 0, PROGRESS_MAX);
    tcase_add_test(tcase, what_the_earlier_connection_waited_for_is_granted_to_nobody);
    tcase_add_test(tcase, of_many_connections_with_one_token_at_once_one_has_the_session);
    tcase_add_loop_test(tcase, a_ledger_without_a_whole_header_is_named_and_the_next_one_counts, 0,
        (int) ARRAY_SIZE(header_damage));
    tcase_add_loop_test(
        tcase, a_start_that_cannot_tell_what_it_was_given_is_refused_and_costs_nothing, 0, 2);
    tcase_add_test(tcase, a_manager_that_cannot_be_reached_refuses_the_start_and_costs_nothing);
    tcase_add_test(tcase, a_start_with_more_than_it_may_have_open_is_refused_and_costs_nothing);
    tcase_add_test(tcase, a_start_with_little_room_serves_and_says_what_will_not_be_kept);
    tcase_add_test(tcase, what_was_passed_to_another_process_is_left_alone);
    tcase_add_test(tcase, a_store_that_ends_later_is_said_and_no_stale_fd_is_taken_for_a_new_one);
    suite_add_tcase(suite, tcase);
    return unit_run_suite(suite);
}
