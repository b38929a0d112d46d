/* The parts of the keeper without a broker: what it reads, holds, passes on, when it starts. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "daemon/keeper/manager.h"
#include "daemon/keeper/pass.h"
#include "daemon/keeper/restart.h"
#include "daemon/keeper/store.h"
#include "tests/unit/unit.h"

static int some_fd(void)
{
    int fd = open("/dev/null", O_RDWR | O_CLOEXEC);

    ck_assert_int_ge(fd, 0);
    return fd;
}

static bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

START_TEST(lines_are_read_and_unknown_ones_skipped)
{
    char text[] =
        "READY=1\nSTATUS=3 clients\nX=1\nREADY\nFDSTORE=1\nFDNAME=c12\nWATCHDOG=trigger\n";
    struct notify notify;

    notify_parse(text, &notify);
    ck_assert(notify.ready && notify.fd_store);
    ck_assert(!notify.fd_store_remove && !notify.watchdog);
    ck_assert_str_eq(notify.status, "3 clients");
    ck_assert_str_eq(notify.fd_name, "c12");
}
END_TEST

START_TEST(nothing_is_no_word)
{
    char text[] = "";
    struct notify notify;

    notify_parse(text, &notify);
    ck_assert(!notify.ready && notify.fd_name == NULL && notify.status == NULL);
}
END_TEST

/* The last datagram that waits there. */
static void last_read(int fd, struct notify_datagram *ret)
{
    int r, count = 0;

    while ((r = notify_receive(fd, ret)) == 0)
        count++;
    ck_assert_int_eq(r, -EAGAIN);
    ck_assert_int_gt(count, 0);
}

START_TEST(a_manager_that_does_not_listen_is_not_waited_for_and_hears_the_latest)
{
    static struct notify_datagram datagram;
    static struct manager manager;
    char folder[SCRATCH_PATH_BYTES], path[96], status[16];
    uint64_t now_ns = NSEC_PER_SEC;
    int fd;

    ck_assert_int_eq(scratch_make(folder), 0);
    (void) snprintf(path, sizeof(path), "%s/notify", folder);
    fd = notify_socket(path);
    ck_assert_int_ge(fd, 0);
    (void) setenv("NOTIFY_SOCKET", path, 1);
    manager_open(&manager);
    ck_assert(manager.again_ns == CLOCK_NEVER);
    for (unsigned i = 0; i < 2000; i++) {
        (void) snprintf(status, sizeof(status), "state %u", i);
        manager_tell(&manager, i == 7, status, now_ns);
    }
    ck_assert_uint_gt(manager.again_ns, now_ns);
    last_read(fd, &datagram);
    ck_assert_ptr_null(strstr(datagram.text, "1999"));
    manager_step(&manager, manager.again_ns - 1);
    ck_assert_int_eq(notify_receive(fd, &datagram), -EAGAIN);
    manager_step(&manager, manager.again_ns);
    last_read(fd, &datagram);
    ck_assert_str_eq(datagram.text, "READY=1\nSTATUS=state 1999");
    ck_assert(manager.again_ns == CLOCK_NEVER);
    manager_close(&manager);
    ck_assert_int_eq(close(fd), 0);
    ck_assert_int_eq(scratch_remove(folder), 0);
}
END_TEST

START_TEST(names_are_printable_without_colon)
{
    char longest[STORE_NAME_BYTES + 2];

    memset(longest, 'a', sizeof(longest));
    longest[STORE_NAME_BYTES] = '\0';
    ck_assert(store_name_valid("a"));
    ck_assert(store_name_valid(longest));
    longest[STORE_NAME_BYTES] = 'a';
    longest[STORE_NAME_BYTES + 1] = '\0';
    ck_assert(!store_name_valid(longest));
    ck_assert(!store_name_valid(""));
    ck_assert(!store_name_valid("a:b"));
    ck_assert(!store_name_valid("a\nb"));
    ck_assert(!store_name_valid("\x7f"));
}
END_TEST

START_TEST(a_full_store_refuses_and_closes)
{
    struct store store;
    int first = some_fd(), second = some_fd(), third = some_fd();

    store_init(&store, 2);
    ck_assert_int_eq(store_consume_fd(&store, "a", first), 0);
    ck_assert_int_eq(store_consume_fd(&store, "a", second), 0);
    ck_assert_int_eq(store_consume_fd(&store, "b", third), -ENFILE);
    ck_assert(!is_open(third));
    ck_assert_uint_eq(store.names_bytes, 4);
    ck_assert_uint_eq(store_remove(&store, "b"), 0);
    ck_assert_uint_eq(store_remove(&store, "a"), 2);
    ck_assert(!is_open(first) && !is_open(second));
    ck_assert_uint_eq(store.names_bytes, 0);
    store_clear(&store);
}
END_TEST

START_TEST(a_name_that_is_none_closes_the_fd)
{
    struct store store;
    int fd = some_fd();

    store_init(&store, 2);
    ck_assert_int_eq(store_consume_fd(&store, "a:b", fd), -EINVAL);
    ck_assert(!is_open(fd));
    ck_assert_uint_eq(store.count, 0);
    store_clear(&store);
}
END_TEST

START_TEST(the_store_takes_no_more_names_than_can_be_passed_on)
{
    struct store store;
    char name[STORE_NAME_BYTES + 1];
    size_t taken = 0;
    int r;

    memset(name, 'n', sizeof(name) - 1);
    name[STORE_NAME_BYTES] = '\0';
    store_init(&store, 1 << 20);
    while ((r = store_consume_fd(&store, name, some_fd())) == 0)
        taken++;
    ck_assert_int_eq(r, -E2BIG);
    /* 256 bytes each, of 128 KiB less the variable's name and 4 KiB. */
    ck_assert_uint_eq(taken, (131072 - 16 - 4096) / 256);
    store_clear(&store);
}
END_TEST

START_TEST(removing_one_leaves_the_others_in_order)
{
    struct store store;
    int a = some_fd(), b = some_fd(), c = some_fd();

    store_init(&store, 8);
    ck_assert_int_eq(store_consume_fd(&store, "a", a), 0);
    ck_assert_int_eq(store_consume_fd(&store, "b", b), 0);
    ck_assert_int_eq(store_consume_fd(&store, "c", c), 0);
    ck_assert_uint_eq(store_remove(&store, "b"), 1);
    ck_assert_uint_eq(store_remove(&store, "b"), 0);
    ck_assert_uint_eq(store.count, 2);
    ck_assert_int_eq(store.fds[0].fd, a);
    ck_assert_int_eq(store.fds[1].fd, c);
    ck_assert(!is_open(b));
    store_clear(&store);
}
END_TEST

/* What is at 3 and 4 is replaced: not in a process that has something of its own there. */
static void pass_two_on(int first, int second)
{
    struct pass pass = {0};
    char byte = 0;
    bool good = pass_add(&pass, "write", first) == 0 && pass_add(&pass, "read", second) == 0 &&
                pass_apply(&pass, 4711) == 0;

    good = good && pass.fds[0] == 3 && pass.fds[1] == 4 && fcntl(3, F_GETFD) == 0;
    good = good && write(3, "x", 1) == 1 && read(4, &byte, 1) == 1 && byte == 'x';
    good = good && strcmp(getenv("LISTEN_FDS"), "2") == 0;
    good = good && strcmp(getenv("LISTEN_PID"), "4711") == 0;
    good = good && strcmp(getenv("LISTEN_FDNAMES"), "write:read") == 0;
    pass_clear(&pass);
    _exit(good ? 0 : 1);
}

START_TEST(fds_are_passed_on_from_three_in_order)
{
    int ends[2], status = -1;
    pid_t pid;

    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        /* Where each has to go the other is. */
        int to_read = fcntl(ends[0], F_DUPFD, 100), to_write = fcntl(ends[1], F_DUPFD, 100);

        if (dup2(to_read, 3) != 3 || dup2(to_write, 4) != 4)
            _exit(2);
        pass_two_on(4, 3);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
}
END_TEST

START_TEST(a_datagram_that_was_cut_off_says_nothing)
{
    int ends[2], on = 1;
    char large[NOTIFY_BYTES + 1];
    struct notify_datagram datagram;

    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, ends), 0);
    ck_assert_int_eq(setsockopt(ends[0], SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)), 0);
    memset(large, 'x', sizeof(large));
    memcpy(large, "READY=1\n", 8);
    ck_assert_int_eq(send(ends[1], large, sizeof(large), 0), (ssize_t) sizeof(large));
    ck_assert_int_eq(send(ends[1], large, NOTIFY_BYTES, 0), NOTIFY_BYTES);
    ck_assert_int_eq(notify_receive(ends[0], &datagram), 0);
    ck_assert_str_eq(datagram.text, "");
    ck_assert_int_eq(datagram.pid, getpid());
    ck_assert_int_eq(notify_receive(ends[0], &datagram), 0);
    ck_assert_uint_eq(strlen(datagram.text), NOTIFY_BYTES);
    ck_assert_int_eq(notify_receive(ends[0], &datagram), -EAGAIN);
    (void) close(ends[0]);
    (void) close(ends[1]);
}
END_TEST

START_TEST(the_first_start_comes_at_once_and_each_next_one_later)
{
    struct restart restart = {0};
    uint64_t now_ns = 1000;
    static const uint64_t pauses_ms[] = {0, 100, 200, 400, 800, 1600, 3200, 6400, 10000, 10000};

    for (size_t i = 0; i < ARRAY_SIZE(pauses_ms); i++) {
        uint64_t at_ns;

        restart_started(&restart, now_ns);
        at_ns = restart_at(&restart, now_ns);
        ck_assert_uint_eq(at_ns - now_ns, pauses_ms[i] * NSEC_PER_MSEC);
        now_ns = at_ns;
    }
    /* 1 ns short of steady is not steady. */
    restart_started(&restart, now_ns);
    now_ns += RESTART_STEADY_NS - 1;
    ck_assert_uint_eq(restart_at(&restart, now_ns) - now_ns, RESTART_MAX_NS);
    restart_started(&restart, now_ns);
    now_ns += RESTART_STEADY_NS;
    ck_assert_uint_eq(restart_at(&restart, now_ns), now_ns);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        lines_are_read_and_unknown_ones_skipped,
        nothing_is_no_word,
        a_manager_that_does_not_listen_is_not_waited_for_and_hears_the_latest,
        names_are_printable_without_colon,
        a_full_store_refuses_and_closes,
        a_name_that_is_none_closes_the_fd,
        the_store_takes_no_more_names_than_can_be_passed_on,
        removing_one_leaves_the_others_in_order,
        fds_are_passed_on_from_three_in_order,
        a_datagram_that_was_cut_off_says_nothing,
        the_first_start_comes_at_once_and_each_next_one_later,
    };

    return unit_run("keeper", tests, ARRAY_SIZE(tests));
}
