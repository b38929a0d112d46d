/*
 * An attacker: a process of another tenant and another user that tries whatever the protocol and
 * the kernel let it try. Each attack is refused by name, and afterwards the victim has its bytes,
 * its leases and an answer in time. Needs root, to be two users; else there is nobody to attack.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/integration/pages.h"
#include "tests/integration/raw_arena.h"
#include "tests/unit/unit.h"

enum { NOBODY = 65534, PAGES = 128, VICTIM_LEASES_MAX = 8 };

#define CONFIG                                                                                     \
    HARNESS_BROKER "[Tenant victim]\nUser=root\nMemoryMin=64M\n"                                   \
                   "[Tenant attacker]\nUser=*\nMemoryMax=128M\nLeasesMax=32\n"
#define ATTACKER_CHUNKS 64 /* MemoryMax */

struct bed {
    struct harness harness;
    struct pages victim;
    uint64_t leases[VICTIM_LEASES_MAX]; /* the victim's, by their real ids */
    size_t lease_count;
};

static struct bed bed;

static void leases_learn(void)
{
    Gmb__ControlRequest request;
    Gmb__ControlReply *reply;
    Gmb__LeasesGet body;

    gmb__control_request__init(&request);
    gmb__leases_get__init(&body);
    request.body_case = GMB__CONTROL_REQUEST__BODY_LEASES_GET;
    request.leases_get = &body;
    reply = raw_control(&bed.harness, &request);
    ck_assert_int_eq(reply->body_case, GMB__CONTROL_REPLY__BODY_LEASE_PAGE);
    bed.lease_count = MIN(reply->lease_page->n_leases, (size_t) VICTIM_LEASES_MAX);
    ck_assert_uint_gt(bed.lease_count, 0);
    for (size_t i = 0; i < bed.lease_count; i++)
        bed.leases[i] = reply->lease_page->leases[i]->id;
    frame_message_free(&reply->base);
}

/* False where there can't be two users. */
static bool begin(void)
{
    if (geteuid() != 0)
        return false;
    harness_start(&bed.harness, CONFIG);
    pages_open(&bed.victim, &bed.harness, 65536, HARNESS_CHUNK, 16 * HARNESS_CHUNK);
    pages_fill(&bed.victim, PAGES);
    leases_learn();
    return true;
}

/* The victim has its pages, byte for byte, and gets memory. */
static void victim_check(void)
{
    struct gmb_lease_params params = {
        .size = sizeof(params), .bytes = 8 * HARNESS_CHUNK, .wait_ns = UINT64_C(15000000000)};
    gmb_lease *lease;

    pages_check(&bed.victim, 0, PAGES, 16);
    ck_assert_msg(gmb_lease_new(bed.victim.session, &params, &lease) == 0, "the victim waits: %s",
        gmb_error_text());
    ck_assert_int_eq(gmb_lease_release(lease), 0);
    ck_assert_int_eq(kill(bed.harness.pid, 0), 0);
}

static void end(void)
{
    victim_check();
    pages_close(&bed.victim);
    harness_stop(&bed.harness);
}

static void become_attacker(void)
{
    (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (setgid(NOBODY) < 0 || setuid(NOBODY) < 0)
        _exit(2);
}

/* Runs the attack as another user. Its own assertions decide, and that the victim is as it was. */
static void attack(void (*run)(void))
{
    int status;
    pid_t pid = fork();

    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        become_attacker();
        run();
        _exit(0);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0,
        "the attacker got something else than it should: %x", status);
    victim_check();
}

/* The attacker's own use, as the broker counts it. */
static Gmb__TenantDevice attacker_use(void)
{
    Gmb__TenantDevice use;

    raw_tenant(&bed.harness, "attacker", &use);
    return use;
}

/* ------------------------------------------------------------------ guesses */

/* Expects NOT_FOUND, and copies the sentence. */
static void expect_not_found(struct raw *raw, uint64_t id, char text[LIMIT_TEXT_BYTES])
{
    Gmb__BrokerMessage *message = raw_receive(raw);

    ck_assert_ptr_nonnull(message);
    ck_assert_uint_eq(message->id, id);
    ck_assert_int_eq(message->body_case, GMB__BROKER_MESSAGE__BODY_ERROR);
    ck_assert_uint_eq(message->error->status, GMB_STATUS_NOT_FOUND);
    (void) snprintf(text, LIMIT_TEXT_BYTES, "%s", message->error->text);
    frame_message_free(&message->base);
}

enum { USES = 5 };

static uint64_t use_send(struct raw *raw, unsigned use, uint64_t lease)
{
    switch (use) {
    case 0:
        return raw_grow(raw, lease, HARNESS_CHUNK);
    case 1:
        return raw_shrink(raw, lease, 1);
    case 2:
        return raw_release(raw, lease);
    case 3:
        return raw_fill(raw, lease, 0, 1, 0);
    default:
        return raw_return(raw, lease, 0, 1);
    }
}

static void guess(void)
{
    uint32_t pages[] = {0, 1, 2};
    struct raw raw;

    raw_connect(&raw, &bed.harness);
    for (size_t i = 0; i < bed.lease_count; i++) {
        uint64_t real = bed.leases[i];
        const uint64_t guesses[] = {
            real, real + 1, real - 1, real + (UINT64_C(1) << 32), 1, UINT32_MAX, UINT64_MAX};

        for (unsigned use = 0; use < USES; use++) {
            char real_text[LIMIT_TEXT_BYTES], text[LIMIT_TEXT_BYTES];

            expect_not_found(&raw, use_send(&raw, use, real), real_text);
            /* Nothing tells a lease of another tenant from one that never was. */
            for (size_t k = 0; k < ARRAY_SIZE(guesses); k++) {
                expect_not_found(&raw, use_send(&raw, use, guesses[k]), text);
                ck_assert_str_eq(text, real_text);
            }
        }
        /* Nobody answers these; the next answer shows that they are over. */
        raw_mapped(&raw, real, 0, 1);
        raw_want(&raw, real, pages, ARRAY_SIZE(pages));
    }
    for (uint64_t id = 1; id < 200; id++)
        raw_expect_error(&raw, raw_cancel(&raw, id << 32), GMB_STATUS_NOT_FOUND);
    raw_close(&raw);
}

START_TEST(ids_of_other_tenants_are_as_unknown_as_those_that_never_were)
{
    if (!begin())
        return;
    attack(guess);
    end();
}
END_TEST

/* ------------------------------------------------------------------ fds */

static void send_fd(const struct raw *raw, int fd)
{
    static const uint8_t cancel[] = {8, 9, 58, 2, 8, 1}; /* id 9, Cancel of request 1 */
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec part = {(void *) (uintptr_t) cancel, sizeof(cancel)};
    struct msghdr header = {.msg_iov = &part,
        .msg_iovlen = 1,
        .msg_control = &control,
        .msg_controllen = sizeof(control)};

    control.header = (struct cmsghdr){
        .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
    memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
    ck_assert_int_eq(sendmsg(conn_fd(raw->conn), &header, MSG_NOSIGNAL), (ssize_t) sizeof(cancel));
}

static int memory_fd(off_t size)
{
    int fd = memfd_create("attack", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(ftruncate(fd, size), 0);
    return fd;
}

static void offer_fds(void)
{
    int pipes[2], sockets[2];

    ck_assert_int_eq(pipe(pipes), 0);
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets), 0);
    {
        const int fds[] = {memory_fd(HARNESS_CHUNK), memory_fd(1), memory_fd(0), pipes[0], pipes[1],
            sockets[0], eventfd(0, 0), open("/", O_RDONLY | O_DIRECTORY), open("/dev/null", O_RDWR),
            open("/proc/self/status", O_RDONLY)};

        for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
            struct raw raw;

            ck_assert_int_ge(fds[i], 0);
            raw_connect(&raw, &bed.harness);
            send_fd(&raw, fds[i]);
            raw_expect_end(&raw);
            raw_close(&raw);
        }
    }
}

START_TEST(fds_of_any_kind_are_not_taken_in)
{
    if (!begin())
        return;
    attack(offer_fds);
    ck_assert(harness_logged(&bed.harness, "with file descriptors"));
    end(); /* which counts the broker's fds */
}
END_TEST

/* The table of an arena is shared with the broker: it must not shrink under its feet. */
static void shrink_table(void)
{
    Gmb__BrokerMessage *message;
    struct raw raw;
    off_t size;
    void *memory;
    uint64_t lease;
    int table;

    raw_connect(&raw, &bed.harness);
    (void) raw_arena_request(&raw, 65536, HARNESS_CHUNK, 8 * HARNESS_CHUNK);
    message = raw_receive(&raw);
    ck_assert_ptr_nonnull(message);
    ck_assert_int_eq(message->body_case, GMB__BROKER_MESSAGE__BODY_ARENA_CREATED);
    lease = message->arena_created->lease;
    frame_message_free(&message->base);
    table = raw.fds.fds[0];
    size = lseek(table, 0, SEEK_END);
    ck_assert_int_gt(size, 0);
    ck_assert_int_eq(ftruncate(table, 0), -1);
    ck_assert_int_eq(errno, EPERM);
    ck_assert_int_eq(ftruncate(table, size / 2), -1);
    ck_assert_int_eq(ftruncate(table, 2 * size), -1);
    ck_assert_int_eq(fcntl(table, F_ADD_SEALS, F_SEAL_WRITE), -1);
    ck_assert_int_eq(errno, EPERM);
    memory = mmap(NULL, (size_t) size, PROT_READ | PROT_WRITE, MAP_SHARED, table, 0);
    ck_assert(memory != MAP_FAILED);
    /* What can be done: no page behind it, and bytes without sense. */
    ck_assert_int_eq(fallocate(table, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, size), 0);
    memset(memory, 0xa5, (size_t) size);
    raw_expect_fill(&raw, raw_fill(&raw, lease, 0, 4, 0), 0, 4);
    raw_mapped(&raw, lease, 0, 4);
    raw_expect_done(&raw, raw_return(&raw, lease, 0, 4));
    raw_expect_done(&raw, raw_release(&raw, lease));
    raw_close(&raw);
}

START_TEST(a_page_table_is_sealed_and_its_bytes_are_not_believed)
{
    if (!begin())
        return;
    attack(shrink_table);
    end();
}
END_TEST

/* ------------------------------------------------------------------ order */

static void speak_out_of_order(void)
{
    uint32_t page = 0;
    struct raw raw;

    for (unsigned use = 0; use <= USES; use++) {
        uint64_t id;

        raw_dial(&raw, &bed.harness);
        id = use < USES ? use_send(&raw, use, bed.leases[0])
                        : raw_arena_request(&raw, 65536, HARNESS_CHUNK, HARNESS_CHUNK);
        raw_expect_error(&raw, id, GMB_STATUS_PROTOCOL);
        raw_expect_end(&raw);
        raw_close(&raw);
    }
    raw_dial(&raw, &bed.harness);
    raw_want(&raw, bed.leases[0], &page, 1);
    raw_expect_end(&raw);
    raw_close(&raw);
    raw_connect(&raw, &bed.harness);
    raw_expect_error(&raw, raw_hello(&raw, 1), GMB_STATUS_PROTOCOL);
    raw_expect_end(&raw);
    raw_close(&raw);
}

START_TEST(messages_out_of_order_end_the_attackers_connection_alone)
{
    if (!begin())
        return;
    attack(speak_out_of_order);
    end();
}
END_TEST

/* ------------------------------------------------------------------ floods */

static uint64_t resident_bytes(pid_t pid)
{
    unsigned long long all, resident = 0;
    char path[32];
    FILE *file;

    (void) snprintf(path, sizeof(path), "/proc/%d/statm", (int) pid);
    file = fopen(path, "re");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fscanf(file, "%llu %llu", &all, &resident), 2);
    (void) fclose(file);
    return resident * (uint64_t) sysconf(_SC_PAGESIZE);
}

/* In windows of so many: more in flight than this isn't faster. */
enum { WINDOW = 64 };

/* Leases of one chunk, and none given back, as often as ATTACK_LEASES says. */
static void take_small_leases(void)
{
    const char *given = getenv("ATTACK_LEASES");
    unsigned long total = given != NULL ? strtoul(given, NULL, 10) : 20000, granted = 0;
    struct raw raw;

    raw_connect(&raw, &bed.harness);
    for (unsigned long sent = 0; sent < total; sent += WINDOW) {
        for (unsigned i = 0; i < WINDOW; i++)
            (void) raw_lease(&raw, 1, HARNESS_CHUNK, 0);
        for (unsigned i = 0; i < WINDOW; i++) {
            Gmb__BrokerMessage *message = raw_receive(&raw);

            ck_assert_ptr_nonnull(message);
            granted += message->body_case == GMB__BROKER_MESSAGE__BODY_GRANT;
            if (message->body_case != GMB__BROKER_MESSAGE__BODY_GRANT) {
                ck_assert_uint_eq(message->error->status, GMB_STATUS_EXHAUSTED);
                ck_assert_uint_eq(message->error->limit, GMB_LIMIT_LEASES_MAX);
            }
            frame_message_free(&message->base);
        }
    }
    ck_assert_uint_eq(granted, 32);
    raw_close(&raw);
}

START_TEST(small_leases_without_number_stop_at_the_tenants_own_limit)
{
    uint64_t before;

    if (!begin())
        return;
    before = resident_bytes(bed.harness.pid);
    attack(take_small_leases);
    ck_assert_uint_lt(resident_bytes(bed.harness.pid), before + UNIT_GROWTH(16u << 20));
    end();
}
END_TEST

static void never_read(void)
{
    struct pollfd poll_fd = {.events = POLLIN};
    uint64_t deadline = harness_now_ms() + HARNESS_DEADLINE_MS;
    struct raw raw;

    raw_connect(&raw, &bed.harness);
    poll_fd.fd = conn_fd(raw.conn);
    /* The broker stops to read what it can't answer, or ends the connection: either way it has
     * stopped to work for this peer. */
    for (unsigned i = 0; i < 20000 && harness_now_ms() < deadline; i++) {
        (void) raw_lease(&raw, 1, HARNESS_CHUNK, 0);
        if (conn_queued(raw.conn) > LIMIT_SEND_QUEUE_FRAMES / 2)
            break;
        if (poll(&poll_fd, 1, 0) == 1 && (poll_fd.revents & POLLHUP) != 0)
            break;
    }
    ck_assert_uint_lt(harness_now_ms(), deadline);
    raw_close(&raw);
}

START_TEST(who_never_reads_is_no_longer_listened_to)
{
    if (!begin())
        return;
    attack(never_read);
    end();
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

    (void) snprintf(address.sun_path, sizeof(address.sun_path), "%s", bed.harness.control_socket);
    ck_assert_int_eq(connect(fd, (struct sockaddr *) &address, sizeof(address)), -1);
    ck_assert_int_eq(errno, EACCES);
    (void) close(fd);

    raw_dial(&raw, &bed.harness);
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
    raw_dial(&raw, &bed.harness);
    (void) raw_hello(&raw, 1);
    message = raw_receive(&raw);
    ck_assert_ptr_nonnull(message);
    ck_assert_int_eq(message->body_case, GMB__BROKER_MESSAGE__BODY_WELCOME);
    ck_assert_str_eq(message->welcome->tenant, "attacker");
    ck_assert_uint_eq(message->welcome->devices[0]->memory_max_bytes, 128 << 20);
    frame_message_free(&message->base);
    raw_close(&raw);

    (void) snprintf(path, sizeof(path), "/proc/%d/fd", (int) bed.harness.pid);
    ck_assert_int_eq(open(path, O_RDONLY | O_DIRECTORY), -1);
    (void) snprintf(path, sizeof(path), "/proc/%d/mem", (int) bed.harness.pid);
    ck_assert_int_eq(open(path, O_RDWR), -1);
    ck_assert_int_eq(kill(bed.harness.pid, SIGTERM), -1);
    ck_assert_int_eq(errno, EPERM);
}

START_TEST(status_leases_and_names_of_others_are_not_to_be_had)
{
    if (!begin())
        return;
    attack(look_around);
    end();
}
END_TEST

/* ------------------------------------------------------------------ death */

/* It hangs up as the dead do, and lives. */
static void pretend_to_be_dead(void)
{
    struct raw raw;

    for (unsigned i = 0; i < 3; i++) {
        raw_connect(&raw, &bed.harness);
        if (i == 0)
            (void) raw_expect_lease(
                &raw, raw_lease(&raw, 128 << 20, HARNESS_CHUNK, 0), ATTACKER_CHUNKS);
        raw_expect_error(&raw, raw_lease(&raw, 1, HARNESS_CHUNK, 0), GMB_STATUS_EXHAUSTED);
        raw_close(&raw);
    }
}

START_TEST(who_hangs_up_and_lives_is_charged_as_before)
{
    if (!begin())
        return;
    attack(pretend_to_be_dead);
    end();
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
    int kept[ATTACKER_CHUNKS];

    raw_connect(&raw, &bed.harness);
    (void) raw_lease(&raw, 128 << 20, HARNESS_CHUNK, 0);
    while (chunks < ATTACKER_CHUNKS) {
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

    raw_connect(&raw, &bed.harness);
    raw_expect_error(&raw, raw_lease(&raw, 1, HARNESS_CHUNK, 0), GMB_STATUS_EXHAUSTED);
    raw_close(&raw);
}

START_TEST(a_fork_that_keeps_everything_keeps_it_on_its_tenants_account)
{
    uint64_t deadline = harness_now_ms() + HARNESS_DEADLINE_MS;
    int status;
    pid_t pid;

    if (!begin())
        return;
    /* Its orphan becomes ours, to be ended. */
    ck_assert_int_eq(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    ck_assert_int_eq(pipe(heir), 0);
    pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        if (setgid(NOBODY) < 0 || setuid(NOBODY) < 0)
            _exit(2);
        fork_and_die();
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
    while (attacker_use().orphaned_bytes != 128 << 20) {
        ck_assert_uint_lt(harness_now_ms(), deadline);
        ck_assert_uint_eq(attacker_use().used_bytes, 128 << 20);
        harness_breathe();
    }
    attack(expect_no_memory);
    ck_assert_int_eq(read(heir[0], &pid, sizeof(pid)), sizeof(pid));
    ck_assert_int_eq(kill(pid, SIGKILL), 0);
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
    while (attacker_use().used_bytes != 0) {
        ck_assert_uint_lt(harness_now_ms(), deadline);
        harness_breathe();
    }
    end();
}
END_TEST

UNIT_MAIN("attack", ids_of_other_tenants_are_as_unknown_as_those_that_never_were,
    fds_of_any_kind_are_not_taken_in, a_page_table_is_sealed_and_its_bytes_are_not_believed,
    messages_out_of_order_end_the_attackers_connection_alone,
    small_leases_without_number_stop_at_the_tenants_own_limit,
    who_never_reads_is_no_longer_listened_to, status_leases_and_names_of_others_are_not_to_be_had,
    who_hangs_up_and_lives_is_charged_as_before,
    a_fork_that_keeps_everything_keeps_it_on_its_tenants_account)
