/* See handover.h. */
#include "tests/integration/handover.h"

#include <check.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NOBODY = 65534, PATIENCE_MS = 90000 };

const char *const handover_names[HANDOVER_SIDES] = {"one", "other"};

static struct {
    pid_t pid;
    int to, from;
} workers[HANDOVER_SIDES];

static void worker_exec(const struct harness *harness, unsigned side, int commands, int answers)
{
    const char *path = getenv("HANDOVER");
    char tag[16];

    (void) snprintf(tag, sizeof(tag), "%u", 1000 + side);
    if (side == 1 && (setgid(NOBODY) < 0 || setuid(NOBODY) < 0))
        _exit(125);
    (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (path == NULL || dup2(commands, STDIN_FILENO) < 0 || dup2(answers, STDOUT_FILENO) < 0)
        _exit(126);
    (void) execl(path, path, harness->client_socket, tag, NULL);
    _exit(127);
}

void handover_start(const struct harness *harness, unsigned side)
{
    int to[2], from[2];

    ck_assert_int_eq(pipe2(to, O_CLOEXEC), 0);
    ck_assert_int_eq(pipe2(from, O_CLOEXEC), 0);
    workers[side].pid = fork();
    ck_assert_int_ge(workers[side].pid, 0);
    if (workers[side].pid == 0)
        worker_exec(harness, side, to[0], from[1]);
    (void) close(to[0]);
    (void) close(from[1]);
    workers[side].to = to[1];
    workers[side].from = from[0];
}

static void ends_close(unsigned side)
{
    (void) close(workers[side].to);
    (void) close(workers[side].from);
}

void handover_end(unsigned side, int signal)
{
    int status;

    if (signal != 0)
        ck_assert_int_eq(kill(workers[side].pid, signal), 0);
    ends_close(side);
    ck_assert_int_eq(waitpid(workers[side].pid, &status, 0), workers[side].pid);
    ck_assert_msg(signal != 0 || status == 0, "a worker ended with %x", status);
}

void handover_await_killed(unsigned side, unsigned round)
{
    uint64_t deadline = harness_now_ms() + PATIENCE_MS;
    int status = 0;
    pid_t ended;

    while ((ended = waitpid(workers[side].pid, &status, WNOHANG)) == 0) {
        ck_assert_msg(harness_now_ms() < deadline, "round %u: tenant %s lives on", round,
            handover_names[side]);
        harness_breathe();
    }
    ck_assert_int_eq(ended, workers[side].pid);
    ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL,
        "round %u: tenant %s ended with %x", round, handover_names[side], status);
    ends_close(side);
}

void handover_tell(unsigned side, char command)
{
    ck_assert_int_eq(write(workers[side].to, &command, 1), 1);
}

void handover_expect(unsigned side, unsigned round, char command)
{
    struct pollfd poll_fd = {.fd = workers[side].from, .events = POLLIN};
    const char *name = handover_names[side];
    char answer = '-';

    ck_assert_msg(poll(&poll_fd, 1, PATIENCE_MS) == 1, "round %u: no answer to %c", round, command);
    ck_assert_msg(read(workers[side].from, &answer, 1) == 1,
        "round %u: tenant %s is gone, after %c", round, name, command);
    ck_assert_msg(answer != '!', "round %u: tenant %s finds bytes of somebody else, after %c",
        round, name, command);
    ck_assert_msg(answer == '+', "round %u: tenant %s failed: %c", round, name, command);
}

void handover_order(unsigned side, unsigned round, const char *commands)
{
    for (; *commands != '\0'; commands++) {
        handover_tell(side, *commands);
        handover_expect(side, round, *commands);
    }
}
