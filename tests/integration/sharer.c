/* See sharer.h and sharer_main.c. */
#include "tests/integration/sharer.h"

#include <check.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static void answer_read(struct sharer *sharer)
{
    struct pollfd poll_fd = {.fd = sharer->from, .events = POLLIN};
    size_t done = 0;

    while (done < sizeof(sharer->answer)) {
        ssize_t n;

        ck_assert_int_eq(poll(&poll_fd, 1, HARNESS_DEADLINE_MS), 1);
        n = read(sharer->from, (char *) &sharer->answer + done, sizeof(sharer->answer) - done);
        ck_assert_int_gt(n, 0);
        done += (size_t) n;
    }
}

/* The child's ends become 3 and 4, wherever they are. */
static bool fds_place(int orders, int answers)
{
    int high = fcntl(answers, F_DUPFD, 5);

    return high >= 0 && dup2(orders, 4) == 4 && dup2(4, 3) == 3 && dup2(high, 4) == 4;
}

void sharer_start(struct sharer *sharer, const struct harness *harness, bool make)
{
    const char *path = getenv("SHARER");
    int to[2], from[2];

    ck_assert_int_eq(pipe2(to, O_CLOEXEC), 0);
    ck_assert_int_eq(pipe2(from, O_CLOEXEC), 0);
    sharer->pid = fork();
    ck_assert_int_ge(sharer->pid, 0);
    if (sharer->pid == 0) {
        (void) prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (path != NULL && fds_place(to[0], from[1]))
            (void) execl(path, path, harness->client_socket, make ? "make" : "attach", NULL);
        _exit(127);
    }
    (void) close(to[0]);
    (void) close(from[1]);
    sharer->to = to[1];
    sharer->from = from[0];
    answer_read(sharer);
    ck_assert_int_eq(sharer->answer.result, 0);
}

int sharer_do(struct sharer *sharer, enum sharer_what what, uint32_t count, const uint32_t *pages)
{
    struct sharer_order order = {.what = what, .count = count};

    ck_assert_uint_le(count, SHARER_PAGES);
    if (pages != NULL)
        memcpy(order.pages, pages, count * sizeof(*pages));
    ck_assert_int_eq(write(sharer->to, &order, sizeof(order)), sizeof(order));
    answer_read(sharer);
    return sharer->answer.result;
}

void sharer_end(struct sharer *sharer, int signal)
{
    int status;

    (void) close(sharer->to);
    if (signal != 0)
        ck_assert_int_eq(kill(sharer->pid, signal), 0);
    ck_assert_int_eq(waitpid(sharer->pid, &status, 0), sharer->pid);
    ck_assert(signal != 0 || (WIFEXITED(status) && WEXITSTATUS(status) == 0));
    (void) close(sharer->from);
}
