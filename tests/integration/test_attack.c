/*
 * An attacker: a process of another tenant and another user that tries whatever the protocol and
 * the kernel let it try with leases, fds and floods. Each attack is refused by name, and afterwards
 * the victim has its bytes, its leases and an answer in time.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/integration/attack.h"
#include "tests/integration/raw_arena.h"
#include "tests/unit/unit.h"

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

    raw_connect(&raw, &attack_bed.harness);
    for (size_t i = 0; i < attack_bed.lease_count; i++) {
        uint64_t real = attack_bed.leases[i];
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
    attack_begin();
    attack_run(guess);
    attack_end();
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
            raw_connect(&raw, &attack_bed.harness);
            send_fd(&raw, fds[i]);
            raw_expect_end(&raw);
            raw_close(&raw);
        }
    }
}

START_TEST(fds_of_any_kind_are_not_taken_in)
{
    attack_begin();
    attack_run(offer_fds);
    ck_assert(harness_logged(&attack_bed.harness, "with file descriptors"));
    attack_end(); /* which counts the broker's fds */
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

    raw_connect(&raw, &attack_bed.harness);
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
    /* Slabs have no pages. */
    if (raw_slabs())
        return;
    attack_begin();
    attack_run(shrink_table);
    attack_end();
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

#define RETURN_WAIT UINT64_C(30000000000) /* what the last ones had may be on its way back */

/* In windows of so many: more in flight than this isn't faster. */
enum { WINDOW = 64 };

static unsigned long leases_wanted(void)
{
    const char *given = getenv("ATTACK_LEASES");

    return given != NULL ? strtoul(given, NULL, 10) : 20000;
}

/* Leases of one chunk, and none given back, as often as ATTACK_LEASES says. */
static void take_small_leases(void)
{
    unsigned long total = leases_wanted(), granted = 0;
    struct raw raw;

    raw_connect(&raw, &attack_bed.harness);
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
    ck_assert_uint_eq(granted, ATTACK_LEASES_MAX);
    raw_close(&raw);
}

START_TEST(small_leases_without_number_stop_at_the_tenants_own_limit)
{
    uint64_t before;

    attack_begin();
    before = resident_bytes(attack_bed.harness.pid);
    attack_run(take_small_leases);
    ck_assert_uint_lt(resident_bytes(attack_bed.harness.pid), before + UNIT_GROWTH(16u << 20));
    attack_end();
}
END_TEST

/* As many as it may have at once, and gives them back: all are granted, as often as it likes. */
static void take_and_give_back(void)
{
    unsigned long total = leases_wanted();
    uint64_t ids[ATTACK_LEASES_MAX], leases[ATTACK_LEASES_MAX];
    struct raw raw;

    raw_connect(&raw, &attack_bed.harness);
    for (unsigned long taken = 0; taken < total; taken += ATTACK_LEASES_MAX) {
        for (unsigned i = 0; i < ATTACK_LEASES_MAX; i++)
            ids[i] = raw_lease(&raw, 1, HARNESS_CHUNK, RETURN_WAIT);
        for (unsigned i = 0; i < ATTACK_LEASES_MAX; i++)
            leases[i] = raw_expect_lease(&raw, ids[i], 1);
        for (unsigned i = 0; i < ATTACK_LEASES_MAX; i++)
            ids[i] = raw_release(&raw, leases[i]);
        for (unsigned i = 0; i < ATTACK_LEASES_MAX; i++)
            raw_expect_done(&raw, ids[i]);
    }
    raw_close(&raw);
}

START_TEST(small_leases_that_come_and_go_leave_nothing_behind)
{
    uint64_t before, after, began = harness_now_ms();

    attack_begin();
    before = resident_bytes(attack_bed.harness.pid);
    attack_run(take_and_give_back);
    after = resident_bytes(attack_bed.harness.pid);
    (void) fprintf(stderr, "%lu leases in %llu ms; the broker's memory: %llu KiB, then %llu KiB\n",
        leases_wanted(), (unsigned long long) (harness_now_ms() - began),
        (unsigned long long) before / 1024, (unsigned long long) after / 1024);
    ck_assert_uint_lt(after, before + UNIT_GROWTH(16u << 20));
    attack_end();
}
END_TEST

static void never_read(void)
{
    struct pollfd poll_fd = {.events = POLLIN};
    uint64_t deadline = harness_now_ms() + HARNESS_DEADLINE_MS;
    struct raw raw;

    raw_connect(&raw, &attack_bed.harness);
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
    attack_begin();
    attack_run(never_read);
    attack_end();
}
END_TEST

UNIT_MAIN("attack", ids_of_other_tenants_are_as_unknown_as_those_that_never_were,
    fds_of_any_kind_are_not_taken_in, a_page_table_is_sealed_and_its_bytes_are_not_believed,
    small_leases_without_number_stop_at_the_tenants_own_limit,
    small_leases_that_come_and_go_leave_nothing_behind, who_never_reads_is_no_longer_listened_to)
