/* Peers that use what the kernel lets them do: others are served as if they weren't there. */
#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/error.h"
#include "tests/integration/raw.h"
#include "tests/unit/unit.h"

#define LINGER_SECONDS 30
#define LINGERING 20
/* What would be late: well below the above, well above a slow machine's pace. */
#define PROMPT_MS 5000

/* Where there is no network, the loopback interface is down. Who may, takes one of its own; the
 * sockets of the broker lie in the file system, and are reached all the same. */
static void loopback_raise(void)
{
    struct ifreq request = {.ifr_name = "lo", .ifr_flags = IFF_UP};
    int fd;

    if (unshare(CLONE_NEWNET) < 0)
        return;
    fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(ioctl(fd, SIOCSIFFLAGS, &request), 0);
    (void) close(fd);
}

/* A TCP connection whose close(2) waits LINGER_SECONDS for a peer that never reads. */
static int lingering_socket(int *ret_peer)
{
    static const struct linger linger = {1, LINGER_SECONDS};
    static const char block[65536];
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof(address);
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    ck_assert_int_eq(bind(listener, (struct sockaddr *) &address, size), 0);
    ck_assert_int_eq(getsockname(listener, (struct sockaddr *) &address, &size), 0);
    ck_assert_int_eq(listen(listener, 1), 0);
    ck_assert_int_eq(connect(fd, (struct sockaddr *) &address, size), 0);
    *ret_peer = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    ck_assert_int_ge(*ret_peer, 0);
    (void) close(listener);
    while (send(fd, block, sizeof(block), MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
        continue;
    ck_assert_int_eq(errno, EAGAIN);
    ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger)), 0);
    return fd;
}

/* Sends a Hello, or what is behind one, with an fd. */
static void send_with_fd(struct raw *raw, int fd)
{
    static const uint8_t hello[] = {8, 1, 18, 2, 8, 1};
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct iovec part = {(void *) (uintptr_t) hello, sizeof(hello)};
    struct msghdr header = {.msg_iov = &part,
        .msg_iovlen = 1,
        .msg_control = &control,
        .msg_controllen = sizeof(control)};

    control.header = (struct cmsghdr){
        .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int))};
    memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
    ck_assert_int_eq(sendmsg(conn_fd(raw->conn), &header, MSG_NOSIGNAL), (ssize_t) sizeof(hello));
}

START_TEST(a_file_that_is_slow_to_close_holds_nobody_up)
{
    struct harness harness;
    struct raw hostile[LINGERING];
    int peers[LINGERING];
    uint64_t started;

    loopback_raise();
    harness_start(&harness, NULL);
    /* While the broker stands still, its queues take files that it alone will hold. */
    ck_assert_int_eq(kill(harness.pid, SIGSTOP), 0);
    for (size_t i = 0; i < LINGERING; i++) {
        int fd = lingering_socket(&peers[i]);

        raw_dial(&hostile[i], &harness);
        /* In what is read, in what isn't any more, and in what ends unread with its sender. */
        send_with_fd(&hostile[i], fd);
        send_with_fd(&hostile[i], fd);
        (void) close(fd);
        if (i % 2 == 0)
            raw_close(&hostile[i]);
    }
    started = harness_now_ms();
    ck_assert_int_eq(kill(harness.pid, SIGCONT), 0);
    for (unsigned i = 0; i < 4; i++) {
        struct raw raw;
        uint64_t lease;

        raw_connect(&raw, &harness);
        lease = raw_expect_lease(&raw, raw_lease(&raw, HARNESS_CHUNK, HARNESS_CHUNK, 0), 1);
        raw_expect_done(&raw, raw_release(&raw, lease));
        raw_close(&raw);
    }
    harness_settle(&harness);
    ck_assert_uint_lt(harness_now_ms() - started, PROMPT_MS);
    for (size_t i = 0; i < LINGERING; i++) {
        if (i % 2 != 0)
            raw_close(&hostile[i]);
        (void) close(peers[i]);
    }
    harness_stop(&harness);
}
END_TEST

/* What a stranger may say, as often as there is time: each gets one line, were it not rationed. */
START_TEST(a_stranger_cannot_fill_the_log)
{
    static const uint8_t old[] = {8, 1, 18, 0}; /* Hello of version 0 */
    struct harness harness;
    struct stat status;
    struct raw raw;

    (void) setenv("GMBD_LOG_LEVEL", "info", 1);
    harness_start(&harness, NULL);
    for (unsigned i = 0; i < 1000; i++) {
        raw_dial(&raw, &harness);
        ck_assert_int_eq(send(conn_fd(raw.conn), i % 2 == 0 ? "?" : (const char *) old,
                             i % 2 == 0 ? 1 : sizeof(old), MSG_NOSIGNAL),
            i % 2 == 0 ? 1 : (int) sizeof(old));
        raw_expect_end(&raw);
        raw_close(&raw);
    }
    /* 20 lines of at most 1 KiB in 5 s; and what the broker says of itself. */
    ck_assert_int_eq(stat(harness.log, &status), 0);
    ck_assert_int_lt(status.st_size, (HARNESS_DEADLINE_MS / 5000 + 1) * 20 * 200);
    harness_stop(&harness);
}
END_TEST

UNIT_MAIN("hostile", a_stranger_cannot_fill_the_log, a_file_that_is_slow_to_close_holds_nobody_up)
