/* See member.h and member_main.c. */
#include "tests/integration/member.h"

#include <check.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

bool member_ready(const struct member *member, int ms)
{
    struct pollfd poll_fd = {.fd = member->from, .events = POLLIN};

    return poll(&poll_fd, 1, ms) == 1;
}

int member_answer(struct member *member)
{
    size_t done = 0;

    while (done < sizeof(member->answer)) {
        ssize_t n;

        ck_assert(member_ready(member, 2 * HARNESS_DEADLINE_MS));
        n = read(member->from, (char *) &member->answer + done, sizeof(member->answer) - done);
        ck_assert_int_gt(n, 0);
        done += (size_t) n;
    }
    return member->answer.result;
}

/* The child's ends become 3 and 4, wherever they are. */
static bool fds_place(int orders, int answers)
{
    int high = fcntl(answers, F_DUPFD, 5);

    return high >= 0 && dup2(orders, 4) == 4 && dup2(4, 3) == 3 && dup2(high, 4) == 4;
}

void member_start(struct member *member, const struct harness *harness, unsigned uid)
{
    const char *path = getenv("MEMBER");
    int to[2], from[2];

    ck_assert_int_eq(pipe2(to, O_CLOEXEC), 0);
    ck_assert_int_eq(pipe2(from, O_CLOEXEC), 0);
    member->pid = fork();
    ck_assert_int_ge(member->pid, 0);
    if (member->pid == 0) {
        if (uid != 0 && (setgroups(0, NULL) < 0 || setgid(uid) < 0 || setuid(uid) < 0))
            _exit(126);
        (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (path != NULL && fds_place(to[0], from[1]))
            (void) execl(path, path, harness->client_socket, NULL);
        _exit(127);
    }
    (void) close(to[0]);
    (void) close(from[1]);
    member->to = to[1];
    member->from = from[0];
    ck_assert_int_eq(member_answer(member), 0);
}

void member_tell(struct member *member, const struct member_order *order)
{
    ck_assert_int_eq(write(member->to, order, sizeof(*order)), sizeof(*order));
}

int member_do(struct member *member, const struct member_order *order)
{
    member_tell(member, order);
    return member_answer(member);
}

void member_end(struct member *member, int signal)
{
    int status;

    (void) close(member->to);
    if (signal != 0)
        ck_assert_int_eq(kill(member->pid, signal), 0);
    ck_assert_int_eq(waitpid(member->pid, &status, 0), member->pid);
    ck_assert(signal != 0 || (WIFEXITED(status) && WEXITSTATUS(status) == 0));
    (void) close(member->from);
}
