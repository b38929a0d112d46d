/* A broker that was killed, and one that finds its place taken. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "tests/integration/raw.h"
#include "tests/unit/unit.h"

START_TEST(a_killed_broker_leaves_its_memory_and_a_socket_that_the_next_replaces)
{
    struct harness harness;
    struct stat status;
    struct raw raw;

    harness_start(&harness, NULL);
    raw_connect(&raw, &harness);
    (void) raw_expect_lease(&raw, raw_lease(&raw, 4 * HARNESS_CHUNK, HARNESS_CHUNK, 0), 4);
    harness_kill(&harness);
    raw_expect_end(&raw);
    raw_close(&raw);
    ck_assert_int_eq(stat(harness.client_socket, &status), 0);
    harness_restart(&harness);
    raw_connect(&raw, &harness);
    raw_close(&raw);
    ck_assert_int_eq(stat(harness.client_socket, &status), 0);
    ck_assert_uint_eq(status.st_mode & 07777, 0666);
    ck_assert_int_eq(stat(harness.control_socket, &status), 0);
    ck_assert_uint_eq(status.st_mode & 07777, 0660);
    harness_stop(&harness);
}
END_TEST

/* Exit status of a second gmbd with the same sockets. */
static int second_broker(const struct harness *harness)
{
    pid_t pid = fork();
    int status;

    if (pid == 0) {
        int log = open("/dev/null", O_WRONLY);

        (void) dup2(log, STDERR_FILENO);
        (void) execl(getenv("GMBD"), "gmbd", "--gpu=sim", "--config", harness->config,
            "--client-socket", harness->client_socket, "--control-socket", harness->control_socket,
            NULL);
        _exit(127);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFEXITED(status));
    return WEXITSTATUS(status);
}

START_TEST(a_second_broker_never_takes_the_sockets_of_a_living_one)
{
    struct harness harness;
    struct raw raw;

    harness_start(&harness, NULL);
    ck_assert_int_eq(second_broker(&harness), 1);
    raw_connect(&raw, &harness);
    raw_close(&raw);
    /* Also a stopped one lives. */
    ck_assert_int_eq(kill(harness.pid, SIGSTOP), 0);
    ck_assert_int_eq(second_broker(&harness), 1);
    ck_assert_int_eq(kill(harness.pid, SIGCONT), 0);
    raw_connect(&raw, &harness);
    raw_close(&raw);
    harness_stop(&harness);
}
END_TEST

START_TEST(a_file_that_is_no_socket_is_not_removed)
{
    struct harness harness;
    struct stat status;
    int fd;

    harness_start(&harness, NULL);
    harness_kill(&harness);
    ck_assert_int_eq(unlink(harness.client_socket), 0);
    fd = open(harness.client_socket, O_CREAT | O_WRONLY | O_EXCL | O_CLOEXEC, 0600);
    ck_assert_int_ge(fd, 0);
    (void) close(fd);
    ck_assert_int_eq(second_broker(&harness), 1);
    ck_assert_int_eq(stat(harness.client_socket, &status), 0);
    ck_assert(S_ISREG(status.st_mode));
    ck_assert_int_eq(unlink(harness.client_socket), 0);
    harness_restart(&harness);
    harness_stop(&harness);
}
END_TEST

START_TEST(two_terms_end_it_once)
{
    struct harness harness;
    int status;

    harness_start(&harness, NULL);
    ck_assert_int_eq(kill(harness.pid, SIGTERM), 0);
    (void) kill(harness.pid, SIGTERM);
    ck_assert_int_eq(waitpid(harness.pid, &status, 0), harness.pid);
    ck_assert_int_eq(status, 0);
    ck_assert_int_eq(access(harness.client_socket, F_OK), -1);
    ck_assert_int_eq(errno, ENOENT);
    harness_restart(&harness);
    harness_stop(&harness);
}
END_TEST

UNIT_MAIN("restart", a_killed_broker_leaves_its_memory_and_a_socket_that_the_next_replaces,
    a_second_broker_never_takes_the_sockets_of_a_living_one,
    a_file_that_is_no_socket_is_not_removed, two_terms_end_it_once)
